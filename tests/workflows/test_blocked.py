"""Visits that wait for a deploy or an operator: they keep their work, and everybody sees the reason."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from blocked_graphs import exporting
from killable import worker_process
from sample_graphs import State, chain
from temporal_site import Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from abeyance import START, Backoff, Context, Graph
from abeyance.core.state import Limits
from abeyance.filters import RunFilter

_APP = "blocked_graphs:graphs"


async def blocked_events(site: Site, run_id: str) -> list[tuple[str, str]]:
    """Return the type and the code of each event about blocked visits."""
    found = await site.published(run_id, "node.blocked", "node.unblocked", "node.failed")
    return [(event.type, event.data["code"]) for event in found]


def logged(caplog: pytest.LogCaptureFixture, run_id: str) -> list[str]:
    """Return the codes that workers have logged about blocked visits of a run."""
    lines = [record.getMessage() for record in caplog.records]
    about = [line for line in lines if "| the visit is blocked: " in line and run_id in line]
    return [line.partition("code=")[2].split()[0] for line in about]


async def listed(site: Site, *, blocked: bool) -> list[str]:
    rows, _ = await site.client.runs.list(RunFilter(blocked=blocked))
    return [row.run_id for row in rows]


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "witness"


@pytest.mark.slow
async def test_a_worker_without_an_extra_names_it_once_and_one_that_has_it_goes_on_at_once(
    temporal: TemporalClient, address: str, tmp_path: Path, witness: Path
) -> None:
    site = Site(temporal, exporting())
    # The worker has no library for S3.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['boto3'] = None\n")
    queue = {"ABEYANCE_TASK_QUEUE": site.settings.task_queue}
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    with worker_process(address, _APP, first, variables=queue, imports=[tmp_path]):
        run_id = await site.start({"witness": str(witness)})
        waited = await site.client.run(run_id).wait(until=frozenset({"blocked"}), timeout=30)
        # The visit has been blocked for longer than its timeout, and has no retries.
        view = await site.until_blocked(run_id, attempt=3)
        await eventually(lambda: listed(site, blocked=True))
        assert await listed(site, blocked=False) == []
    with worker_process(address, _APP, second, variables=queue):
        ended = await site.ended(run_id)

    (why,) = view.blocked
    assert (view.status, why.code) == ("running", "extra_missing")
    assert "pip install 'abeyance[s3]'" in why.message
    assert [each.code for each in waited.blocked] == ["extra_missing"]
    assert (ended.status, ended.values["exported"], ended.blocked) == ("completed", 10, [])
    assert witness.read_text() == "collected\n"
    assert await blocked_events(site, run_id) == [
        ("node.blocked", "extra_missing"),
        ("node.unblocked", "extra_missing"),
    ]
    log = first.read_text()
    assert log.count("the visit is blocked") == 1
    assert "Traceback" not in log
    assert await listed(site, blocked=True) == []


async def test_a_worker_that_starts_does_not_stop_code_that_another_one_has_unblocked(
    temporal: TemporalClient,
) -> None:
    begun: list[str] = []
    release = asyncio.Event()
    new = chain(1, "deployed")

    @new.node
    async def n1(state: State) -> dict[str, Any]:
        begun.append("n1")
        await release.wait()
        return {"log": ["n1"]}

    new.edge("n0", "n1")
    site = Site(temporal, new)
    run_id = await site.start()
    run = site.client.run(run_id)
    async with site.worker(chain(1, "deployed")):
        await site.until_blocked(run_id)
    async with site.worker():
        await eventually(lambda: begun)
        await run.worker_started()
        assert (await run.view()).blocked == []
        release.set()
        await site.ended(run_id)

    assert begun == ["n1"]
    types = {event.event_type for event in (await site.history(run_id)).events}
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in types
    assert await blocked_events(site, run_id) == [
        ("node.blocked", "code_missing"),
        ("node.unblocked", "code_missing"),
    ]


async def test_the_first_attempt_of_a_node_is_the_first_that_was_not_blocked(
    temporal: TemporalClient,
) -> None:
    attempts: list[int] = []
    new = chain(1, "deployed")

    @new.node(retries=1, backoff=Backoff(first="100ms"))
    async def n1(state: State, ctx: Context) -> dict[str, Any]:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise ConnectionError("away")
        return {"log": ["n1"]}

    new.edge("n0", "n1")
    site = Site(temporal, new)
    run_id = await site.start()
    async with site.worker(chain(1, "deployed")):
        await site.until_blocked(run_id, attempt=2)
    async with site.worker():
        ended = await site.ended(run_id)

    assert (ended.values["log"], attempts) == (["n0", "n1"], [1, 2])


def closing(*, named: str) -> Graph:
    """Return a graph of the node `work`, and then a finally node of this name."""
    graph = Graph("closing", state=State)
    graph.node(name="work")(lambda state: {"log": ["worked"]})
    graph.node(name=named)(lambda state: {"log": ["archived"]})
    graph.edge(START, "work")
    graph.finally_(named)
    return graph


async def test_a_finally_node_that_waits_for_its_code_is_logged_once_and_starts_once(
    temporal: TemporalClient, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(temporal, closing(named="archive"))
    # The finally node is blocked for longer than it may take.
    run_id = await site.start(limits=Limits(finally_timeout=1))
    async with site.worker(closing(named="renamed")):
        await site.until_blocked(run_id, attempt=3)
    async with site.worker():
        await site.ended(run_id)
        await site.replays(run_id)

    page = await site.published(run_id)
    # The end of the block and the end of the node may arrive in either order.
    assert sorted(event.type for event in page if "archive" in (event.address or "")) == [
        "node.blocked",
        "node.finished",
        "node.started",
        "node.unblocked",
    ]
    assert logged(caplog, run_id) == ["code_missing"]
