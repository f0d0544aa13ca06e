"""The workload `approval`: three nodes, a gate that a person answers, three nodes.

Every contender does the same work on the same values: a node reads the claim and adds a line to its
log, the gate takes a decision that is held against its form, and may be answered for two days. The
first node after the gate writes down when it began, so that the time from the answer to it is read
from the values in which the run ends. A run that ends in other values fails the trial.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any, Final, Protocol

from contender import Contender
from measured import Column, Samples, percentile
from pydantic import BaseModel
from stage import Processes
from turns import end_turn

BEFORE: Final = ("collect", "check", "assess")
AFTER: Final = ("book", "pay", "notify")
CAPABILITY: Final = "claims:approve"
GATE_STAYS_OPEN: Final = timedelta(days=2)
AT_ONCE: Final = 20

_RUN_SECONDS: Final = 60.0
_TRACED: Final = 5
_A_TURN: Final = 5
"""Runs one at a time in a turn; of those `AT_ONCE` at a time it has twice `AT_ONCE`."""
_DAMAGE: Final = "Water came through the ceiling of the kitchen on the night of the storm. " * 6


class Decision(BaseModel):
    """What the person at the gate says."""

    approved: bool
    note: str


class Claim(BaseModel):
    """The values of a run. `resumed_at` is when the first node after the gate began."""

    claim_id: str
    amount: float
    damage: str
    decision: Decision | None = None
    resumed_at: float = 0.0
    log: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a run left in Temporal's history."""

    events: int
    bytes: int


