"""The promises about the records: at rest they show what the run did, and no receipt shows more.

The expected records come from the steps of the core alone. So it does not matter in which batches, how
often and in which order the records reached the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from abeyance import names, projections, views, wire
from abeyance.core import events
from abeyance.core.effects import Effect, Publish, RunNode
from abeyance.core.ledger import Receipt
from abeyance.core.outcome import (
    CALL_GRANTED,
    CALL_STARTED,
    Failed,
    Finished,
    Stopped,
    VisitOutcome,
)
from abeyance.core.state import RunState
from abeyance.records.tables import micros
from abeyance.storage.converter import of_run
from tests.simulation.execution import Execution
from tests.simulation.payloads import CLEAR, SEALED, opened_payloads
from tests.simulation.records import Kept
from tests.simulation.resets import Reset
from tests.simulation.server import Broken

Told: TypeAlias = tuple[Any, ...]
"""An event: type and address. An event that the core publishes also has actor, time and data."""

_OF_CODE: Final = {
    "finished": "finished",
    "stopped": "stopped",
    "attempt_failed": "retrying",
    "failed": "failed",
}
"""The event type for each kind of outcome of code, without `node.` or `tool.`."""
_SHORT: Final = {
    "run.started",
    "model.turn",
    "approval.granted",
    *(f"{what}.{came}" for what in ("node", "tool") for came in ("started", *_OF_CODE.values())),
}
"""The event types that the core does not publish."""
_REWOUND: Final = "run.rewound"
"""The event type that neither the core nor the workflow records."""
_UNTOLD: Final = ("updated_at", "metrics", "queue_depth", "running", "retrying", "beside")
"""Fields of the view that may change without an event: a cancel of an ending run counts at its end."""
_BEFORE: Final = (events.TaskBegan, events.RotationDue)
"""Steps just before the step of another event. The run records the end of code before both."""
_BEFORE_RECORDS: Final = {names.RECORD_ACTIVITY, names.READ_REWIND_ACTIVITY}
"""The activities that a run waits for before people can read its records."""
_ANSWERS: Final = {"interrupt.answered", "interrupt.voted", "interrupt.held"}


class Part(NamedTuple):
    """A run's events from its start or a retry to the next end; the first `ended_at` precede the end."""

    told: list[Told]
    ended_at: int | None
    status: str


