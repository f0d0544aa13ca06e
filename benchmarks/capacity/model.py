"""The capacity model: what each unit of work costs, and what a load of many units comes to.

Nothing here measures: `capacity.measuring` does. The tables of docs/how-to/capacity.md are made of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple, TypeAlias

RUN: Final = {"start": 1, "node": 6, "question": 1, "answer": 1, "message": 1}
"""What a run of the loads does: six nodes around one question, and one message."""
PEAK_SHARE: Final = 0.2
"""How much of a day's questions the busiest hour has."""
QUESTIONS_OF_AN_INBOX: Final = 100
"""For so many questions a day one inbox is open, and one run followed."""
CACHED: Final = 1_000
"""How many runs a worker keeps in memory: to answer another one, it reads the history."""
KEPT_DAYS: Final = 365
RETENTION_DAYS: Final = 30
LISTED: Final = 1_000
"""The unit `listed` is of so many questions."""
PAGE: Final = 200
_PAUSE: Final = 0.5
"""An inbox reads what was asked at most once in so many seconds."""
_WHOLE: Final = 900
"""An inbox reads its whole list once in so many seconds."""
_MOST_LISTED: Final = 10_000
"""An inbox reads no more questions than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something takes: milliseconds of processors, and counts of the rest."""

    worker: float = 0.0
    api: float = 0.0
    records: float = 0.0
    temporal: float = 0.0
    rpcs: float = 0.0
    actions: float = 0.0
    transitions: float = 0.0
    visibility: float = 0.0
    events: float = 0.0
    history: float = 0.0
    rows: float = 0.0
    stored: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return _each(lambda mine, its: mine + its, self, other)

    def __sub__(self, other: Cost) -> Cost:
        return _each(lambda mine, its: mine - its, self, other)

    def times(self, number: float) -> Cost:
        """Return the cost of so many."""
        return _each(lambda mine: mine * number, self)


NAMES: Final = tuple(field.name for field in fields(Cost))
Units: TypeAlias = Mapping[str, Cost]
"""What one of each unit costs, by the name of the unit."""


def _each(how: Callable[..., float], *costs: Cost) -> Cost:
    return Cost(**{name: how(*(getattr(cost, name) for cost in costs)) for name in NAMES})


class Load(NamedTuple):
    """How many questions are asked in a day, and how many runs wait for an answer."""

    questions: int
    waiting: int


