"""Faults that are put into the product: the simulation must find each of them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from unittest import mock

from sqlalchemy import ColumnElement, text

from abeyance import reindex, wire
from abeyance.activities import attempt, heartbeat
from abeyance.core import approvals as core_approvals
from abeyance.core import events, gates, idempotency, ledger, migration
from abeyance.core.approvals import Grant
from abeyance.core.outcome import Finished, Stopped
from abeyance.core.policy import Principal
from abeyance.core.state import RunState, parted
from abeyance.core.visit import Visit
from abeyance.records import event_rows, grants, question_rows, tables, writing
from abeyance.records.batch import Written
from abeyance.temporal.workarounds import payloads
from abeyance.workflows import continue_as_new, run, visibility
from abeyance.workflows.recording import Recorder, Spawn
from tests.simulation.schedule import Kind

_swap = mock.patch.object


def _carrying(change: Callable[[RunState], RunState]) -> AbstractContextManager[Any]:
    return _swap(continue_as_new, "parted", side_effect=lambda state: parted(change(state)))


def _without_a_message(state: RunState) -> RunState:
    return replace(state, mailbox=state.mailbox.without(state.mailbox.queue[:1]))


def _every_third_answer_is_lost() -> AbstractContextManager[Any]:
    feed, counted = run.AgentRun._feed, itertools.count(1)

    def forgetful(self: run.AgentRun, event: events.Event, **about: bool) -> None:
        if not isinstance(event, events.Responded) or next(counted) % 3:
            feed(self, event, **about)

    return _swap(run.AgentRun, "_feed", forgetful)


def _steps_are_not_written() -> AbstractContextManager[Any]:
    async def forgetful(self: heartbeat.Heartbeater, journal: wire.Journal) -> bool:
        self.journal = journal
        return False

    return _swap(heartbeat.Heartbeater, "write", forgetful)


def _a_second_attempt_returns_nothing() -> AbstractContextManager[Any]:
    run = attempt.Attempt.run

    async def forgetful(self: attempt.Attempt) -> Any:
        outcome = await run(self)
        is_first = self._info.attempt == 1
        return outcome if is_first or not isinstance(outcome, Finished) else Finished()

    return _swap(attempt.Attempt, "run", forgetful)


def _a_migration_forgets_answers() -> AbstractContextManager[Any]:
    move = migration._Move._visit

    def forgetful(self: migration._Move, visit: Visit) -> Visit:
        moved = move(self, visit)
        return replace(moved, questions=replace(moved.questions, answers={}))

    return _swap(migration._Move, "_visit", forgetful)


def _keys_are_those_of_names() -> AbstractContextManager[Any]:
    move = migration._Move._visit

    def forgetful(self: migration._Move, visit: Visit) -> Visit:
        return replace(move(self, visit), first_address=None)

    return _swap(migration._Move, "_visit", forgetful)


def _every_fifth_batch_is_lost() -> AbstractContextManager[Any]:
    write, counted = writing._write, itertools.count(1)

    def forgetful(*given: Any) -> Written:
        return Written(status="written") if next(counted) % 5 == 0 else write(*given)

    return _swap(writing, "_write", forgetful)


def _no_batch_is_later() -> AbstractContextManager[Any]:
    found = writing._run

    def forgetful(*given: Any) -> writing._Run | None:
        run = found(*given)
        return None if run is None else replace(run, latest=0)

    return _swap(writing, "_run", forgetful)


def _no_era_is_shown() -> AbstractContextManager[Any]:
    digest_of = ledger.digest_of
    return _swap(ledger, "digest_of", lambda address, question, _="": digest_of(address, question))


async def _at_once(_: Recorder) -> None:
    """Wait for nothing."""


def _counting_anew() -> AbstractContextManager[Any]:
    begin = Recorder.__init__

    def forgetful(self: Recorder, spawn: Spawn, start: wire.StartRun, *more: Any) -> None:
        begin(self, spawn, start.model_copy(update={"facts": 0}), *more)

    return _swap(Recorder, "__init__", forgetful)


@contextlib.contextmanager
def _whoever_may_approve_may_grant() -> Iterator[None]:
    with (
        _swap(core_approvals, "refuse_unless_rememberable"),
        _swap(core_approvals, "refuse_too_wide"),
    ):
        yield


def _whether_revoked_or_not(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (tables.grants.c.until > tables.micros(now),)


def _counted(_: RunState) -> str:
    return f"{next(_COUNT)}"


def _sometimes(_: object, __: int = 0, **___: int) -> str | None:
    return "soft" if next(_COUNT) % 5 == 0 else None


_COUNT = itertools.count()
_NO_EVENT: Final = text("SELECT :key WHERE :kept > :by")
_NO_QUESTION: Final = text("SELECT :run WHERE :after > :number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault in the product, and a seed whose schedule shows it. `is_compared`: only the comparison
    with an undisturbed run shows the fault. Only runs of its `kind` show it.
    """

    change: Callable[[], AbstractContextManager[Any]]
    seed: int
    is_compared: bool = False
    kind: Kind = "any"