class Recorded:
    """The records that one run must have, built from its steps."""

    def __init__(self) -> None:
        self._earlier: list[Part] = []
        """The events of the run up to each end that a retry followed."""
        self._told: list[Told] = []
        self._ended_at: int | None = None
        self._status = ""
        self._before = 0
        self._routed_at: int | None = None
        """How many events there were when a route last chose its target."""
        self._answered: set[str] = set()
        self._excused: set[str] = set()
        self._was_away = False
        self._kinds: dict[str, str] = {}
        self._starts: dict[str, wire.StartRun] = {}
        self._version: str | None = None
        """The graph version to which the run was migrated."""
        self._resets: Sequence[Reset] = ()

    def begins_anew(self, resets: Sequence[Reset]) -> None:
        """Begin anew after a reset: the caller replays the steps that still count."""
        self._told, self._ended_at, self._before, self._earlier = [], None, 0, []
        self._kinds, self._resets, self._version = {}, resets, None

    def was_rewound(self, salt: str) -> None:
        """Note that the run learned of a reset."""
        about = next(each for each in self._resets if each.salt == salt)
        self._told.append((_REWOUND, about.by, about.to))
        self._before = len(self._told)

    def goes_on(self) -> None:
        """Begin a new part: the run has ended, and is retried."""
        self._earlier.append(self._part)
        self._told, self._ended_at, self._before = [], None, 0

    @property
    def _part(self) -> Part:
        return Part(self._told, self._ended_at, self._status)

    def saw(self, event: events.Event, after: RunState, effects: tuple[Effect, ...]) -> None:
        """Add the events of one step of the run."""
        if isinstance(event, events.Responded):
            self._answered.update(event.answers)
        if isinstance(event, events.Started):
            self._told.append(("run.started", None))
        if isinstance(event, events.Migrated):
            self._version = event.versions[1]
        if isinstance(event, events.VisitEnded) and self._kinds.get(event.visit) == "visit":
            told = [*_of_code(event.visit, event.outcome)]
            self._told[self._before : self._before] = told
        self._told += self._of(effects)
        if isinstance(event, events.VisitEnded) and self._kinds.get(event.visit) == "routes":
            self._routed_at = len(self._told)
        if after.finished and self._ended_at is None:
            self._ended_at, self._status = len(self._told), after.status
        if not isinstance(event, _BEFORE):
            self._before = len(self._told)

    def saw_refused(self) -> None:
        """Note a refusal: the events of the task's beginning come before those of the next step."""
        self._before = len(self._told)

    def _of(self, effects: tuple[Effect, ...]) -> Iterator[Told]:
        for each in effects:
            match each:
                case Publish():
                    about = (each.actor, micros(each.time), dict(each.data))
                    yield (each.type, each.address, *about)
                case RunNode(input=code):
                    self._kinds[code.address] = code.kind
                    if code.kind == "visit" and code.blocked_by is None:
                        yield (f"{_what(code.address)}.started", code.address)
                case _:
                    pass

    def is_committed(self, execution: Execution) -> None:
        """Take the steps as committed. While the database is away, receipts need no record."""
        orders = [*execution.left, *execution.activities.values()]
        is_away = any(map(_is_last_resort, orders)) or execution.hears_of_activity
        # An answer may come in the task that learns that the database is back.
        if is_away or self._was_away:
            self._excused |= self._answered
        self._was_away = is_away

    def at_rest(self, execution: Execution, state: RunState) -> None:
        """Check the records against the run, if every batch that it handed over is written."""
        # An execution may end while the database is away. Then the next execution records the rest, or
        # the worker or client that finds the end does.
        orders = {each.type for each in (*execution.left, *execution.activities.values())}
        owed = execution.server.records.owed
        if owed or orders & _BEFORE_RECORDS or execution.hears_of_activity:
            return
        self.hold(execution, state)

    def hold(self, execution: Execution, state: RunState) -> None:
        """Check the records against the run."""
        kept = execution.server.records.kept()
        is_behind = self._hold_events(kept.events)
        # Events about code alone do not trigger a batch; they wait for other news.
        if not is_behind:
            self._hold_run(kept.view, projections.bare_view(state, self._start(execution)))
        entries = {**state.ledger.settled, **state.ledger.open}
        asked = {id_: projections.question(state, entry) for id_, entry in entries.items()}
        if kept.questions != asked:
            differences = _differences(kept.questions, asked)
            raise Broken(f"the records have other questions: {differences}")
        if still := kept.listed_still:
            raise Broken(f"questions that a rewind has discarded wait for an answer: {still}")
        for id_, entry in entries.items():
            lists = entry.status if entry.status in ("open", "held") else None
            if kept.listed[id_] != lists:
                raise Broken(f"the list {kept.listed[id_]} has {id_}, which is {entry.status}")

    def _hold_run(self, kept: views.RunView | None, view: views.RunView) -> None:
        if kept is not None and not view.ended_at:
            # Changes of these fields have no event, and trigger no batch.
            untold = {*_UNTOLD}
            if self._routed_at == len(self._told):
                # The run holds back the next code for another task.
                untold |= {"version", "values"}
            if not _published(self._told):
                # The recorded time may be of a first workflow task that failed.
                untold.add("created_at")
            now = {name: getattr(view, name) for name in untold}
            kept = kept.model_copy(
                update={**now, "blocked": _as_worded(kept.blocked, view.blocked)}
            )
        if kept != view:
            raise Broken(f"the records have another run: {_differences(kept, view)}")

    def _hold_events(self, kept: list[tuple[Any, ...]]) -> bool:
        """Check the recorded events. Return whether only the latest events about code are missing."""
        numbers = [number for number, *_ in kept]
        if numbers != [*range(1, len(kept) + 1)]:
            raise Broken(f"the records have the events {numbers}")
        _hold_discarded(kept)
        told = [_told(*each) for _, by, *each in kept if by is None]
        parts = [*self._earlier, self._part]
        # If nobody knows whether a rewind was recorded, the next rewind discards it.
        rewinds = [each for part in parts for each in _rewinds(part.told)]
        known = _rewinds(told)
        if rewinds[-1:] != known[-1:] or any(each not in rewinds for each in known):
            raise Broken(f"the records have the rewinds {known}, and there were {rewinds}")
        recorded = _parts([each for each in told if each not in known])
        if len(recorded) != len(parts):
            raise Broken(
                f"the records have {len(recorded) - 1} retries, and there were {len(parts) - 1}"
            )
        lacks = [_lacks(*pair) for pair in zip(recorded, parts, strict=True)]
        return any(lacks)

    def is_reindexed(self, kept: Kept, anew: Kept) -> None:
        """Compare the records with those that a reindex made from the histories.

        Discarded events may differ: no history has the events of a workflow task that failed. The numbers
        of later events may differ too, if the run never learned the number of its rewind.
        """
        has_rewinds = any(type_ == _REWOUND for _, _, type_, *_ in kept.events)
        due_events, events_ = (
            [
                (None if has_rewinds else number, *told)
                for number, by, *told in each.events
                if not by
            ]
            for each in (kept, anew)
        )
        pairs = [
            (kept.view, anew.view),
            (kept.questions, anew.questions),
            (kept.listed, anew.listed),
            (due_events, events_),
        ]
        for due, found in pairs:
            if found != due:
                raise Broken(f"a reindex makes other records: {_differences(found, due)}")

    def has_receipt(self, execution: Execution, receipt: Receipt) -> None:
        """Check that the records have the answer of a receipt, unless the database was away."""
        if receipt.interrupt_id in self._excused:
            return
        told = execution.server.records.told_of(receipt.answered_by)
        if not any(
            type_ in _ANSWERS and data.get("id") == receipt.interrupt_id for type_, data in told
        ):
            raise Broken(f"nobody can read the answer that has the receipt {receipt}")

    def _start(self, execution: Execution) -> wire.StartRun:
        if execution.run_id not in self._starts:
            clear = SEALED if execution.server.is_sealed else CLEAR
            converter = of_run(clear, execution.workflow_id)
            (payload,) = opened_payloads(execution.input[:1], converter)
            start = converter.payload_converter.from_payload(payload, wire.StartRun)
            self._starts[execution.run_id] = start
        start = self._starts[execution.run_id]
        if self._version is None:
            return start
        return start.model_copy(update={"graph_version": self._version})


