"""Recording: a run hands its changes over to the database that people read.

One local activity at a time writes the changes since the last one as a batch. It waits for the database
only a moment, because it holds up the workflow task that it runs in. A batch that is not written by then
is retried by an ordinary activity, for as long as it takes.

A batch costs an event of the history, so the begin of a run and the work of code alone do not cause one.
The run only tells them as they happen: nobody waits for such news, it may be lost, and the next batch has
it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from abeyance import names, projections, views, wire
    from abeyance.core import items
    from abeyance.core.effects import Publish
    from abeyance.core.ledger import Interrupt
    from abeyance.core.state import RunState, Status
    from abeyance.records import steps
    from abeyance.records.batch import (
        BEGINNING,
        Batch,
        Extras,
        Fact,
        Rewound,
        Written,
        known_before,
        next_number,
    )
    from abeyance.records.steps import Step
    from abeyance.snapshot import Snapshot
    from abeyance.workflows.activity_calls import LocalFailed, local_result
    from abeyance.workflows.worker_functions import HAND_OVER, TELL

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

_A_MOMENT: Final = 0.1
"""The seconds for which a workflow task waits for the database."""
_BOUNDED: Final = 2.0
"""The seconds for which the sender of an answer waits for the database; then it counts as away."""
_UNBOUNDED: Final = 60.0
_MOST_BYTES: Final = 1_000_000
_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 300.0
_SLACK: Final = timedelta(seconds=10)
_ONCE: Final = RetryPolicy(maximum_attempts=1)
_FOREVER: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10)
)
_MOST_FACTS: Final = 100


class Recorder:
    """Records the changes of one run. `spawn` runs a task of the run.

    `start` says how far earlier executions have recorded. `facts` counts the events of the run.
    """

    def __init__(self, spawn: Spawn, start: wire.StartRun) -> None:
        self.facts = start.facts
        self._spawn = spawn
        self._under_way: list[Fact] = []
        self._pending = [*map(Fact.model_validate, start.unrecorded)]
        self._is_quiet = not self._pending
        self._standing: tuple[Status, int, int] | None = None
        self._questions: dict[str, Interrupt] = {}
        self._settled: dict[str, Interrupt] = {}
        self._after = start.batch or BEGINNING
        self._number = max(self._after, start.told)
        self._told = self.facts
        self._untold: tuple[RunState, wire.StartRun] | None = None
        # The ids of questions that the next batch includes, even if they have not changed.
        self._again: Sequence[str] = ()
        # Until this rewind is recorded, events are numbered as if nothing had been discarded.
        self._rewound = start.rewound and Rewound.model_validate(start.rewound)
        # The rewind in the batch under way, which may be recorded or not.
        self._sent_with: Rewound | None = None
        self._asked = 0
        self._recorded = 0
        self._is_behind = False
        self._latest: tuple[RunState, wire.StartRun] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being recorded, or the database is away."""
        return self._task is None or self._is_behind

    def is_quiet(self, state: RunState) -> bool:
        """Whether since the last batch only code has begun and ended, and not too often.

        Such news is told, and can wait for the next batch, which costs an event of the history.
        """
        # Neither a repeated pause nor a cancel that lets code finish has an event.
        is_known = self._is_quiet and _standing(state) == self._standing
        return is_known and len(self._pending) < _MOST_FACTS

    def carried(self, start: wire.StartRun) -> wire.StartRun:
        """Return the start of the next execution, with the number of the last recorded batch, and the
        unrecorded events.
        """
        left = [each.model_dump(mode="json") for each in (*self._under_way, *self._pending)]
        rewound = self._rewind_left
        changes = {
            "facts": self.facts,
            "batch": self._after,
            "told": self._number if self._number > self._after else 0,
            "unrecorded": left,
            "rewound": rewound and rewound.model_dump(mode="json"),
        }
        return start.model_copy(update=changes)

    @property
    def _rewind_left(self) -> Rewound | None:
        """The rewind, unless it is known to be recorded."""
        rewound = self._rewound
        if rewound is not None and self._sent_with is not None:
            # The sent batch is handed over again.
            return rewound.model_copy(update={"at": self._sent_with.at})
        return rewound

    def rewound(self, salt: str, count: int) -> None:
        """Note a rewind, which discards all recorded events that this run does not know."""
        execution = workflow.info().run_id
        before, at = self._rewound, self.facts
        if before is not None and self._sent_with is None:
            # No batch was sent since the rewind before, so that one need not be recorded.
            at = before.at
        self._rewound = Rewound(at=at, salt=salt, execution=execution, count=count)
        self._is_quiet = False
        # Hand all questions over again: the discarded batches may have written later versions of them.
        self._questions, self._settled = {}, {}

    def began(self, start: wire.StartRun, graph: str, now: datetime) -> None:
        """Note that the run began. The client that starts a run records that, too."""
        self._standing = (Status.RUNNING, 0, 0)
        self._note(steps.began(start, graph), now)

    def published(self, fact: Publish, state: RunState) -> None:
        """Note an event that the core publishes."""
        self._is_quiet = False
        entry = _entry(state, str(fact.data.get("id")))
        step = Step(
            type=fact.type,
            address=fact.address,
            actor=fact.actor,
            data=dict(fact.data),
            capability=None if entry is None else entry.requested_capability,
            audit=None if fact.audit is None else dict(fact.audit),
        )
        self._note(step, fact.time)

    def started(self, address: str, now: datetime) -> None:
        """Note that the code of a visit begins."""
        self._note(steps.started(address), now)

    def reported(self, address: str, report: wire.VisitReport, now: datetime) -> None:
        """Note the outcome of a visit's code."""
        for step in steps.reported(address, report.outcome):
            self._note(step, now)

    def ended(self, state: RunState) -> None:
        """Note the end of the run."""
        if state.ending is not None:
            self._note(steps.ended(state.ending), state.updated_at)

    def _note(self, step: Step, time: datetime) -> None:
        """Number an event, to be recorded with the next batch."""
        self.facts += 1
        self._pending.append(
            Fact(
                number=self.facts,
                time=time,
                type=step.type,
                address=step.address,
                actor=step.actor,
                data=step.data,
                capability=step.capability,
                audit=step.audit,
                task=_workflow_task(),
            )
        )

    def changed(self, state: RunState, start: wire.StartRun, *, at: int) -> None:
        """Record the run as it is now, or as soon as the batch under way is written.

        `at` counts the changes of the run.
        """
        if at == self._asked:
            return
        self._asked, self._latest = at, (state, start)
        if self._task is None:
            self._task = self._spawn(self._record())

    def tell(self, state: RunState, start: wire.StartRun) -> None:
        """Tell the news of code since the last batch, unless it was told or a batch is under way."""
        if self._task is not None or self._rewound is not None:
            self._untold = (state, start)
            return
        self._untold = None
        if self._told == self.facts:
            return
        self._told = self.facts
        number = self._next_number()
        tell = workflow.extern_functions().get(TELL)
        if tell is not None:
            tell(self._batch(state, start, number, self._pending))

    async def take_back(self, known: Callable[[], tuple[RunState, wire.StartRun]]) -> None:
        """Once a replay is over, have the records made equal to what the run knows.

        The last task may be lost after its batch was written, and the caller of an update in it may never
        repeat the call. So the run tells a batch of all questions, which changes nothing if the records
        are right.
        """
        if not workflow.unsafe.is_replaying():
            return
        await workflow.wait_condition(lambda: not workflow.unsafe.is_replaying())
        # A later replay skips this, so use a number below the next one, and leave the counter alone.
        number = int(workflow.now().timestamp() * 1_000_000) - 1
        tell = workflow.extern_functions().get(TELL)
        is_due = self._task is None and self._rewound is None and number > self._number
        state, start = known()
        # A finished run has no event of its end yet, and is about to record it.
        if tell is None or not is_due or state.finished:
            return
        told = {"is_whole": True, "questions": _all_questions(state)}
        tell(self._batch(state, start, number, self._pending).model_copy(update=told))

    def left(self, state: RunState, start: wire.StartRun) -> Batch | None:
        """Return the unrecorded batch of a run that ends while the database is away, for the process that
        finds its end; None if all is recorded. In a replay for `reindex`, tell it.
        """
        if not self._is_behind:
            return None
        questions = _all_questions(state)
        known = {question.id for question in questions}
        facts = [*self._under_way, *self._pending]
        left = self._batch(state, start, self._next_number(), facts).model_copy(
            update={
                "questions": questions,
                "gone": [id_ for id_ in self._again if id_ not in known],
                "rewound": self._rewind_left,
            }
        )
        # If the run was rewound, the writer of the batch first asks Temporal by whom.
        tell = workflow.extern_functions().get(TELL)
        if tell is not None and workflow.unsafe.is_replaying():
            tell(left)
        return left

    async def caught_up(self) -> None:
        """Wait until all changes so far are recorded, or the database is known to be away."""
        asked = self._asked
        await workflow.wait_condition(lambda: self._recorded >= asked or self._is_behind)

    async def _record(self) -> None:
        while self._latest is not None:
            (state, start), self._latest = self._latest, None
            asked = self._asked
            written = await self._written(self._next(state, start))
            if written.shift and self._sent_with is not None:
                self._shift(written.shift, self._sent_with)
            self._sent_with = None
            self._again = written.strays
            self._under_way, self._recorded = [], asked
            self._after = self._number
            if self._again and self._latest is None:
                self._latest = (state, start)
        self._task = None
        if self._untold is not None:
            self.tell(*self._untold)

    def _shift(self, by: int, recorded: Rewound) -> None:
        """Renumber the events after a rewind that was recorded."""
        self.facts += by
        self._pending = [
            each.model_copy(update={"number": each.number + by})
            if each.number > recorded.at
            else each
            for each in self._pending
        ]
        later = self._rewound
        if later is not None:
            is_same = later.salt == recorded.salt
            self._rewound = None if is_same else later.model_copy(update={"at": later.at + by})

    async def _written(self, batch: Batch) -> Written:
        """Have a batch written, and return its outcome."""
        self._sent_with = batch.rewound
        written = await _local(batch)
        if written.status == "outrun":
            # Later events are not in the history yet, and may never be.
            written = Written(status="late")
        if written.status != "written":
            written = await self._sent(batch, _BOUNDED)
        if written.status != "written":
            self._is_behind = True
            written = await self._sent(batch, _UNBOUNDED)
            self._is_behind = False
        return written

    async def _sent(self, batch: Batch, patience: float) -> Written:
        # Temporal would refuse the whole workflow task for an argument that is much larger.
        is_small = len(batch.model_dump_json()) <= _MOST_BYTES
        send = _activity if is_small else _locally
        while (written := await send(batch, patience)).status == "outrun":
            self._number = written.latest + 1
            later = self._rewound
            if later is not None and batch.rewound is not None:
                # The rewind before may be recorded or not, so this one discards from the same event on.
                later = later.model_copy(update={"at": batch.rewound.at})
            self._sent_with = later
            batch = batch.model_copy(update={"number": self._number, "rewound": later})
        return written

    def _next_number(self) -> int:
        # Larger than the number of every earlier batch, in every execution and however replays merge.
        moment = int(workflow.now().timestamp() * 1_000_000)
        self._number = next_number(self._number, moment)
        return self._number

    def _next(self, state: RunState, start: wire.StartRun) -> Batch:
        """Return the batch of all changes that are not recorded yet."""
        number = self._next_number()
        facts = self._under_way = self._pending
        self._pending = []
        self._told = self.facts
        self._is_quiet, self._standing = True, _standing(state)
        entries = {entry.id: entry for entry in self._changed(state)}
        for id_ in self._again:
            if (entry := _entry(state, id_)) is not None:
                entries[id_] = entry
        return self._batch(state, start, number, facts).model_copy(
            update={
                "questions": [projections.question(state, entry) for entry in entries.values()],
                "gone": [id_ for id_ in self._again if id_ not in entries],
                "rewound": self._rewound,
            }
        )

    def _batch(
        self, state: RunState, start: wire.StartRun, number: int, facts: Sequence[Fact]
    ) -> Batch:
        return Batch(
            number=number,
            after=self._after,
            origin=start.origin or workflow.info().first_execution_run_id,
            view=projections.bare_view(state, start),
            extras=extras(state, start),
            active_at=state.last_activity_at,
            claim=start.claim if state.finished else None,
            facts_before=known_before(self.facts, facts),
            facts=[*facts],
        )

    def _changed(self, state: RunState) -> Iterator[Interrupt]:
        """Yield the questions that changed since the last batch: the ledger replaces a changed entry."""
        known, ledger = self._questions, state.ledger
        self._questions = dict(ledger.open)
        yield from (entry for id_, entry in ledger.open.items() if known.get(id_) is not entry)
        known, self._settled = self._settled, dict(ledger.settled)
        yield from (entry for id_, entry in ledger.settled.items() if known.get(id_) is not entry)


