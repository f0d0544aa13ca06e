"""The workload `inbox`: what people read beside 100,000 runs that wait for an answer.

The records are filled with copies of some runs, which a database cannot tell from others. Then pages are
read and texts are searched for, one after another; and 20 readers read a page every second, while the
processor time is counted. There is no server of Temporal: nothing that is read here asks it. There is no
floor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from contender import Contender
from measured import Column, Samples, percentile
from stage import Processes


class Inbox(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes
    pages: Mapping[str, object]
    """What can be read, by name."""

    async def fill(self, runs: int) -> None:
        """Record so many runs that wait, each with a question."""

    async def read(self, page: str) -> int:
        """Read a page, and return how many entries the whole list has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs wait, how often each page is read, and how many readers there are for how long."""

    runs: int
    times: int
    readers: int
    seconds: float


PLAN: Final = Plan(runs=100_000, times=20, readers=20, seconds=20.0)
QUICK: Final = Plan(runs=2_000, times=2, readers=3, seconds=1.0)

CONTENDERS: Final = (
    Contender(name="sqlite", title="SQLite", module="inbox.on_records", floor="sqlite"),
    Contender(
        name="postgres",
        title="PostgreSQL",
        module="inbox.on_records",
        options={"is_postgres": True},
        floor="sqlite",
    ),
)

ORDERS: Final = ("deadline", "age", "priority", "risk")
FILTERS: Final = ("of a capability", "mine")
SEARCHES: Final = ("one", "hundredth", "all", "none", "two words", "short", "of runs")

COLUMNS: Final = (
    Column("waiting runs", "runs", fold=sum, digits=0),
    *(Column(f"by {order}, p50 ms", order) for order in ORDERS),
    *(Column(f"{each}, p50 ms", each) for each in FILTERS),
    *(Column(f"search: {each}, p50 ms", each) for each in SEARCHES),
    Column("20 readers: a page, p50 ms", "polled"),
    Column("the same, p99 ms", "polled", fold=percentile(99)),
    Column("API, % of a core", "client"),
    Column("database, % of a core", "database"),
)


async def perform(contender: Inbox, plan: Plan) -> Samples:
    """One trial. Raises if a list does not have what was recorded."""
    await contender.fill(plan.runs)
    found: dict[str, list[float]] = {"runs": [float(plan.runs)]}
    for page in contender.pages:
        await contender.read(page)
        found[page] = [await _timed(contender, page) for _ in range(plan.times)]
    if (listed := await contender.read("deadline")) != plan.runs:
        message = f"the inbox has {listed} questions of {plan.runs}"
        raise ValueError(message)
    before = contender.processes.cpu_seconds()
    readers = (_poll(contender, plan, n / plan.readers) for n in range(plan.readers))
    polled: Sequence[list[float]] = await asyncio.gather(*readers)
    spent = contender.processes.cpu_seconds()
    found["polled"] = [took for each in polled for took in each]
    for who, seconds in spent.items():
        found[who] = [100 * (seconds - before[who]) / plan.seconds]
    return found


async def _timed(contender: Inbox, page: str) -> float:
    began = time.perf_counter()
    await contender.read(page)
    return 1000 * (time.perf_counter() - began)


async def _poll(contender: Inbox, plan: Plan, first: float) -> list[float]:
    """Read a page every second, as readers do that have not come at the same moment."""
    clock = asyncio.get_running_loop().time
    began = clock() + first
    took = []
    for second in range(max(1, int(plan.seconds))):
        await asyncio.sleep(began + second - clock())
        took.append(await _timed(contender, "deadline"))
    return took
