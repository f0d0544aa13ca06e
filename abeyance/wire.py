"""The types that cross a process boundary: the bases of commands, and the records of runs and workers.

Commands (`abeyance.commands`) are strict (an unknown field is an error). Records that a run writes for
itself are read leniently, so that a later worker can replay the run of an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
)

from abeyance.core.outcome import VisitOutcome
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Limits
from abeyance.core.terms import Kind
from abeyance.core.text import LONGEST_ID, truncate
from abeyance.live_text import LiveText

MAX_DEPTH = 100
"""The deepest nesting of lists and mappings in a value. The JSON parser stops at 200 levels, and a run
that cannot be parsed is stuck, so there has to be room for the data that contains the value."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LATEST = 2200
"""The year from which no timer can be set: Temporal's server counts at most 292 years."""


def refuse_too_deep(value: JsonValue) -> JsonValue:
    """Return the value. Raises ValueError if it is nested deeper than `MAX_DEPTH`."""
    nesting = (dict, list, tuple)
    level = [value] if isinstance(value, nesting) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        inside = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for item in chain.from_iterable(inside) if isinstance(item, nesting)]
    if not level:
        return value
    message = f"lists and mappings are nested in it deeper than {MAX_DEPTH} levels"
    raise ValueError(message)


Value: TypeAlias = Annotated[JsonValue, AfterValidator(refuse_too_deep)]
"""A JSON value in a request."""


def _moment(value: Any) -> Any:
    # pydantic reads a number, also in text, as seconds since 1970.
    if isinstance(value, datetime) or (isinstance(value, str) and _DAY.match(value)):
        return value
    message = f"a time is text such as 2026-03-02T09:00:00Z, and not {truncate(str(value), 100)!r}"
    raise ValueError(message)


def _in_utc(moment: datetime) -> datetime:
    if moment.year >= _LATEST:
        message = (
            f"{moment.isoformat()} is after the year {_LATEST - 1}: what never ends needs no time"
        )
        raise ValueError(message)
    return moment.astimezone(UTC) if moment.year > 1 else moment


Moment: TypeAlias = Annotated[AwareDatetime, BeforeValidator(_moment), AfterValidator(_in_utc)]
"""A time in a request: RFC 3339, with its offset from UTC."""


def is_none(value: object) -> bool:
    """Return whether to leave a field out, because it is None."""
    return value is None


def is_empty(value: object) -> bool:
    """Return whether to leave a field out, because it is empty."""
    return not value


BY_NAME_AND_ALIAS: Final = ConfigDict(
    validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
)
"""For a model with a field whose name is a keyword of Python (`from`, `for`)."""


