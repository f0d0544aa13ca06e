"""What is true of every run that has ended, whatever was done to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from temporal_site import Site, replay
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import WorkflowExecutionDescription, WorkflowHistory

from abeyance import names, views
from abeyance.core.json import sha256
from abeyance.temporal.workarounds.in_order_runner import UNWRITTEN

if TYPE_CHECKING:
    from any_order import Program

_HARMLESS: Final = frozenset(
    {
        # The run would have ended, and something came in that moment: it looks at that first.
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
        # An operator paused the run in Temporal itself, before a worker had the task.
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_PAUSE_REQUESTED_BEFORE_TASK_STARTED,
    }
)
_SETTLED: Final = {
    "interrupt.answered": ("answered",),
    "interrupt.expired": ("expired",),
    "interrupt.cancelled": ("cancelled", "superseded"),
}


async def histories(site: Site, run_id: str) -> list[WorkflowHistory]:
    """All histories of a run, the oldest first."""
    found: list[WorkflowHistory] = []
    handle = site.temporal.get_workflow_handle(run_id)
    while True:
        history = await handle.fetch_history()
        found.insert(0, history)
        began = history.events[0].workflow_execution_started_event_attributes
        if not began.continued_execution_run_id:
            return found
        handle = site.temporal.get_workflow_handle(run_id, run_id=began.continued_execution_run_id)


async def kept(program: Program, view: views.RunView) -> None:
    """Hold an ended run against everything that is promised of runs."""
    site, run_id = program.site, program.run_id
    every = await histories(site, run_id)
    for history in every:
        no_task_failed(history)
    for history in every:
        # What has been handed over is never read again by a worker, and an update that was accepted in
        # its last task may have left no trace in it: its caller was told to repeat it (tried).
        if (
            history.events[-1].event_type
            != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
        ):
            await replay(history)
    events, cursor = await site.client.feed.page(run_id, None, 1_000_000)
    assert cursor is None, "the feed of an ended run has an end"
    assert all(a.id < b.id for a, b in pairwise(events))
    messages_are_delivered_or_reported(program, view, events)
    answers_had_one_effect(program, events, await site.client.run(run_id).interrupts(status="all"))
    controls_alternate(events)
    visits_end(events)
    described = await site.temporal.get_workflow_handle(run_id).describe()
    statuses_agree(view, events, described)


def no_task_failed(history: WorkflowHistory) -> None:
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            # Such a task is done once more, from the history (ADR 13).
            is_done_again = failed.failure.message == UNWRITTEN
            assert is_done_again or failed.cause in _HARMLESS, f"a workflow task failed: {failed}"


def messages_are_delivered_or_reported(
    program: Program, view: views.RunView, events: list[views.Event]
) -> None:
    fates: dict[str, Counter[str]] = defaultdict(Counter)
    addresses: dict[str, list[str | None]] = defaultdict(list)
    for event in events:
        id_ = str(event.data.get("message_id"))
        match event.type:
            case "message.queued" | "message.delivered" | "message.returned":
                fates[id_][event.type.partition(".")[2]] += 1
                if event.type == "message.delivered":
                    addresses[id_].append(event.address)
            case "message.undelivered":
                fates[id_]["undelivered"] += 1
            case _:
                pass
    for id_, fate in fates.items():
        assert fate["queued"] == 1, f"{id_!r} came in {fate['queued']} times: {fate}"
        ends = fate["delivered"] - fate["returned"] + fate["undelivered"]
        assert ends == 1, f"{id_!r} has {ends} ends: {fate}"
    assert program.admitted <= fates.keys(), "a receipt was given, and nothing was told"
    assert fates.keys() <= program.sent, "a message that nobody sent"
    undelivered = [each.message_id for each in view.undelivered]
    assert Counter(undelivered) == Counter({id_: 1 for id_, f in fates.items() if f["undelivered"]})
    assert view.queue_depth == 0
    assert view.metrics is not None
    assert view.metrics.messages_queued == len(fates)
    net = sum(f["delivered"] - f["returned"] for f in fates.values())
    assert view.metrics.messages_delivered == net
    assert not program.witness.repeated, f"a model was told twice: {program.witness.repeated}"
    for id_, heard in program.witness.heard.items():
        assert fates[id_]["delivered"], f"{id_!r} was heard and not delivered"
        most = 1 + fates[id_]["returned"]
        assert len(heard) <= most, f"{id_!r} was heard at {heard}: {fates[id_]}"
    if view.status == "completed" and view.rejected is not None:
        for id_, where in addresses.items():
            if fates[id_]["delivered"] > fates[id_]["returned"]:
                ok = program.witness.heard.get(id_) or program.taken_by_hand
                assert ok, f"{id_!r} was delivered to {where}, whose code never had it"


def answers_had_one_effect(
    program: Program, events: list[views.Event], interrupts: list[views.InterruptView]
) -> None:
    opened = Counter(e.data["id"] for e in events if e.type == "interrupt.opened")
    assert all(count == 1 for count in opened.values()), f"opened twice: {opened}"
    ends: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.type in _SETTLED:
            ends[event.data["id"]].append(event.type)
    assert ends.keys() == opened.keys(), "every question is settled, and none that was not asked"
    assert all(len(types) == 1 for types in ends.values()), f"settled twice: {ends}"
    known = {entry.id: entry for entry in interrupts}
    assert known.keys() == opened.keys()
    for id_, (type_,) in ends.items():
        assert known[id_].status in _SETTLED[type_]
    for id_, answer in program.accepted.items():
        entry = known[id_]
        assert entry.status == "answered", f"{id_} was accepted, and is {entry.status}"
        assert entry.answer_sha256 == sha256(answer), f"{id_}: not the answer that was accepted"
    for key, count in program.witness.paid.items():
        assert count == 1, f"an approved call was made {count} times: {key}"


def controls_alternate(events: list[views.Event]) -> None:
    is_paused = False
    for event in events:
        if event.type in ("run.paused", "run.resumed"):
            assert is_paused == (event.type == "run.resumed"), f"{event} while paused={is_paused}"
            is_paused = not is_paused


def visits_end(events: list[views.Event]) -> None:
    """What ends has begun. It may begin again before: what asks ends by its questions alone."""
    open_: set[str | None] = set()
    for event in events:
        kind, _, what = event.type.partition(".")
        if kind in ("node", "tool") and what == "started":
            open_.add(event.address)
        elif kind in ("node", "tool"):
            assert event.address in open_, f"{event.type} of {event.address}, which does not run"
            open_.discard(event.address)


def statuses_agree(
    view: views.RunView,
    events: list[views.Event],
    described: WorkflowExecutionDescription,
) -> None:
    assert events[0].type == "run.started"
    last = [event.type for event in events if event.type in views.TERMINAL_EVENTS]
    assert last == [events[-1].type] == [f"run.{view.status}"], f"{last}, {view.status}"
    assert described.search_attributes[names.STATUS] == [view.status]
    assert view.interrupts == []
    assert view.running == []


def temporal_knows(
    view: views.RunView, attributes: Mapping[str, Any], memo: Mapping[str, Any]
) -> None:
    """What Temporal can tell of a run by itself is what the run says, if it is at rest."""
    unread = memo.get(names.MEMO_UNREAD, 0)
    assert unread == view.queue_depth, f"the memo says {unread}, the run {view.queue_depth}"
    assert attributes[names.STATUS] == [view.status]