def _as_worded(
    kept: Sequence[views.BlockedView], now: Sequence[views.BlockedView]
) -> list[views.BlockedView]:
    """Return recorded blocks with today's messages: a new wording of the same reason has no event."""
    words = {(each.address, each.code): each.message for each in now}
    return [
        each.model_copy(update={"message": words.get((each.address, each.code), each.message)})
        for each in kept
    ]


def _parts(told: list[Told]) -> list[list[Told]]:
    """Split the recorded events before each retry."""
    starts = [at for at, each in enumerate(told) if each[0] == "run.retried"]
    return [told[a:b] for a, b in pairwise([0, *starts, len(told)])]


def _lacks(told: list[Told], part: Part) -> bool:
    """Check a part of the records. Return whether only its latest events about code are missing."""
    own = [each for each in part.told if each[0] != _REWOUND]
    # The workflow may record the end, and the outcomes of code after it, at any later point.
    has_ended = part.ended_at is not None
    ended = [each for each in told if has_ended and each[0] == f"run.{part.status}"]
    told = [each for each in told if each not in ended]
    end = len(part.told) if part.ended_at is None else part.ended_at
    end -= len(_rewinds(part.told[:end]))
    due = [*own[:end], *_published(own[end:])]
    latest = [] if has_ended else due[len(told) :]
    if latest and not _published(latest):
        due = due[: len(told)]
    told = [*told[:end], *_published(told[end:])]
    if told != due:
        raise Broken(f"the records have other events: {_differences(told, due)}")
    if len(ended) != has_ended:
        raise Broken(f"of the end of the run the records have {ended}")
    return bool(latest)


def _what(address: str) -> str:
    return "tool" if address.rpartition(";")[2].startswith("tool:") else "node"


def _of_code(address: str, outcome: VisitOutcome) -> Iterator[Told]:
    """Yield the events that record the outcome of a visit's code."""
    match outcome:
        case Finished(granted=granted):
            pass
        case Stopped(journal=journal) | Failed(journal=journal) if journal:
            granted = journal.get(CALL_GRANTED) if journal.get(CALL_STARTED) else None
        case _:
            granted = None
    if granted is not None:
        yield ("approval.granted", address)
    if (came := _OF_CODE.get(outcome.kind)) is not None:
        yield (f"{_what(address)}.{came}", address)
    if isinstance(outcome, Finished) and outcome.turn is not None:
        yield ("model.turn", address)


def _is_last_resort(activity: Any) -> bool:
    attempts: int = activity.order.retry_policy.maximum_attempts
    return activity.type == names.RECORD_ACTIVITY and attempts == 0


def _hold_discarded(kept: list[tuple[Any, ...]]) -> None:
    """Check that each event is discarded by the first later rewind to a point before it."""
    rewinds = {number: about[-1]["kept"] for number, _, type_, *about in kept if type_ == _REWOUND}
    for number, by, type_, *_ in kept:
        later = (each for each, at in rewinds.items() if at < number < each)
        if by != (due := min(later, default=None)):
            raise Broken(f"the {type_} {number} is discarded by {by}, which should be {due}")


def _told(type_: str, address: str | None, *about: Any) -> Told:
    """Return a recorded event in the form that is built from the core's steps."""
    if type_ == _REWOUND:
        actor, _, data = about
        return (type_, actor, data["to"])
    return (type_, address) if type_ in _SHORT else (type_, address, *about)


def _rewinds(told: list[Told]) -> list[Told]:
    return [each for each in told if each[0] == _REWOUND]


def _published(told: list[Told]) -> list[Told]:
    return [each for each in told if len(each) > 2]


def _differences(found: Any, due: Any) -> Any:
    """Return the parts in which two values differ: what was found, and what was due."""
    if isinstance(found, BaseModel) and isinstance(due, BaseModel):
        found, due = found.model_dump(), due.model_dump()
    if isinstance(found, dict) and isinstance(due, dict):
        return {
            key: _differences(found.get(key), due.get(key))
            for key in {**found, **due}
            if found.get(key) != due.get(key)
        }
    if isinstance(found, list) and isinstance(due, list):
        pairs = enumerate(zip(found, due, strict=False))
        at = next((at for at, (mine, its) in pairs if mine != its), min(len(found), len(due)))
        return {at: (found[at : at + 3], due[at : at + 3])}
    return found, due