FAULTS: Final[Mapping[str, Fault]] = {
    "a continue-as-new forgets a message in the queue": Fault(
        change=lambda: _carrying(_without_a_message), seed=2
    ),
    "a continue-as-new forgets the keys of calls": Fault(
        change=lambda: _carrying(lambda state: replace(state, keys={})), seed=2
    ),
    "a call that is repeated with its key counts again": Fault(
        change=lambda: _swap(idempotency, "earlier", return_value=None), seed=59
    ),
    "anybody may answer any question": Fault(
        change=lambda: _swap(Principal, "may", return_value=True), seed=25
    ),
    "every third answer gets a receipt, and is lost": Fault(
        change=_every_third_answer_is_lost, seed=2
    ),
    "a finished step is not written before the next begins": Fault(
        change=_steps_are_not_written, seed=145
    ),
    "a visit that is stopped forgets its steps": Fault(
        change=lambda: _swap(attempt.Attempt, "_stopped", return_value=Stopped()), seed=370
    ),
    "an attempt forgets the steps of the one before, whose worker died": Fault(
        change=lambda: _swap(wire.Journal, "is_of", return_value=False), seed=110
    ),
    "what an attempt returns is lost, if the worker of the one before died": Fault(
        change=_a_second_attempt_returns_nothing, seed=414, is_compared=True
    ),
    "a replay wants another timer": Fault(
        change=lambda: _swap(visibility, "timer_summary", _counted), seed=2
    ),
    "a replay continues as new at another time": Fault(
        change=lambda: _swap(continue_as_new.History, "due", _sometimes), seed=12
    ),
    "a gate is not asked again where its values have changed": Fault(
        change=lambda: _swap(gates, "first_changed", return_value=None), seed=249
    ),
    "what Temporal writes in clear text ends a run that requires encryption": Fault(
        change=lambda: _swap(payloads, "_details_of", return_value=()), seed=149
    ),
    "a grant that was revoked lets calls run": Fault(
        change=lambda: _swap(grants, "_counts", _whether_revoked_or_not), seed=3, kind="grants"
    ),
    "a grant has no end of uses": Fault(
        change=lambda: _swap(grants, "_uses", return_value=[]), seed=30, kind="grants"
    ),
    "a grant covers every call of its tool": Fault(
        change=lambda: _swap(Grant, "covers", return_value=True), seed=1, kind="grants"
    ),
    "a grant may be wider than who makes it": Fault(
        change=_whoever_may_approve_may_grant, seed=11, kind="grants"
    ),
    "a batch is lost, and said to be written": Fault(change=_every_fifth_batch_is_lost, seed=1),
    "a batch that comes late is written over a later one": Fault(change=_no_batch_is_later, seed=1),
    "events of a workflow task that came to nothing stay": Fault(
        change=lambda: _swap(event_rows, "take_back", lambda _, tail, *__: tail), seed=39
    ),
    "questions of a workflow task that came to nothing stay": Fault(
        change=lambda: _swap(question_rows, "_UNKNOWN", _NO_QUESTION), seed=5
    ),
    "an answer gets its receipt before it can be read": Fault(
        change=lambda: _swap(Recorder, "caught_up", _at_once), seed=36
    ),
    "a continue-as-new forgets how many events there were": Fault(change=_counting_anew, seed=2),
    "an answer to what people saw before a rewind counts": Fault(change=_no_era_is_shown, seed=25),
    "what a rewind has discarded stays": Fault(
        change=lambda: _swap(writing, "_DISCARD_EVENTS", _NO_EVENT), seed=25
    ),
    "a visit has another idempotency key once it is migrated": Fault(
        change=_keys_are_those_of_names, seed=0, kind="migrations"
    ),
    "a migration forgets what was answered": Fault(
        change=_a_migration_forgets_answers, seed=134, kind="migrations"
    ),
    "a reindex numbers events before it knows the number of a rewind": Fault(
        change=lambda: _swap(reindex, "_with_numbers", list), seed=410127, kind="grants"
    ),
    "no event tells that code begins": Fault(
        change=lambda: _swap(Recorder, "started", return_value=None), seed=0
    ),
}
"""The faults by their descriptions."""