def extras(state: RunState, start: wire.StartRun) -> Extras:
    """Return the parts of a run that people read beside its view."""
    # A completed run cannot be retried.
    has_snapshot = state.finished and state.status is not Status.COMPLETED
    snapshot = Snapshot.of(state, start).model_dump(mode="json") if has_snapshot else None
    return Extras(
        keys=dict(state.keys) if state.finished else {},
        messages=[views.MessageView.of(message) for message in state.mailbox.queue],
        transcripts=items.transcripts(state),
        results=items.call_results(state),
        snapshot=snapshot,
    )


def _standing(state: RunState) -> tuple[Status, int, int]:
    """Return the status of a run, and how often people have paused and resumed it. The batch of the end
    has the count of repeated cancels.
    """
    return state.status, state.counters.pause_count, state.counters.resume_count


def _workflow_task() -> str:
    """Return the name of the workflow task under way: its execution and the history's length now."""
    info = workflow.info()
    return f"{info.run_id}/{info.get_current_history_length()}"


def _all_questions(state: RunState) -> list[views.InterruptView]:
    entries = (*state.ledger.open.values(), *state.ledger.settled.values())
    return [projections.question(state, entry) for entry in entries]


def _entry(state: RunState, id_: str) -> Interrupt | None:
    return state.ledger.open.get(id_) or state.ledger.settled.get(id_)


