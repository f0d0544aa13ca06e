"""A visit must stop, and its worker dies at about that time: the visit keeps its finished steps."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from killed_graphs import chained, lingering
from temporal_site import eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    UnpauseActivityRequest,
)

from abeyance import commands
from abeyance.client import Client
from abeyance.views import RunView

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

_APP = "killed_graphs:graphs"
_CHAIN = ("one", "two", "three")


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("ends", ["killed", "raises"])
async def test_a_visit_that_ends_in_the_moment_it_is_paused_goes_on_with_its_steps(
    server: KillableServer, tmp_path: Path, ends: str
) -> None:
    journal, release = tmp_path / "journal", tmp_path / "release"
    client = await server.client()
    files = {"journal": str(journal), "release": str(release)}
    await client.runs.start(lingering, files, run_id=ends)
    handle = client.temporal.get_workflow_handle(ends)

    def lines() -> list[str]:
        return journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []

    async def is_to_stop() -> bool:
        return any(
            event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
            for event in (await handle.fetch_history()).events
        )

    with worker_process(server, _APP, tmp_path / "first.log") as first:
        await eventually(lambda: "lingers" in lines(), seconds=90)
        await handle.signal("pause", commands.Pause(mode="now"))
        await eventually(is_to_stop)
        if ends == "killed":
            first.send_signal(signal.SIGKILL)
        else:
            release.touch()
            await eventually(lambda: not release.exists())
            await client.run(ends).wait(until=frozenset({"paused"}), timeout=90)
    release.unlink(missing_ok=True)
    with worker_process(server, _APP, tmp_path / "second.log"):

        async def is_still() -> bool:
            view = await client.run(ends).view()
            return view.status != "paused" or not view.running

        await eventually(is_still, seconds=90)
        release.write_text("done", encoding="utf-8")
        await client.run(ends).resume()
        ended = await client.run(ends).wait(timeout=90)

    assert ended.status == "completed", ended.error
    assert Counter(lines())["step"] == 1
    assert ended.values["log"] == ["step", "lingered"]


@asynccontextmanager
async def lost_visit(
    server: KillableServer, folder: Path, run_id: str, *, is_reset: bool = False
) -> AsyncIterator[tuple[Client, Callable[[], Awaitable[None]]]]:
    """Start a run whose visit `two` loses an attempt with its worker, and then another worker.

    Temporal holds the next attempt back, so that the run can act first; the yielded function releases it.
    """
    dies_at = folder / "point"
    dies_at.write_text("after two", encoding="utf-8")
    client = await server.client()
    handle = client.temporal.get_workflow_handle(run_id)
    files = {"journal": str(folder / "journal"), "dies_at": str(dies_at)}
    service, execution = client.temporal.workflow_service, WorkflowExecution(workflow_id=run_id)
    held: dict[str, Any] = {
        "namespace": client.temporal.namespace,
        "execution": execution,
        "id": "graph:chained;node:two",
    }

    async def is_lost() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return [each.attempt for each in pending] == [2]

    async def release() -> None:
        await service.unpause_activity(UnpauseActivityRequest(**held))

    with worker_process(server, _APP, folder / "first.log") as first:
        await client.runs.start(chained, files, run_id=run_id)
        await eventually(is_lost, seconds=90)
        assert first.poll() == -signal.SIGKILL
        await service.pause_activity(PauseActivityRequest(**held))
        if is_reset:
            # Temporal counts attempts from 1 again, but keeps the heartbeat details.
            await service.reset_activity(ResetActivityRequest(**held, keep_paused=True))
    with worker_process(server, _APP, folder / "second.log"):
        yield client, release


async def has_done_each_once(client: Client, ended: RunView, folder: Path) -> None:
    assert ended.status == "completed", ended.error
    lines = (folder / "journal").read_text(encoding="utf-8").split()
    assert [line.partition("=")[0] for line in lines] == ended.values["log"] == list(_CHAIN)
    events = [each async for each in client.run(ended.run_id).events()]
    finished = [each.address for each in events if each.type == "node.finished"]
    assert finished == [f"graph:chained;node:{name}" for name in _CHAIN]


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_visit_that_is_paused_before_its_next_attempt_begins_goes_on_with_what_was_done(
    server: KillableServer, tmp_path: Path, is_reset: bool
) -> None:
    run_id = f"stopped-{is_reset}"
    async with lost_visit(server, tmp_path, run_id, is_reset=is_reset) as (client, _):
        await client.temporal.get_workflow_handle(run_id).signal(
            "pause", commands.Pause(mode="now")
        )

        async def is_stopped() -> bool:
            view = await client.run(run_id).view()
            return (view.status, view.running, view.blocked) == ("paused", [], [])

        await eventually(is_stopped, seconds=90)
        await client.run(run_id).resume()
        await has_done_each_once(client, await client.run(run_id).wait(timeout=90), tmp_path)


async def test_a_pause_after_the_node_lets_the_next_attempt_at_it_begin(
    server: KillableServer, tmp_path: Path
) -> None:
    async with lost_visit(server, tmp_path, "let") as (client, release):
        run = client.run("let")
        await run.pause()
        paused = await run.wait(until=frozenset({"paused"}), timeout=90)
        assert paused.running == ["graph:chained;node:two"]
        # Only a call to Temporal can release an attempt that was paused there.
        (held,) = (await run.view()).blocked
        told = "the visit is paused through Temporal itself: unpause it there"
        assert (held.code, held.message) == ("natively_paused", told)
        await release()

        async def is_at_rest() -> bool:
            view = await run.view()
            return (view.status, view.running, view.blocked) == ("paused", [], [])

        await eventually(is_at_rest, seconds=90)
        assert (await run.view()).values["log"] == ["one", "two"]
        await run.resume()
        await has_done_each_once(client, await run.wait(timeout=90), tmp_path)


_LEAVING = {
    "cancel": (commands.Cancel(), "cancelled", ["one"]),
    "goto": (commands.Pause(timeout=0.5, on_timeout="goto:three"), "completed", ["one", "three"]),
}


@pytest.mark.parametrize("name", _LEAVING)
async def test_a_run_that_leaves_a_visit_does_not_wait_for_its_next_attempt(
    server: KillableServer, tmp_path: Path, name: str
) -> None:
    order, status, log = _LEAVING[name]
    async with lost_visit(server, tmp_path, name) as (client, _):
        signalled = "pause" if isinstance(order, commands.Pause) else "cancel"
        await client.temporal.get_workflow_handle(name).signal(signalled, order)
        ended = await client.run(name).wait(timeout=90)

    assert (ended.status, ended.values["log"]) == (status, log)
