"""The batches that a run hands over to be recorded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field

from abeyance import views
from abeyance.core.json import Json
from abeyance.core.state import Called
from abeyance.wire import Record, is_empty, is_none

BEGINNING: Final = 1
"""The number of the batch by which a client records a start, before the run has done anything."""
_SPREAD: Final = 1_009
"""In microseconds: a prime, so that it spreads the moments of a clock that counts milliseconds."""
Status: TypeAlias = Literal["written", "late", "away", "outrun"]


class Fact(Record):
    """An event of a run. `number` counts all of them, from 1; `capability` is that of its question.

    `audit` is what the audit alone adds: the content of a question, an answer, a message. `task` is the
    workflow task in which it happened: the execution, and the event of its history that began it.
    """

    number: int
    time: datetime
    type: str
    address: str | None = None
    actor: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    capability: str | None = None
    audit: dict[str, Any] | None = None
    task: str | None = Field(default=None, exclude_if=is_none)


class Rewound(Record):
    """A reset of a run by Temporal, which discards every event with a number greater than `at`.

    `salt` sets it apart from the run's other resets; it is the `count`th in the history of `execution`.
    `actor`, `time` and `data` are those of the event `run.rewound`, as the writer of the batch reads
    them, and `by` is the number of that event, if a history tells it.
    """

    at: int
    salt: str
    execution: str
    count: int = 1
    actor: str | None = None
    time: datetime | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    by: int | None = Field(default=None, exclude_if=is_none)


class Extras(Record):
    """The parts of a run that people read beside its view, and that no list has.

    `messages` are unread, in reading order. `transcripts` are the references of its agents' transcripts
    by address, and `results` those of tool calls that no model has read yet, by agent and call.
    Only an ended run has `keys`, its latest calls with an idempotency key, and, unless it has completed,
    `snapshot`, the JSON of the `Snapshot` that a retry needs.
    """

    messages: list[views.MessageView] = Field(default_factory=list, exclude_if=is_empty)
    transcripts: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    results: dict[str, dict[str, Json]] = Field(default_factory=dict, exclude_if=is_empty)
    keys: dict[str, Called] = Field(default_factory=dict, exclude_if=is_empty)
    snapshot: Any = Field(default=None, exclude_if=is_none)


class Batch(Record):
    """The changes of a run since its last batch.

    `number` is larger than that of every batch before, and `origin` is the first of the run's executions
    in Temporal, which sets it apart from other runs of its id. `after` is the number of the batch before
    in the same execution, `BEGINNING` for the first, and `facts_before` is the number of events in
    earlier batches. `view` is the run without its questions, with its `extras` beside it (None leaves
    those that are recorded), and `questions` are those that have changed, in full; `gone` are questions
    that the run has never asked. A batch that `is_whole` comes after a replay and has every question, so
    that the records can be put right. `active_at` is when somebody or some code last did something.
    `claim` is the claim on a conversation that the end of the run takes back. With `rewound` the run
    numbers its events as if nothing had been discarded.
    """

    number: int
    after: int
    origin: str
    view: views.RunView
    extras: Extras | None = None
    active_at: datetime
    questions: list[views.InterruptView] = Field(default_factory=list)
    gone: list[str] = Field(default_factory=list, exclude_if=is_empty)
    is_whole: bool = Field(default=False, exclude_if=is_empty)
    claim: str | None = None
    facts_before: int
    facts: list[Fact] = Field(default_factory=list)
    rewound: Rewound | None = Field(default=None, exclude_if=is_none)

    @property
    def latest_fact(self) -> int:
        """The number of the latest event that the run knows."""
        return max([self.facts_before, *(fact.number for fact in self.facts)])


class Written(Record):
    """The outcome of a batch.

    The batch is `written`; or may still be written in a moment (`late`); or the database cannot be
    reached (`away`); or the batch is `outrun` by the batch `latest`, and needs a larger number.

    A batch may be written for a workflow task that is done again: then the run does not know of it.
    `strays` are the questions that such batches have changed, which the run has to hand over again. After
    a rewind the recorded numbers of events are greater by `shift` than those that the run counts.
    """

    status: Status
    latest: int = Field(default=0, exclude_if=is_empty)
    strays: list[str] = Field(default_factory=list, exclude_if=is_empty)
    shift: int = Field(default=0, exclude_if=is_empty)


def merged(one: Batch, other: Batch) -> Batch:
    """Return a batch with the effect of two batches of a run.

    The later batch has all that the earlier one told, except the questions with which a replay takes
    changes back. The result keeps these if no batch was recorded between the two.
    """
    earlier, later = sorted((one, other), key=lambda batch: batch.number)
    if later.is_whole or not earlier.is_whole or earlier.after != later.after:
        return later
    changes = {"is_whole": True, "questions": earlier.questions}
    return later.model_copy(update=changes)


def next_number(latest: int, moment: int) -> int:
    """Return the number of a batch at a moment, in microseconds: larger than `latest`.

    The number depends on the moment even if the clock was set back: a workflow task that is done again
    begins at another moment, and its batch may differ, so it must not get the number of the first one.
    """
    return moment if moment > latest else latest + 1 + moment % _SPREAD


def known_before(latest: int, facts: Sequence[Fact]) -> int:
    """Return the number of events before those of a batch, whose last event has the number `latest`.

    After a rewind a batch may repeat events from before it, which do not count as new.
    """
    for fact in reversed(facts):
        if fact.number != latest:
            break
        latest -= 1
    return latest


def numbered(batch: Batch, by: int | None) -> tuple[int, Sequence[Fact]]:
    """Return the number of events before the new ones, and all events with their numbers.

    `by` is the number of the event of a rewind, which comes before the events after the rewind.
    """
    rewound = batch.rewound
    if rewound is None:
        return batch.facts_before, batch.facts
    at, time = rewound.at, rewound.time or batch.active_at
    kept = [fact for fact in batch.facts if fact.number <= at]
    if by is None:
        # Nobody knows under which numbers the other events were recorded.
        return batch.facts_before, kept
    data = {**rewound.data, "kept": at}
    told = Fact(number=by, time=time, type="run.rewound", actor=rewound.actor, data=data)
    later = (fact for fact in batch.facts if fact.number > at)
    moved = [fact.model_copy(update={"number": fact.number + by - at}) for fact in later]
    return by, [*kept, told, *moved]
