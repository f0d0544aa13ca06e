"""Two hundred runs outlive good and bad deploys of a changing application."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import deployed_graphs
import pytest
from killable import KillableServer, killable_server, worker_process
from temporal_site import ANYBODY, eventually

from abeyance import Graph, views
from abeyance.client import Client
from abeyance.filters import RunFilter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_PEOPLE = 8
"""How many people answer at the same time."""
_WITHIN = 300
"""Seconds: far more than any step of this test takes."""
_ENDED = frozenset({"completed", "failed", "halted", "cancelled"})
_REJECTS_EACH = 5


class Workers:
    """Two worker processes. Each deploy replaces them one after the other."""

    def __init__(self, server: KillableServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._running: dict[int, tuple[subprocess.Popen[bytes], ExitStack]] = {}
        self._started = 0

    async def replace(self, place: int, app: str, *, hiding: Path | None = None) -> Path:
        """Start a worker with this app, then end the worker before it by SIGTERM or by kill -9.

        Return the new worker's log.
        """
        self._started += 1
        log = self._folder / f"worker-{self._started}-{app}.log"
        stack = ExitStack()
        process = stack.enter_context(
            worker_process(
                self._server,
                f"deployed_graphs:{app}",
                log,
                imports=[] if hiding is None else [hiding],
            )
        )
        before = self._running.get(place)
        self._running[place] = (process, stack)
        await eventually(lambda: "serving" in log.read_text("utf-8"), seconds=90)
        if before is not None:
            await self._end(*before, kill=place == 1)
        return log

    async def deploy(self, app: str) -> None:
        """Replace one worker after the other."""
        for place in (0, 1):
            await self.replace(place, app)

    async def _end(self, process: subprocess.Popen[bytes], stack: ExitStack, *, kill: bool) -> None:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        returned = await asyncio.to_thread(process.wait, 60)
        stack.close()
        assert returned == (-signal.SIGKILL if kill else 0)

    async def aclose(self) -> None:
        """Kill the workers that still run."""
        for _, stack in self._running.values():
            stack.close()


class Office:
    """All runs of the test, and the people who answer them."""

    def __init__(self, client: Client, ledger: Path) -> None:
        self._client = client
        self._ledger = ledger
        self._people = asyncio.Semaphore(_PEOPLE)
        self.rejected: set[str] = set()

    async def start(self, app: str, kind: str, count: int) -> list[str]:
        """Start runs of a graph in its version of a deploy, and return their ids."""
        graphs: Sequence[Graph] = getattr(deployed_graphs, app)
        graph = next(graph for graph in graphs if graph.name == kind)
        field = "task" if kind == "clerks" else "ledger"
        ids = [f"{kind}-{app}-{number}" for number in range(count)]
        for number, run_id in enumerate(ids):
            if kind != "walks" and number % _REJECTS_EACH == 0:
                self.rejected.add(run_id)
            await self._client.runs.start(graph, {field: str(self._ledger)}, run_id=run_id)
        return ids

    async def waiting(self, ids: Iterable[str]) -> None:
        """Wait until each run has a question."""
        for run_id in ids:
            view = await self._client.run(run_id).wait(
                until=frozenset({"awaiting-input", *_ENDED}), timeout=_WITHIN
            )
            assert view.status == "awaiting-input", view

    async def see_through(self, run_id: str) -> None:
        """Answer every question of a run until it ends."""
        run = self._client.run(run_id)
        while True:
            async with self._people:
                view = await run.view()
                for interrupt in view.interrupts:
                    await run.respond(
                        interrupt.id, self._answer(run_id, interrupt), principal=ANYBODY
                    )
            view = await run.wait(until=frozenset({"awaiting-input", *_ENDED}), timeout=_WITHIN)
            if view.status in _ENDED:
                return

    def _answer(self, run_id: str, interrupt: views.InterruptView) -> Any:
        is_yes = run_id not in self.rejected
        match interrupt.name:
            case "review":
                return is_yes
            case "approve":
                return {"approved": is_yes}
            case _:
                # A worker was killed in the call. The receiver knows the key, so a retry is safe.
                assert interrupt.kind == "outcome"
                return {"action": "retry"}

    async def blocked(self) -> dict[str, set[str]]:
        """Return the codes by which runs are blocked, by run id."""
        found: dict[str, set[str]] = {}
        cursor = None
        while True:
            page, cursor = await self._client.runs.list(
                RunFilter(blocked=True), cursor=cursor, limit=100
            )
            for listed in page:
                view = await self._client.run(listed.run_id).view()
                found[view.run_id] = {blocked.code for blocked in view.blocked}
            if cursor is None:
                return found

    async def all_blocked(self, ids: Iterable[str], code: str) -> None:
        """Wait until this code blocks every approved run of `ids`."""
        wanted = {*ids} - self.rejected

        async def found() -> bool:
            blocked = await self.blocked()
            return all(code in blocked.get(run_id, set()) for run_id in wanted)

        await eventually(found, seconds=90)

    def wanted(self, run_id: str) -> tuple[list[str], list[str]]:
        """Return the result that a run must have, and the items that must be booked for it."""
        is_yes = run_id not in self.rejected
        match run_id.rpartition("-")[0]:
            case "claims-first" if is_yes:
                return ["paid", "prepared", "settled"], ["paid"]
            case "claims-renamed" if is_yes:
                return ["informed", "paid", "prepared", "settled"], ["paid"]
            case "claims-first" | "claims-renamed":
                return ["prepared", "settled"], []
            case "clerks-first" | "clerks-tool_kept":
                return (["success"], ["charged"]) if is_yes else (["denied"], [])
            case _:
                return ["walked"], [*"abcdefgh"]


def booked(ledger: Path) -> dict[str, list[str]]:
    """Return the receiver's items for each run: one item for each idempotency key."""
    lines = {line for line in ledger.read_text("utf-8").splitlines() if line}
    assert len({line.split()[0] for line in lines}) == len(lines), "a key of two payments"
    items = defaultdict(list)
    for line in sorted(lines):
        _, run_id, item = line.split()
        items[run_id].append(item)
    return {run_id: sorted(of_run) for run_id, of_run in items.items()}


