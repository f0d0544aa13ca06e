"""A visit is asked to stop, and its worker dies about then: it goes on with what it had done."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from killed_graphs import chained, lingering
from temporal_site import eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import PauseActivityRequest, ResetActivityRequest

from abeyance import commands
from abeyance.core.events import PauseMode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

_APP = "killed_graphs:graphs"


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


@pytest.mark.parametrize(
    ("mode", "is_reset"), [("now", False), ("after-node", False), ("now", True)]
)
async def test_a_visit_that_is_paused_before_its_next_attempt_begins_goes_on_with_what_was_done(
    server: KillableServer, tmp_path: Path, mode: PauseMode, is_reset: bool
) -> None:
    journal, dies_at, run_id = tmp_path / "journal", tmp_path / "point", f"before-{mode}-{is_reset}"
    dies_at.write_text("after two", encoding="utf-8")
    client = await server.client()
    handle = client.temporal.get_workflow_handle(run_id)
    files = {"journal": str(journal), "dies_at": str(dies_at)}

    async def is_lost() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return [each.attempt for each in pending] == [2]

    with worker_process(server, _APP, tmp_path / "first.log") as first:
        await client.runs.start(chained, files, run_id=run_id)
        await eventually(is_lost, seconds=90)
        assert first.poll() == -signal.SIGKILL
        # Temporal holds the next attempt back, for the run to come before it.
        service, visit = client.temporal.workflow_service, "graph:chained;node:two"
        namespace, execution = client.temporal.namespace, WorkflowExecution(workflow_id=run_id)
        await service.pause_activity(
            PauseActivityRequest(namespace=namespace, execution=execution, id=visit)
        )
        if is_reset:
            # Its attempts are counted anew, and what it has written stays.
            await service.reset_activity(
                ResetActivityRequest(
                    namespace=namespace, execution=execution, id=visit, keep_paused=True
                )
            )
    with worker_process(server, _APP, tmp_path / "second.log"):
        await handle.signal("pause", commands.Pause(mode=mode))
        await client.run(run_id).wait(until=frozenset({"paused"}), timeout=90)
        await client.run(run_id).resume()
        ended = await client.run(run_id).wait(timeout=90)

    assert ended.status == "completed", ended.error
    lines = journal.read_text(encoding="utf-8").split()
    assert [line.partition("=")[0] for line in lines] == ended.values["log"]
    events = [each async for each in client.run(run_id).events()]
    finished = [each.address for each in events if each.type == "node.finished"]
    assert finished == [f"graph:chained;node:{name}" for name in ended.values["log"]]