LOADS: Final = (
    Load(10, 30),
    Load(1_000, 3_000),
    Load(100_000, 300_000),
    Load(100_000, 1_000_000),
    Load(100_000, 50_000_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a load takes: in its busiest hour, cores and numbers a second; and what is stored."""

    workers: float
    api: float
    records: float
    streams: float
    rpcs: float
    actions: float
    transitions: float
    visibility: float
    waiting: float
    page: float
    rows: float
    stored: float
    history: float


def demand(units: Units, load: Load) -> Demand:
    """Return what a load takes."""
    run = sum((units[name].times(number) for name, number in RUN.items()), Cost())
    woken = run + units["waking"] if load.waiting > CACHED else run
    inboxes = max(1, load.questions // QUESTIONS_OF_AN_INBOX)
    rate = load.questions * PEAK_SHARE / 3600
    looked = (units["inbox"] + units["follower"]).times(inboxes / 3600)
    second = woken.times(rate) + looked + read(units, load.waiting, rate).times(inboxes)
    return Demand(
        workers=second.worker / 1000,
        api=second.api / 1000,
        records=second.records / 1000,
        streams=2 * inboxes,
        rpcs=second.rpcs + units["waiting"].rpcs * load.waiting / 3600,
        actions=second.actions,
        transitions=second.transitions,
        visibility=second.visibility,
        waiting=load.waiting,
        page=_seconds(_page(units, load.waiting)),
        rows=run.rows * (load.questions * KEPT_DAYS + load.waiting),
        stored=run.stored * (load.questions * KEPT_DAYS + load.waiting),
        history=run.history * (load.questions * RETENTION_DAYS + load.waiting),
    )


def read(units: Units, listed: int, rate: float) -> Cost:
    """Return what an open inbox reads in a second, if so many questions are listed and asked a second."""
    # One more for the questions that are held.
    pages = 1 + max(1, math.ceil(min(listed, _MOST_LISTED) / PAGE))
    whole = _page(units, listed).times(pages / _WHOLE)
    return units["change"].times(min(rate, 1 / _PAUSE)) + whole


def _page(units: Units, listed: int) -> Cost:
    return units["page"] + units["listed"].times(listed / LISTED)


def _seconds(page: Cost) -> float:
    return (page.api + page.records) / 1000


class Part(NamedTuple):
    """A part of a deployment: how much of what it takes one has at first, and what helps."""

    title: str
    of: str
    has: float
    remedy: str


PARTS: Final = (
    Part("workers: 2 cores", "workers", 2, "more workers"),
    Part("API: 2 cores", "api", 2, "more APIs"),
    Part("API: 1,000 streams", "streams", 1_000, "more APIs"),
    Part("records: 4 cores", "records", 4, "a larger database"),
    Part("records: 500 GB", "stored", 500e9, "`ABEYANCE_KEEP`, then a larger disk"),
    Part("Temporal: 500 actions/s", "actions", 500, "`local=True`, then more capacity"),
    Part("Temporal: 512 shards, 20,000 runs each", "waiting", 512 * 20_000, "more shards"),
    Part("Temporal: 500 GB of histories", "history", 500e9, "a storage, a larger disk"),
)
_NOTHING: Final = Part("nothing", "", 0, "")
_MUCH: Final = 0.5
"""Of what is taken less than this nothing has to be done."""


def shares(wanted: Demand) -> Sequence[float]:
    """Return how much of each part a demand takes; above 1 there is too little of it."""
    return [getattr(wanted, part.of) / part.has for part in PARTS]


def bottleneck(wanted: Demand) -> Part:
    """Return the part that is used up first."""
    taken = shares(wanted)
    return PARTS[taken.index(max(taken))]


def tables(units: Units) -> str:
    """Return the tables of the page."""
    found = [(load, demand(units, load)) for load in LOADS]
    heads = [f"{load.questions:,} a day, {load.waiting:,} waiting" for load, _ in found]
    columns = ["worker ms", "API ms", "records ms", "Temporal ms", "RPCs", "actions"]
    columns += (
        "state transitions",
        "visibility writes",
        "events",
        "history bytes",
        "rows",
        "bytes",
    )
    costs = [[_title(name), *(_number(getattr(units[name], n)) for n in NAMES)] for name in _TITLES]
    wants = [
        [title, *(_number(getattr(wanted, name) / by) for _, wanted in found)]
        for title, name, by in _WANTED
    ]
    taken = [
        [part.title, *(f"{shares(wanted)[n]:.0%}" for _, wanted in found)]
        for n, part in enumerate(PARTS)
    ]
    first = [bottleneck(wanted) if max(shares(wanted)) > _MUCH else _NOTHING for _, wanted in found]
    taken.append(["**first**", *(part.title.partition(":")[0] for part in first)])
    taken.append(["what helps", *(part.remedy for part in first)])
    return "\n\n".join(
        [
            _table(["one", *columns], costs),
            "In the busiest hour, and what is stored:",
            _table(["", *heads], wants),
            "How much that is of a deployment of ordinary size:",
            _table(["", *heads], taken),
        ]
    )


_TITLES: Final = {
    "start": "start and end of a run",
    "node": "node",
    "question": "question",
    "answer": "answer",
    "waking": "the same, to a run that left the cache: more",
    "message": "message",
    "waiting": "waiting run, an hour",
    "follower": "follower of a run, an hour",
    "inbox": "open inbox, an hour",
    "change": "question that an inbox reads, because it is new",
    "page": f"page of {PAGE} questions",
    "listed": f"the same, for each {LISTED:,} listed: more",
}
_WANTED: Final = (
    ("workers, cores", "workers", 1),
    ("API, cores", "api", 1),
    ("records, cores", "records", 1),
    ("RPCs a second", "rpcs", 1),
    ("actions a second", "actions", 1),
    ("state transitions a second", "transitions", 1),
    ("visibility writes a second", "visibility", 1),
    ("a page of the list, seconds", "page", 1),
    ("records: million rows", "rows", 1e6),
    ("records: GB", "stored", 1e9),
    ("histories: GB", "history", 1e9),
)


def _title(name: str) -> str:
    return f"{_TITLES[name]} (`{name}`)"


def _number(value: float) -> str:
    """Three digits of it, and no more."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}".rstrip("0").rstrip(".")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in [head, *rows]]
    return "\n".join([lines[0], f"|---|{'---:|' * (len(head) - 1)}", *lines[1:]])