def came_to(view: views.RunView) -> list[str]:
    """Return the result of a run: the log of its nodes, or the outcome of its agent's call."""
    if view.status != "completed":
        return [view.status, str(view.error)]
    if "log" in view.values:
        return sorted(view.values["log"])
    return [view.values["report"].partition(":")[0]]


def missing_library(folder: Path) -> Path:
    """Make a folder that hides the agent library if it comes first on the import path."""
    module = folder / "lacking" / "pydantic_ai.py"
    module.parent.mkdir()
    module.write_text("raise ModuleNotFoundError('not installed', name=__name__)\n")
    return module.parent


async def test_two_hundred_runs_outlive_every_deploy_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABEYANCE_SHUTDOWN_GRACE", "0.5s")
    monkeypatch.setenv("ABEYANCE_STORAGE", str(tmp_path / "storage"))
    monkeypatch.setenv("ABEYANCE_STORAGE_SHARED", "true")
    async with killable_server(tmp_path) as server, aclosing(Workers(server, tmp_path)) as workers:
        client = await server.client()
        office = Office(client, tmp_path / "ledger")
        await workers.deploy("first")
        claims = await office.start("first", "claims", 80)
        clerks = await office.start("first", "clerks", 50)
        walks = await office.start("first", "walks", 10)
        await office.waiting([*claims, *clerks])

        async with asyncio.TaskGroup() as people:

            def answer(ids: Iterable[str]) -> None:
                for run_id in ids:
                    people.create_task(office.see_through(run_id))

            # The graph changes: the paying node gets a new name, and an edge leads from it to a new node.
            answer([*claims[:25], *walks])
            await workers.deploy("renamed")
            newer = await office.start("renamed", "claims", 20)
            walks += await office.start("renamed", "walks", 10)

            # A bad deploy: the state model has a new field that no run has a value for.
            answer([*claims[25:45], *newer[:10]])
            await workers.deploy("field_required")
            late = claims[45:50]
            answer(late)
            await office.all_blocked(late, "values_incompatible")
            # The next deploy gives the field a default.
            answer([*newer[10:], *walks[10:]])
            await workers.deploy("field_defaulted")
            answer(claims[50:])

            # A bad deploy: the agent's tool has a new name, and calls with the old name wait.
            walks += await office.start("field_defaulted", "walks", 10)
            answer([*clerks[:15], *walks[20:]])
            await workers.deploy("tool_renamed")
            lost = clerks[15:25]
            answer(lost)
            await office.all_blocked(lost, "code_missing")
            # The next deploy has both names, and changes what the tool does.
            answer(clerks[25:35])
            await workers.deploy("tool_kept")

            # One of two workers lacks the agent library.
            walks += await office.start("tool_kept", "walks", 10)
            answer([*clerks[35:45], *walks[30:]])
            lacking_log = await workers.replace(0, "tool_kept", hiding=missing_library(tmp_path))
            newest = await office.start("tool_kept", "clerks", 10)
            answer([*clerks[45:], *newest])
            await workers.replace(0, "tool_kept")

        everything = [*claims, *newer, *clerks, *newest, *walks]
        ended = {run_id: await client.run(run_id).view() for run_id in everything}

    items = booked(tmp_path / "ledger")
    assert len(ended) == 200
    assert {run_id: (came_to(view), items.get(run_id, [])) for run_id, view in ended.items()} == {
        run_id: office.wanted(run_id) for run_id in everything
    }
    assert {ended[run_id].values["report"] for run_id in {*lost} - office.rejected} == {
        "success: charged in EUR"
    }
    assert "code=extra_missing" in lacking_log.read_text("utf-8")
    assert [
        log.name for log in tmp_path.glob("*.log") if "Traceback" in log.read_text("utf-8")
    ] == []
