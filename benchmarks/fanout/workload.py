"""The workload `fanout`: one node spreads a list, each item is worked on, one node collects.

Lists of 1, 10 and 50 items, one run after another. The results have to come together in the order of the
list; a run that ends otherwise fails the trial.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final, Protocol

from contender import Contender
from measured import Column, Samples
from stage import Processes

SIZES: Final = (1, 10, 50)
_RUN_SECONDS: Final = 120.0


class FanOut(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def spread(self, run: str, items: list[int]) -> list[str]:
        """Do a whole run, and return what was collected."""

    async def events(self, run: str) -> int | None:
        """How many events the run left in Temporal's history; None without Temporal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs of each size a trial has."""

    warm_up: int
    runs: int


PLAN: Final = Plan(warm_up=3, runs=10)
QUICK: Final = Plan(warm_up=1, runs=2)

CONTENDERS: Final = (
    Contender(name="by-hand", title="Temporal by hand", module="fanout.by_hand"),
    Contender(name="abeyance", title="Abeyance", module="fanout.on_abeyance"),
    Contender(
        name="langgraph",
        title="LangGraph, SQLite saver",
        module="fanout.on_langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
)

COLUMNS: Final = (
    Column("runs", "runs", fold=sum, digits=0),
    *(Column(f"{size} items, p50 ms", f"{size} took") for size in SIZES),
    *(Column(f"{size} items, events", f"{size} events", digits=0) for size in SIZES),
    *(Column(f"{size} items, CPU ms", f"{size} cpu") for size in SIZES),
)


def work(item: int) -> str:
    """The work on one item."""
    return f"item {item}"


async def perform(contender: FanOut, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a run ends otherwise than it should, or not in time."""
    found: dict[str, list[float]] = {"runs": [float(plan.runs * len(SIZES))]}
    for size in SIZES:
        for number in range(plan.warm_up):
            await _run(contender, f"warm-{size}-{number}", size)
        before = contender.processes.cpu_seconds()
        took = [await _run(contender, f"run-{size}-{number}", size) for number in range(plan.runs)]
        spent = sum(s - before[who] for who, s in contender.processes.cpu_seconds().items())
        found[f"{size} took"] = took
        found[f"{size} cpu"] = [1000 * spent / plan.runs]
        events = await contender.events(f"run-{size}-0")
        if events is not None:
            found[f"{size} events"] = [float(events)]
    return found


async def _run(contender: FanOut, run: str, size: int) -> float:
    began = time.perf_counter()
    async with asyncio.timeout(_RUN_SECONDS):
        collected: Any = await contender.spread(run, list(range(size)))
    if collected != [work(item) for item in range(size)]:
        message = f"the run {run!r} collected {collected!r}"
        raise ValueError(message)
    return 1000 * (time.perf_counter() - began)
