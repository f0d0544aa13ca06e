"""The workload `parked`: many runs that wait for an answer, and what they cost while they do.

All runs are started and wait at their gate. Then the memory of the server, the worker and the API is
read, the first page of the inbox is asked for, of all questions and of those that need a capability that
one in a hundred has, and runs from the whole range are answered one after another (most of them are no
longer in the worker's cache, so they are woken from their history). Memory is what the runs have added to
a process that had served a few. Starts are timed one at a time, before there are others and beside them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, Protocol

from contender import Contender
from measured import Column, Samples, percentile
from stage import Processes

_AT_ONCE: Final = 20
_RUN_SECONDS: Final = 60.0
_MIB: Final = 2**20


class Parked(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def park(self, run: str) -> None:
        """Start a run, and return as soon as its gate can be answered."""

    async def wake(self, run: str, answer: str) -> str:
        """Answer, and return what the run ends with."""

    async def inbox(self, *, is_filtered: bool) -> int | None:
        """Ask for the first page of what all runs wait for, or of what needs the capability that one in a
        hundred has: how many it lists; None without an inbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs wait, how many of them are woken, how many are started one at a time, and how often
    the inbox is asked for.
    """

    runs: int
    woken: int
    started: int
    pages: int


PLAN: Final = Plan(runs=10_000, woken=100, started=40, pages=50)
QUICK: Final = Plan(runs=50, woken=5, started=2, pages=5)

CONTENDERS: Final = (
    Contender(name="by-hand", title="Temporal by hand", module="parked.by_hand"),
    Contender(name="abeyance", title="Abeyance", module="parked.on_abeyance"),
)

COLUMNS: Final = (
    Column("waiting runs", "runs", fold=sum, digits=0),
    Column("parked/s", "rate", more_is_better=True),
    Column("worker, MiB more", "worker"),
    Column("API, MiB more", "api"),
    Column("server, MiB more", "server"),
    Column("KiB a run, all of them", "a run"),
    Column("to wake one, p50 ms", "wake"),
    Column("the same, p99 ms", "wake", fold=percentile(99)),
    Column("inbox page, p50 ms", "page"),
    Column("filtered, p50 ms", "filtered page"),
    Column("to park one beside none, p50 ms", "first"),
    Column("beside them, p50 ms", "beside"),
)


async def perform(contender: Parked, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a run ends otherwise than it should, or not in time."""
    await _park(contender, "warm")
    await _wake(contender, "warm")
    await contender.inbox(is_filtered=False)
    first = [await _park(contender, f"first-{n}") for n in range(plan.started)]
    before = contender.processes.memory()
    began = time.perf_counter()
    await _park_all(contender, plan.runs)
    parked = time.perf_counter() - began
    pages = await _pages(contender, plan.pages)
    after = contender.processes.memory()
    beside = [await _park(contender, f"beside-{n}") for n in range(plan.started)]
    step = max(1, plan.runs // plan.woken)
    woken = [await _wake(contender, f"run-{n * step}") for n in range(plan.woken)]
    more = {name: after[name] - size for name, size in before.items()}
    found: dict[str, list[float]] = {
        "runs": [float(plan.runs)],
        "rate": [plan.runs / parked],
        "wake": woken,
        "first": first,
        "beside": beside,
        **{name: [size / _MIB] for name, size in more.items()},
    }
    for name, asked in pages.items():
        if took := [each for each in asked if each is not None]:
            found[name] = took
    if more:
        found["a run"] = [sum(more.values()) / plan.runs / 1024]
    return found


async def _park_all(contender: Parked, count: int) -> None:
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            await _park(contender, f"run-{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(one_after_another())


async def _park(contender: Parked, run: str) -> float:
    began = time.perf_counter()
    async with asyncio.timeout(_RUN_SECONDS):
        await contender.park(run)
    return 1000 * (time.perf_counter() - began)


async def _wake(contender: Parked, run: str) -> float:
    answer = f"yes to {run}"
    began = time.perf_counter()
    async with asyncio.timeout(_RUN_SECONDS):
        ended = await contender.wake(run, answer)
    if ended != answer:
        message = f"the run {run!r} ended with {ended!r}, and should have with {answer!r}"
        raise ValueError(message)
    return 1000 * (time.perf_counter() - began)


async def _pages(contender: Parked, count: int) -> dict[str, list[float | None]]:
    return {
        name: [await _page(contender, is_filtered=is_filtered) for _ in range(count)]
        for name, is_filtered in {"page": False, "filtered page": True}.items()
    }


async def _page(contender: Parked, *, is_filtered: bool) -> float | None:
    began = time.perf_counter()
    listed = await contender.inbox(is_filtered=is_filtered)
    if listed is None:
        return None
    if listed == 0:
        message = "the inbox lists nothing, though runs wait"
        raise ValueError(message)
    return 1000 * (time.perf_counter() - began)