class Approval(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def until_gate(self, run: str, claim: Claim) -> None:
        """Start a run, and return as soon as its gate can be answered."""

    async def answer(self, run: str, decision: Decision) -> Claim:
        """Answer the gate, and return the values in which the run ends."""

    async def trace(self, run: str) -> Trace | None:
        """What the run left in Temporal's history; None without Temporal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs a trial has: to warm up, one at a time, and `AT_ONCE` at a time."""

    warm_up: int
    alone: int
    crowd: int


PLAN: Final = Plan(warm_up=20, alone=30, crowd=120)
QUICK: Final = Plan(warm_up=1, alone=3, crowd=20)

CONTENDERS: Final = (
    Contender(name="by-hand", title="Temporal by hand", module="approval.by_hand"),
    Contender(name="abeyance", title="Abeyance", module="approval.on_abeyance"),
    Contender(
        name="by-hand-local",
        title="Temporal by hand, local activities",
        module="approval.by_hand",
        options={"local": True},
    ),
    Contender(
        name="abeyance-local",
        title="Abeyance, local nodes",
        module="approval.on_abeyance",
        options={"local": True},
        floor="by-hand-local",
    ),
    Contender(
        name="langgraph",
        title="LangGraph, SQLite saver",
        module="approval.on_langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Contender(name="dbos", title="DBOS, SQLite", module="approval.on_dbos", packages=("dbos",)),
)

COLUMNS: Final = (
    Column("runs", "runs", fold=sum, digits=0),
    Column("runs/s, 1 at a time", "alone rate", more_is_better=True),
    Column(f"runs/s, {AT_ONCE} at a time", "crowd rate", more_is_better=True),
    Column("start to gate, p50 ms", "to gate"),
    Column("answer to next node, p50 ms", "to next"),
    Column("the same, p99 ms", "to next", fold=percentile(99)),
    Column(f"the same, {AT_ONCE} at a time, p50 ms", "crowd to next"),
    Column("CPU ms a run", "cpu"),
    Column("of it the server", "cpu of server"),
    Column("the worker", "cpu of worker"),
    Column("the database", "cpu of database"),
    Column("events a run", "events", digits=0),
    Column("events a visit", "events a visit"),
    Column("bytes a run", "bytes", digits=0),
    Column("bytes a visit", "bytes a visit", digits=0),
)


def visit(node: str, claim_id: str) -> dict[str, Any]:
    """The work of a node: the patch to the claim."""
    patch: dict[str, Any] = {"log": [f"{node} {claim_id}"]}
    if node == AFTER[0]:
        patch["resumed_at"] = time.time()
    return patch


async def perform(contender: Approval, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a run ends otherwise than it should, or not in time."""
    await _batch(contender, "warm", range(plan.warm_up), at_once=AT_ONCE)
    alone, crowd = _Batch(), _Batch()
    spent = defaultdict[str, float](float)
    for first in range(0, plan.alone, _A_TURN):
        end_turn()
        before = contender.processes.cpu_seconds()
        numbers = range(first, min(first + _A_TURN, plan.alone))
        alone += await _batch(contender, "alone", numbers, at_once=1)
        for who, seconds in contender.processes.cpu_seconds().items():
            spent[who] += seconds - before[who]
    for first in range(0, plan.crowd, 2 * AT_ONCE):
        end_turn()
        numbers = range(first, min(first + 2 * AT_ONCE, plan.crowd))
        crowd += await _batch(contender, "crowd", numbers, at_once=AT_ONCE)
    end_turn()
    found: dict[str, list[float]] = {
        "runs": [len(alone.timings) + len(crowd.timings)],
        "alone rate": [plan.alone / alone.took],
        "crowd rate": [plan.crowd / crowd.took],
        "to gate": [1000 * timing.to_gate for timing in alone.timings],
        "to next": [1000 * timing.to_next for timing in alone.timings],
        "crowd to next": [1000 * timing.to_next for timing in crowd.timings],
        "cpu": [1000 * sum(spent.values()) / plan.alone],
        **{f"cpu of {who}": [1000 * s / plan.alone] for who, s in spent.items()},
    }
    return {**found, **await _traces(contender, plan)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timing:
    to_gate: float
    to_next: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Runs, and how many seconds they took together."""

    timings: tuple[_Timing, ...] = ()
    took: float = 0.0

    def __add__(self, other: _Batch) -> _Batch:
        return _Batch(timings=self.timings + other.timings, took=self.took + other.took)


async def _batch(contender: Approval, name: str, numbers: range, *, at_once: int) -> _Batch:
    left = iter(numbers)
    timings: list[_Timing] = []

    async def one_after_another() -> None:
        for number in left:
            async with asyncio.timeout(_RUN_SECONDS):
                timings.append(await _run(contender, f"{name}-{number}"))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_another())
    return _Batch(timings=tuple(timings), took=time.perf_counter() - began)


async def _run(contender: Approval, run: str) -> _Timing:
    claim = Claim(claim_id=run, amount=1250.0, damage=_DAMAGE)
    decision = Decision(approved=True, note="as quoted")
    started = time.perf_counter()
    await contender.until_gate(run, claim)
    to_gate = time.perf_counter() - started
    # What another process writes down is compared with this, so it is the clock on the wall.
    answered = time.time()
    ended = await contender.answer(run, decision)
    log = [f"{node} {run}" for node in (*BEFORE, *AFTER)]
    wanted = claim.model_copy(
        update={"decision": decision, "log": log, "resumed_at": ended.resumed_at}
    )
    if ended != wanted:
        message = f"the run {run!r} ended in {ended!r}, and should have in {wanted!r}"
        raise ValueError(message)
    return _Timing(to_gate=to_gate, to_next=ended.resumed_at - answered)


async def _traces(contender: Approval, plan: Plan) -> Mapping[str, list[float]]:
    last = range(max(0, plan.alone - _TRACED), plan.alone)
    traces = [t for n in last if (t := await contender.trace(f"alone-{n}")) is not None]
    if not traces:
        return {}
    visits = len(BEFORE) + len(AFTER)
    events = median(trace.events for trace in traces)
    bytes_ = median(trace.bytes for trace in traces)
    return {
        "events": [events],
        "events a visit": [events / visits],
        "bytes": [bytes_],
        "bytes a visit": [bytes_ / visits],
    }