def unless_replaying(tell: Callable[[Batch], None]) -> Callable[[Batch], None]:
    """Return a `tell` that ignores old news: a replay has told it before."""

    def told(batch: Batch) -> None:
        if not workflow.unsafe.is_replaying():
            tell(batch)

    return told


async def _local(batch: Batch, patience: float = _A_MOMENT) -> Written:
    given: Batch | int = batch
    if (hand_over := workflow.extern_functions().get(HAND_OVER)) is not None:
        hand_over(workflow.info().run_id, batch)
        given = batch.number
    try:
        written: Written = await local_result(
            workflow.start_local_activity(
                names.RECORD_ACTIVITY,
                args=[given, patience],
                result_type=Written,
                start_to_close_timeout=_SLACK,
                retry_policy=_ONCE,
            )
        )
    except LocalFailed:
        return Written(status="late")
    return written


async def _locally(batch: Batch, patience: float) -> Written:
    """Have a batch that is too large for an argument written by local activities, until one succeeds."""
    pause = _PAUSE
    while (written := await _local(batch, _BOUNDED)).status in ("late", "away"):
        if patience == _BOUNDED:
            break
        await workflow.sleep(pause, summary="record")
        pause = min(2 * pause, _LONGEST_PAUSE)
    return written


async def _activity(batch: Batch, patience: float) -> Written:
    is_bounded = patience == _BOUNDED
    try:
        written: Written = await workflow.execute_activity(
            names.RECORD_ACTIVITY,
            args=[batch, patience],
            result_type=Written,
            start_to_close_timeout=timedelta(seconds=patience) + _SLACK,
            retry_policy=_ONCE if is_bounded else _FOREVER,
        )
    except ActivityError:
        if is_bounded:
            return Written(status="away")
        raise
    return written