class Record(BaseModel):
    """Data that this package wrote: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Stamp(Record):
    """The stamp of a command, for runs that accept only sealed ones. It is sealed with the command.

    `order` is the name of the signal or update, `execution` the first of the run's executions in
    Temporal.
    """

    order: str
    execution: str = ""


class Stamped(BaseModel):
    """Data that carries a stamp outside of its fields."""

    _stamp: Stamp | None = PrivateAttr(default=None)

    @property
    def stamp(self) -> Stamp | None:
        """The stamp, if it has one and came sealed."""
        return self._stamp

    def stamped(self, stamp: Stamp) -> Self:
        """Return a copy with a stamp."""
        made = self.model_copy()
        made._stamp = stamp  # noqa: SLF001
        return made


class Request(Stamped):
    """A request of a caller. Unknown fields are refused, and so is half of a surrogate pair in a text."""

    # pydantic checks the characters of a text only if its length is bounded.
    model_config = ConfigDict(extra="forbid", frozen=True, str_min_length=0)


class Keyed(Request):
    """A request with an idempotency key: a repeat has no effect, and gets the first receipt."""

    key: str | None = Field(
        default=None, min_length=1, max_length=LONGEST_ID, exclude_if=lambda key: key is None
    )


class StartRun(Record, Stamped):
    """The start of a run, beside its spec and values; continue-as-new carries it over.

    `request` is a hash of the whole call that started it, if its id was made from the caller's key.
    `claim` is its token in its conversation, which it shares with others if `allow_concurrent` is set.
    `salt` makes its interrupt ids differ from those of an earlier run with its id.

    `generation` grows from each history of the run to the next, which orders their events. With a stamp,
    the run accepts only requests that were sealed for it.

    `interrupt_before`, `interrupt_after` and `on_error` are the start's own, which another version of the
    graph gets too. A retry has the execution that it goes on from (`retry_of`), the first of all
    (`origin`), and the hashes of its latest calls with a key (`retry_keys`). `sent_by` is who sent the
    start on behalf of `started_by`. `notify` are patterns of the events that somebody is to be notified
    of. `facts` is the number of events of earlier executions, `batch` the number of the last batch that
    they have recorded, `told` the number of the last batch that they told since, and `unrecorded` are the
    events that they have not recorded; `rewound` is such a rewind.
    """

    run_id: str
    limits: Limits = Field(default_factory=Limits)
    conversation_id: str | None = None
    session_type: str = "agent"
    labels: dict[str, str] = Field(default_factory=dict)
    started_by: str = "temporal"
    sent_by: str | None = Field(default=None, exclude_if=is_none)
    digest: str = ""
    graph_version: str = ""
    request: str | None = None
    claim: str | None = None
    allow_concurrent: bool = Field(default=False, exclude_if=is_empty)
    generation: int = 0
    salt: str = ""
    interrupt_before: tuple[str, ...] = Field(default=(), exclude_if=is_empty)
    interrupt_after: tuple[str, ...] = Field(default=(), exclude_if=is_empty)
    on_error: str | None = Field(default=None, exclude_if=is_empty)
    retry_of: str = Field(default="", exclude_if=is_empty)
    origin: str = Field(default="", exclude_if=is_empty)
    retry_keys: tuple[str, ...] = Field(default=(), exclude_if=is_empty)
    notify: tuple[str, ...] = Field(default=(), exclude_if=is_empty)
    facts: int = Field(default=0, exclude_if=is_empty)
    batch: int = Field(default=0, exclude_if=is_empty)
    told: int = Field(default=0, exclude_if=is_empty)
    unrecorded: list[Any] = Field(default_factory=list, exclude_if=is_empty)
    rewound: Any = Field(default=None, exclude_if=is_none)


class VisitReport(Record, Stamped):
    """The result of an activity. `took` is the seconds from a local activity's scheduling to its end.
    A stamp names the visit. `notify` is as in `StartRun`, by the worker's rules; None if it has none.
    `worked` is the seconds for which its code ran, if they count towards a budget.
    """

    outcome: VisitOutcome = Field(discriminator="kind")
    took: float | None = None
    notify: tuple[str, ...] | None = Field(default=None, exclude_if=is_none)
    worked: float | None = Field(default=None, exclude_if=is_none)


class VisitBlocked(Request):
    """Signal of a worker: the visit cannot go on, for the reason `code`, or with None can go on again.

    `journal` are the results of its finished steps by name, if they are not part of the run yet.
    `unread`: the worker could not read the visit, nor its journal.
    """

    visit: str
    code: str | None = None
    message: str = ""
    journal: dict[str, Any] = Field(default_factory=dict)
    unread: bool = False


class WorkerStarted(Request):
    """Signal of a worker that has just started: blocked visits are tried again at once."""


class Undelivered(Record):
    """A notification that did not reach a receiver, and why. `attempts` counts those that were made."""

    receiver: str
    reason: str
    attempts: int


class NotificationFailed(Request):
    """Signal of a notification about the event `about`: it did not reach some receivers.

    `interrupt` is the id of the interrupt that it was about, if any.
    """

    about: str
    undelivered: tuple[Undelivered, ...]
    interrupt: str | None = None


class Journal(Record):
    """The journal of a visit's attempts, which every heartbeat carries in full.

    `visit` is its owner, "" if unknown. `steps` are the results of finished steps by name. `excused`
    counts the attempts that did not fail; the others were lost with their workers. `blocked_by` is the
    code of the reason that the run was told last, "" if it was told that the visit is not blocked.
    `blocked_inside`: the code of the node had begun when the last attempt was blocked.
    `live` is a part of the text that a model speaks now. It is for watchers, and no attempt reads it.
    """

    visit: str = ""
    steps: dict[str, Any] = Field(default_factory=dict)
    excused: int = 0
    blocked_by: str | None = None
    blocked_inside: bool = False
    live: LiveText | None = None

    @staticmethod
    def owner(execution: str, address: str) -> str:
        """Return the owner of a visit's journal."""
        return f"{execution} {address}"

    def is_of(self, visit: str) -> bool:
        """Return whether a visit may use the journal, which may be a copy of another visit's."""
        return self.visit in ("", visit)

    @classmethod
    def combined(cls, written: Iterable[Journal], visit: str) -> Journal:
        """Return the journal of a visit from all that its attempts have written."""
        journals = [each for each in written if each.is_of(visit) and each.live is None]
        told = [each.blocked_by for each in journals if each.blocked_by is not None]
        return cls(
            visit=visit,
            steps={name: result for each in journals for name, result in each.steps.items()},
            excused=sum(each.excused for each in journals),
            blocked_by=told[-1] if told else None,
            blocked_inside=bool(journals) and journals[-1].blocked_inside,
        )


