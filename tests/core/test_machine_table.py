"""Every event in every status: it changes the run, or is absorbed, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, get_args

import pytest
from core_drive import ADA, Drive, asked, chain, gate, graph, restored, written

from abeyance.core import events, machine
from abeyance.core.json import Json
from abeyance.core.outcome import Blocked, Failed, Finished, Interrupted, Stopped, VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import START, GoTo
from abeyance.core.state import Status, copied

OUTSIDE = (Status.TERMINATED, Status.TIMED_OUT)
STATUSES = [each for each in Status if each not in OUTSIDE]
"""The statuses that the core sets."""
BOSS = Principal(subject="boss", capabilities=("runs:control", "approve"))
WORK = "graph:g;node:work"


def in_status(status: Status) -> Drive:
    """Return a run in a status; it had `first` answered, started `work`, asked `ask`, got a message."""
    return _in_status(status).copy()


@cache
def _in_status(status: Status) -> Drive:
    run = Drive(
        graph(
            gate("first"),
            "work",
            gate("ask", schema={}, capability="approve", timeout=3600),
            ways=[(START, "first"), ("first", "work"), ("first", "ask")],
        )
    )
    run.answer("first", "yes")
    run.send("known")
    run.wait(1)
    match status:
        case Status.RUNNING:
            pass
        case Status.AWAITING_INPUT:
            run.finish("work")
        case Status.PAUSED:
            run.pause()
        case Status.ENDING:
            run.cancel(actor="ada")
        case Status.COMPLETED:
            run.finish("work")
            run.answer("ask", "yes", principal=BOSS)
        case Status.FAILED:
            run.fail("work")
        case Status.CANCELLED:
            run.cancel(actor="ada", mode="now")
        case Status.HALTED:
            run.finish("work")
            run.tick(3600)
        case Status.TERMINATED | Status.TIMED_OUT:
            raise AssertionError("no event of a run leads there")
    assert run.state.status is status
    return run


@dataclass(frozen=True)
class Row:
    """An event and its cells, one for each of `STATUSES`.

    `+`: the run changes. `.`: it does not change. `~`: it is over and only notes the event. Anything else
    is the code of a refusal.
    """

    kind: type[events.Event]
    fields: Mapping[str, Any] | Callable[[Drive], Mapping[str, Any]]
    cells: str

    def event(self, run: Drive) -> events.Event:
        fields = self.fields(run) if callable(self.fields) else self.fields
        return self.kind(now=run.now, **fields)


def answers(name: str, value: Json, **fields: Any) -> Callable[[Drive], Mapping[str, Any]]:
    def response(run: Drive) -> Mapping[str, Any]:
        ids = {fact.data["name"]: fact.data["id"] for fact in run.facts("interrupt.opened")}
        id_ = ids.get(name, name)
        return {**run.response({id_: value}, principal=BOSS), **fields}

    return response


def shown_before(run: Drive) -> Mapping[str, Any]:
    response = answers("ask", 5)(run)
    return {**response, "digests": dict.fromkeys(response["answers"], "sha256:0")}


def message(id_: str, text: str, **fields: Any) -> Mapping[str, Any]:
    return {"message": events.Message(message_id=id_, text=text, sender="ada"), **fields}


def ended(visit: str, outcome: VisitOutcome) -> Mapping[str, Any]:
    return {"visit": visit, "outcome": outcome}


def edit(patch: Mapping[str, Json], **fields: Any) -> Mapping[str, Any]:
    return {"principal": BOSS, "patch": patch, "version": 1, **fields}


def always(cell: str) -> str:
    return f"{cell} " * 8


def while_open(cell: str, then: str) -> str:
    """Return one cell for a run that goes on, waits or is paused, and then the others."""
    return f"{cell} " * 3 + then


def edited(cell: str) -> str:
    """Return the cells of an edit of values: only while nothing runs, never after the end has begun."""
    return f"not_stopped {cell} not_stopped {OVER}"


def moved(seconds: float, **fields: Any) -> Callable[[Drive], Mapping[str, Any]]:
    def order(run: Drive) -> Mapping[str, Any]:
        (id_,) = answers("ask", None)(run)["answers"]
        deadline = run.now + timedelta(seconds=seconds)
        return {
            "principal": BOSS,
            "interrupt_id": id_,
            "moves": True,
            "deadline": deadline,
            **fields,
        }

    return order


def asked_about(**fields: Any) -> Callable[[Drive], Mapping[str, Any]]:
    def order(run: Drive) -> Mapping[str, Any]:
        (id_,) = answers("ask", None)(run)["answers"]
        return {"principal": BOSS, "interrupt_id": id_, **fields}

    return order


def migrated(principal: Principal) -> Callable[[Drive], Mapping[str, Any]]:
    def order(run: Drive) -> Mapping[str, Any]:
        spec = replace(run.state.spec, description="the next version")
        return {"principal": principal, "spec": spec}

    return order


OVER = "not_running " * 5
"""The cells from `ending` on of an event that changes only a run that has not begun to end."""
SETTLED = "withdrawn already_answered withdrawn withdrawn expired"
"""The cells from `ending` on of an answer, which say what became of the question."""
MOVED = "withdrawn already_answered withdrawn withdrawn withdrawn"
BY_ADA = {"actor": "ada"}
PASSIVE = {
    events.Ticked,
    events.TaskBegan,
    events.RotationDue,
    events.Restored,
    events.Evicted,
    events.SignalRefused,
    events.NotificationFailed,
    events.VisitBlocked,
    events.WorkerStarted,
}
"""Events that no person causes."""

# fmt: off
# statuses:                  run wait pause end | done fail cancelled halted
TABLE: dict[str, Row] = {
    "started":               Row(events.Started, {}, ". . . . . . . ."),
    "restored":              Row(events.Restored, {}, "+ + + + . . . ."),
    "ticked":                Row(events.Ticked, {}, ". . . . . . . ."),
    "a task began":          Row(events.TaskBegan, {}, "+ + + + . . . ."),
    "rotation is due":       Row(events.RotationDue, {"hard": False}, "+ + + + . . . ."),
    "rotation is overdue":   Row(events.RotationDue, {"hard": True}, "+ + + + . . . ."),
    "work finished":         Row(events.VisitEnded, ended(WORK, Finished()), "+ . + + . . . ."),
    "work stopped":          Row(events.VisitEnded, ended(WORK, Stopped()), "+ . + + . . . ."),
    "work failed":           Row(
        events.VisitEnded, ended(WORK, Failed(code="node_failed", message="it broke")),
        "+ . + + . . . .",
    ),
    "work asks people":      Row(
        events.VisitEnded, ended(WORK, Interrupted(interrupts=(asked("plan"),))), "+ . + + . . . .",
    ),
    "a gate asks people":    Row(
        events.VisitEnded, ended("graph:g;node:ask", Interrupted(interrupts=(asked("plan"),))),
        ". . . . . . . .",
    ),
    "a gate finished":       Row(
        events.VisitEnded, ended("graph:g;node:ask", Finished()), ". . . . . . . .",
    ),
    "work is blocked":       Row(
        events.VisitEnded, ended(WORK, Blocked(code="code_missing", message="deploy it")),
        "+ . + + . . . .",
    ),
    "work reports a block":  Row(
        events.VisitBlocked, {"visit": WORK, "code": "code_missing", "message": "deploy it"},
        "+ . + + . . . .",
    ),
    "a worker started":      Row(events.WorkerStarted, {}, ". . . . . . . ."),
    "nobody stopped":        Row(
        events.VisitEnded, ended("graph:g;node:no", Stopped()), ". . . . . . . .",
    ),
    "an answer":             Row(
        events.Responded, answers("ask", "yes"), "+ + + withdrawn . withdrawn withdrawn expired",
    ),
    "another answer":        Row(events.Responded, answers("ask", 5), while_open("+", SETTLED)),
    "a repeated answer":     Row(events.Responded, answers("first", "yes"), ". . . . . . . ."),
    "a changed answer":      Row(events.Responded, answers("first", "no"), always("already_answered")),
    "an ill-typed answer":   Row(
        events.Responded, answers("ask", 5, schema_faults={}), while_open("invalid_answer", SETTLED),
    ),
    "a stale answer":        Row(events.Responded, shown_before, while_open("stale", SETTLED)),
    "no JSON":               Row(
        events.Responded, answers("ask", float("inf")), always("invalid_answer"),
    ),
    "an answer to nothing":  Row(events.Responded, answers("r.0", 1), always("unknown_interrupt")),
    "paused":                Row(events.Paused, BY_ADA, "+ + + + . . . ."),
    "paused now":            Row(events.Paused, {**BY_ADA, "mode": "now"}, "+ + + + . . . ."),
    "paused for nowhere":    Row(
        events.Paused,
        {"actor": "boss", "capabilities": BOSS.capabilities, "on_timeout": GoTo(node="nowhere")},
        always("unknown_node"),
    ),
    "resumed":               Row(events.Resumed, BY_ADA, "+ + + + . . . ."),
    "cancelled":             Row(events.CancelRequested, BY_ADA, "+ + + + . . . ."),
    "cancelled now":         Row(events.CancelRequested, {**BY_ADA, "mode": "now"}, "+ + + + . . . ."),
    "evicted":               Row(events.Evicted, BY_ADA, "+ + + . . . . ."),
    "evicted though active": Row(
        events.Evicted, lambda run: {**BY_ADA, "inactive_since": run.now - timedelta(hours=9)},
        ". . . . . . . .",
    ),
    "evicted at a deadline": Row(
        events.Evicted, lambda run: {**BY_ADA, "inactive_since": run.now}, ". . . . . . . .",
    ),
    "a message":             Row(events.MessageSent, message("new", "hello"), while_open("+", OVER)),
    "a signalled message":   Row(
        events.MessageSent, message("new", "hello", signalled=True), "+ + + + ~ ~ ~ ~",
    ),
    "a repeated message":    Row(events.MessageSent, message("known", "hello"), ". . . . . . . ."),
    "a conflicting message": Row(
        events.MessageSent, message("known", "other"), always("message_conflict"),
    ),
    "a signalled conflict":  Row(
        events.MessageSent, message("known", "other", signalled=True), "+ + + + ~ ~ ~ ~",
    ),
    "work takes messages":   Row(events.MessagesTaken, {"visit": WORK, "upto": 5}, "+ . + . . . . ."),
    "work takes none":       Row(events.MessagesTaken, {"visit": WORK, "upto": 0}, ". . . . . . . ."),
    "messages are cleared":  Row(events.MessagesCleared, BY_ADA, "+ + + . . . . ."),
    "a signal was refused":  Row(
        events.SignalRefused, {"signal": "pause", "code": "invalid_body", "reason": "why"},
        "+ + + + . . . .",
    ),
    "a notice was not sent": Row(
        events.NotificationFailed,
        {"about": "run.paused", "receiver": "mail to ada", "reason": "why", "attempts": 1},
        "+ + + + . . . .",
    ),
    "it is claimed":         Row(events.Claimed, asked_about(seconds=60), while_open("+", OVER)),
    "anybody claims it":     Row(
        events.Claimed, asked_about(seconds=60, principal=ADA), while_open("capability_required", OVER),
    ),
    "a claim is released":   Row(events.Released, asked_about(), while_open(".", OVER)),
    "it is reassigned":      Row(events.Reassigned, asked_about(to=("ada",)), while_open("+", OVER)),
    "values are edited":     Row(events.ValuesEdited, edit({"x": 2}), edited("+")),
    "old values are edited": Row(events.ValuesEdited, edit({"x": 2}, version=9), edited("stale")),
    "no field is edited":    Row(events.ValuesEdited, edit({"y": 2}), edited("invalid_input")),
    "an edit is not JSON":    Row(
        events.ValuesEdited, edit({"x": float("inf")}), edited("invalid_input"),
    ),
    "it is migrated":        Row(
        events.Migrated, migrated(BOSS), f"cannot_migrate + cannot_migrate {OVER}",
    ),
    "anybody migrates it":   Row(
        events.Migrated, migrated(ADA), while_open("capability_required", OVER),
    ),
    "to where it has no place": Row(
        events.Migrated, {"principal": BOSS, "spec": chain("work")}, while_open("cannot_migrate", OVER),
    ),
    "to its own graph":      Row(
        events.Migrated, lambda run: {"principal": BOSS, "spec": run.state.spec},
        f"cannot_migrate . cannot_migrate {OVER}",
    ),
    "an answer is taken back": Row(
        events.TakenBack, lambda run: {"principal": BOSS, "interrupt_id": run.open("ask").id}
        if run.state.ledger.open else {"principal": BOSS, "interrupt_id": "r.0"},
        while_open("not_held", OVER),
    ),
    "a deadline comes near": Row(events.DeadlineEdited, moved(60), while_open("+", MOVED)),
    "it comes too near":     Row(events.DeadlineEdited, moved(0), while_open("invalid_body", MOVED)),
    "anybody moves it":      Row(
        events.DeadlineEdited, moved(60, principal=ADA), while_open("capability_required", MOVED),
    ),
}
# fmt: on


def cells() -> list[Any]:
    return [
        pytest.param(row, status, cell, id=f"{status}: {name}")
        for name, row in TABLE.items()
        for status, cell in zip(STATUSES, row.cells.split(), strict=True)
    ]


def test_the_table_knows_every_event() -> None:
    assert {row.kind for row in TABLE.values()} == set(get_args(events.Event))


@pytest.mark.parametrize(("row", "status", "cell"), cells())
def test_an_event_changes_the_run_or_is_absorbed_or_is_refused(
    row: Row, status: Status, cell: str
) -> None:
    run = in_status(status)
    run.wait(1)
    before = copied(run.state)
    as_json = written(before)
    event = row.event(run)
    after = run.state

    if cell in {"+", ".", "~"}:
        machine.check(after, event)
        assert written(after) == as_json
        effects = machine.advance(after, event)
        # Neither the time of the update nor what only a retry reads says what an event did to the run.
        ending = before.ending if before.finished else after.ending
        shown = replace(after, updated_at=before.updated_at, ending=ending)
        assert (shown == before) == (cell == ".")
        assert not (cell == "." and effects)
        again = restored(before)
        assert (effects, after) == (machine.advance(again, event), again)
        is_activity = row.kind not in PASSIVE and after.mailbox.rejected == before.mailbox.rejected
        assert (after.last_activity_at == run.now) == (cell == "+" and is_activity)
    else:
        assert run.refused(row.kind, **_fields(event)).code == cell
        assert written(after) == as_json


def _fields(event: events.Event) -> dict[str, Any]:
    return {
        name: getattr(event, name) for name in type(event).__dataclass_fields__ if name != "now"
    }
