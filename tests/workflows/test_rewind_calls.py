"""Rewinds that are refused, rewinds whose call is repeated, and rewinds that patch values."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any

import pytest
from changed_graphs import Payments
from sample_graphs import Held, State, asking, gated
from temporal_site import ANYBODY, Site, begun, deleted, eventually, refused
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyType
from temporalio.api.workflowservice.v1 import (
    PauseWorkflowExecutionRequest,
    ResetWorkflowExecutionRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle

from abeyance import START, Graph, Limits, Principal, commands, names, views
from abeyance.client import rewinds
from abeyance.client.run import TemporalRun
from abeyance.errors import Code
from abeyance.history import resets
from abeyance.runtime import retries
from abeyance.views import InterruptView


@asynccontextmanager
async def paid(
    temporal: TemporalClient,
) -> AsyncIterator[tuple[Site, TemporalRun, InterruptView]]:
    """Yield a run that has paid 3 and ended, and its answered question."""
    graph = gated()
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start({"amount": 3})
        question = await site.answer(run_id, {"approved": True})
        await site.ended(run_id)
        yield site, site.client.run(run_id, graph), question


async def test_a_question_that_was_settled_as_soon_as_it_was_asked_has_no_point(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, asking())
    run_id = await site.start()
    await temporal.get_workflow_handle(run_id).cancel()
    async with site.worker():
        await site.ended(run_id)
        told = await site.recorded(run_id)
        (question,) = [event.data["id"] for event in told if event.type == "interrupt.opened"]

        refusal = await refused(site.client.run(run_id).rewind(to=question))

        assert refusal.code is Code.GONE
        assert "settled as soon as it was asked" in str(refusal)


async def test_values_are_not_patched_where_code_was_under_way(temporal: TemporalClient) -> None:
    held = Held()
    graph = held.graph
    graph.interrupt("go", prompt="Go?")
    graph.edge(START, "go")
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        run = site.client.run(run_id, graph)

        async def asked_and_held() -> list[views.InterruptView]:
            return await run.interrupts() if held.started else []

        (question,) = await eventually(asked_and_held)
        await run.respond(question.id, 1, principal=ANYBODY)
        before = await site.history(run_id)

        refusal = await refused(run.rewind(to=question.id, patch={"amount": 1}))

        assert refusal.code is Code.NOT_STOPPED
        assert (await site.history(run_id)).run_id == before.run_id
        held.release.set()
        await site.ended(run_id)


async def test_a_call_that_is_repeated_with_its_key_rewinds_once(temporal: TemporalClient) -> None:
    async with begun(temporal, gated(), limits=Limits(continue_as_new_after=6)) as (site, run):
        question = await site.answer(run.run_id, {"approved": True})
        await site.ended(run.run_id)
        await run.rewind(to=question.id, key="once")
        await site.answer(run.run_id, {"approved": False})
        ended = await site.ended(run.run_id)

        await run.rewind(to=question.id, key="once")
        other = await refused(run.rewind(to="start", key="once"))

        assert await run.view() == ended
        assert other.code is Code.IDEMPOTENCY_CONFLICT
        assert "'once'" in str(other)


async def test_a_call_that_was_cut_off_before_its_patch_is_repeated_with_its_key(
    temporal: TemporalClient,
) -> None:
    async with paid(temporal) as (site, run, question):
        run_id = run.run_id
        past = (await site.history(run_id)).events
        accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
        answered = next(event.event_id for event in past if event.event_type == accepted)
        order = commands.RewindBody(to=question.id, patch={"amount": 4})
        mark = retries.mark(order, ANYBODY, "once")
        await temporal.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run_id),
                workflow_task_finish_event_id=answered - 1,
                reason=resets.reason(by="ada", to=question.id, key=mark),
                reset_reapply_type=ResetReapplyType.RESET_REAPPLY_TYPE_NONE,
                request_id=run_id,
            )
        )

        async def is_rewound() -> bool:
            return any(each.type == "run.rewound" for each in await site.recorded(run_id))

        await eventually(is_rewound)
        assert (await site.asked(run_id)).prompt == "Pay 3?"

        same: dict[str, Any] = {"to": question.id, "patch": {"amount": 4}, "key": "once"}
        await run.rewind(**same, principal=ANYBODY)
        view = await run.view()
        await run.rewind(**same, principal=ANYBODY)

        assert [entry.prompt for entry in view.interrupts] == ["Pay 4?"]
        assert await run.view() == view
        assert [each.type for each in await site.recorded(run_id)].count("run.rewound") == 1


async def test_a_rewind_to_the_start_sets_values_before_anything_runs(
    temporal: TemporalClient,
) -> None:
    async with paid(temporal) as (site, run, question):
        run_id = run.run_id
        to_start = partial(run.rewind, to="start", principal=ANYBODY)

        tried = await to_start(patch={"amount": 4}, dry_run=True)
        done = await to_start(patch={"amount": 4}, key="once")
        again = await site.asked(run_id)
        await to_start(patch={"amount": 4}, key="once")

        assert tried.discards == done.discards
        assert again.prompt == "Pay 4?"
        assert again.id != question.id
        standing = [(each.type, each.actor) for each in await site.recorded(run_id)]
        begun = standing.index(("run.values_edited", ANYBODY.subject))
        assert standing[:begun] == [("run.rewound", ANYBODY.subject), ("run.started", "local")]
        assert [type_ for type_, _ in standing].count("run.rewound") == 1

        # The caller can set the values once more while the run waits at its first question.
        await to_start(patch={"amount": 5})
        assert (await site.asked(run_id)).prompt == "Pay 5?"
        await site.answer(run_id, {"approved": True})
        assert (await site.ended(run_id)).values["amount"] == 5
        await site.replays(run_id)


async def test_values_that_a_run_cannot_have_at_its_start_are_refused(
    temporal: TemporalClient,
) -> None:
    graph = gated()
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start({"amount": 3})
        run = site.client.run(run_id, graph)
        question = await site.asked(run_id)
        for patch, code in (
            ({"amount": "three"}, Code.INVALID_INPUT),
            ({"unknown": 1}, Code.INVALID_INPUT),
            ({"amount": 4, "log": ["x" * 2_000_000]}, Code.PAYLOAD_TOO_LARGE),
        ):
            assert (await refused(run.rewind(to="start", patch=patch))).code is code
        assert (await site.asked(run_id)) == question


async def test_a_signal_that_comes_before_a_rewound_run_has_started_waits_for_it(
    temporal: TemporalClient,
) -> None:
    graph = gated()
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start({"amount": 3})
        await site.asked(run_id)
    run = site.client.run(run_id, graph)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(rewinds, "_POLLS", 1)
        await run.rewind(to="start", patch={"amount": 4}, principal=ANYBODY)
    # A signal that the run refuses is refused like any other.
    await run.pause(timeout=60, on_timeout="goto:END", principal=Principal(subject="eve"))
    await run.pause(reason="look first", principal=ANYBODY)
    async with site.worker():
        await site.until(run_id, "paused")
        (told,) = [e for e in await site.recorded(run_id) if e.type == "signal.refused"]
        assert told.data["code"] == "capability_required"
        await run.resume(principal=ANYBODY)
        assert (await site.asked(run_id)).prompt == "Pay 4?"
        await site.replays(run_id)


async def test_a_rewind_that_was_planned_before_another_one_is_judged_by_what_that_has_left(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(temporal, gated(), {"amount": 3}) as (site, run):
        question = await site.answer(run.run_id, {"approved": True})
        await site.ended(run.run_id)
        planned = rewinds.planned

        async def interrupted(*about: Any, **more: Any) -> rewinds.Plan:
            plan = await planned(*about, **more)
            monkeypatch.setattr(rewinds, "planned", planned)
            await run.rewind(to="start")
            return plan

        monkeypatch.setattr(rewinds, "planned", interrupted)
        assert (await refused(run.rewind(to=question.id))).code is Code.UNKNOWN_INTERRUPT

        again = await site.asked(run.run_id)
        rewound = [each for each in await site.recorded(run.run_id) if each.type == "run.rewound"]
        assert (again.id != question.id, [each.data["to"] for each in rewound]) == (True, ["start"])
        await site.replays(run.run_id)


async def test_a_run_at_which_nothing_has_happened_since_stays_as_it_is(
    temporal: TemporalClient,
) -> None:
    held = Held()
    graph = Graph("since", state=State)
    graph.node(name="hold")(held._hold)
    graph.interrupt("go", prompt="Go?")
    graph.edge(START, "hold")
    graph.edge("hold", "go")
    async with begun(temporal, graph) as (site, run):
        handle = temporal.get_workflow_handle(run.run_id)
        await eventually(lambda: held.started)
        with locked():
            held.release.set()
            # A later workflow task records the question's events, because nobody could write then.
            await eventually(partial(_is_recording, handle))
        question = await site.asked(run.run_id)
        await eventually(partial(_is_at_rest, handle))
        before = await handle.describe()

        assert (await run.rewind(to=question.id)).discards == []
        assert (await handle.describe()).run_id == before.run_id
        assert await run.interrupts() == [question]


async def _is_recording(handle: WorkflowHandle[Any, Any]) -> bool:
    pending = (await handle.describe()).raw_description.pending_activities
    return any(each.activity_type.name == names.RECORD_ACTIVITY for each in pending)


async def _is_at_rest(handle: WorkflowHandle[Any, Any]) -> bool:
    raw = (await handle.describe()).raw_description
    return not raw.pending_activities and not raw.HasField("pending_workflow_task")


@contextmanager
def locked() -> Iterator[None]:
    """Lock the database, so that nobody can record anything."""
    file = os.environ["ABEYANCE_DATABASE_URL"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as held:
        held.execute("BEGIN IMMEDIATE")
        yield


async def test_a_run_that_is_ending_is_not_rewound_and_one_that_is_paused_is(
    temporal: TemporalClient,
) -> None:
    held = Held("deaf")
    graph = Graph("ending", state=State)
    graph.interrupt("go", prompt="Go?")
    graph.node(name="hold")(held._hold_deaf)
    graph.edge(START, "go")
    graph.edge("go", "hold")
    async with begun(temporal, graph) as (site, run):
        question = await site.answer(run.run_id, 1)
        await eventually(lambda: held.started)
        await run.pause()
        await site.until(run.run_id, "paused")
        await run.rewind(to=question.id)
        assert (await site.asked(run.run_id)).id == question.id

        await site.answer(run.run_id, 1)
        await eventually(lambda: held.started == 2)
        await run.cancel(grace=60)
        await site.until(run.run_id, "ending")
        ending = await refused(run.rewind(to=question.id))
        held.release.set()
        await site.ended(run.run_id)

        assert ending.code is Code.NOT_RUNNING


async def test_a_run_that_is_paused_through_temporal_is_not_rewound(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated()) as (site, run):
        question = await site.asked(run.run_id)
        about = {"namespace": temporal.namespace, "workflow_id": run.run_id}
        await temporal.workflow_service.pause_workflow_execution(
            PauseWorkflowExecutionRequest(**about)
        )

        refusal = await refused(run.rewind(to=question.id))

        assert refusal.code is Code.NATIVELY_PAUSED
        await temporal.workflow_service.unpause_workflow_execution(
            UnpauseWorkflowExecutionRequest(**about)
        )
        await site.answer(run.run_id, {"approved": True})
        await site.ended(run.run_id)


async def test_a_point_whose_history_is_deleted_is_gone(temporal: TemporalClient) -> None:
    payments = Payments(fails=1)
    async with begun(temporal, payments.graph(), {"amount": 3}) as (site, run):
        question = await site.answer(run.run_id, True)
        await site.ended(run.run_id)
        first = (await site.history(run.run_id)).run_id
        await run.retry()
        ended = await site.ended(run.run_id)
        await deleted(temporal, run.run_id, first)
        for dry_run in (True, False):
            gone = await refused(run.rewind(to=question.id, dry_run=dry_run))
            assert gone.code is Code.GONE
        assert await run.view() == ended