class ReadJournals(Record):
    """Read the journals that lost attempts left at these visits of the run's first `execution`."""

    execution: str
    visits: list[str]


class LostAttempts(Record):
    """The number of attempts at a visit that were lost with their workers, and the journal they left."""

    count: int
    journal: Journal


class StartPatch(Record):
    """The values that a principal set as they rewound a run to its start."""

    by: str
    patch: dict[str, Any]


ErasureState: TypeAlias = Literal["erasing", "erased"]
"""Whether the erasure of a run is under way or done."""


class ScopeValues(Record):
    """The values of one graph of a run, and the names of the nodes that lead to it from the root."""

    path: tuple[str, ...] = ()
    values: dict[str, Any]


class GivenAnswer(Record):
    """An answer, and the facts by which a worker finds its type: the names of the graphs that lead to the
    question, the question's own name if the graph declares it, else its type's, and the data it shows.

    `answer_to` is the field that the answer is written to, and `values` are those that it changes.
    """

    root: str
    path: tuple[str, ...] = ()
    kind: Kind
    declared: str | None = None
    response_type: str | None = None
    response_schema: Any = None
    answer_to: str | None = None
    shown: Any = None
    values: dict[str, Any] = Field(default_factory=dict)
    answer: Any


class TakenAnswer(Record):
    """An answer as its type writes it, or why the type rejects it: pointers and messages."""

    answer: Any = None
    errors: list[dict[str, str]] = Field(default_factory=list)


class ReadGraph(Record):
    """The facts that reading today's graph for a run needs: its start's options, values and renamed
    nodes.
    """

    graph: str
    interrupt_before: tuple[str, ...] = ()
    interrupt_after: tuple[str, ...] = ()
    on_error: str | None = None
    renames: dict[str, str] = Field(default_factory=dict)
    patch: dict[str, Any] = Field(default_factory=dict)
    scopes: list[ScopeValues] = Field(default_factory=list)


class GraphToday(Record):
    """Today's graph: as it is pinned in a run, its `version`, and the patch as JSON that fits its model.

    `faults` are the values that do not fit, each as an obstacle of a migration.
    """

    spec: GraphSpec
    version: str
    patch: dict[str, Any] = Field(default_factory=dict)
    faults: list[dict[str, Any]] = Field(default_factory=list)
