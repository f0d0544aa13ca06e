"""The workload `viewers`: what it costs that people look at runs that wait.

Runs wait at a gate, and viewers follow their events over HTTP: many one run, or each a run of his own.
Nothing happens for some seconds, in which the processor time of each process is counted. Then a run is
answered, and the time is taken until its viewers have the event. There is no floor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from contender import Contender
from measured import Column, Samples, percentile
from stage import Processes

_SECONDS: Final = 120.0
_MIB: Final = 2**20


class Viewer(Protocol):
    """Somebody who follows the events of a run."""

    async def until(self, event: str) -> float:
        """Read until an event of this type; return when it came, by `time.perf_counter`."""


class Watched(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def watch(self, viewers: int) -> Sequence[Viewer]:
        """Start the runs, and return the viewers once each has read that its run waits."""

    async def answer(self) -> Sequence[Viewer]:
        """Answer the gate of one run, and return the viewers of that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many viewers there are, and for how many seconds nothing happens."""

    viewers: int
    quiet: float


PLAN: Final = Plan(viewers=200, quiet=45.0)
QUICK: Final = Plan(viewers=5, quiet=1.0)

CONTENDERS: Final = (
    Contender(
        name="one", title="200 viewers of one run", module="viewers.on_abeyance", floor="one"
    ),
    Contender(
        name="many",
        title="200 runs with a viewer each",
        module="viewers.on_abeyance",
        options={"many": True},
        floor="one",
    ),
)

COLUMNS: Final = (
    Column("viewers", "viewers", digits=0),
    Column("quiet: API, % of a core", "api", digits=2),
    Column("worker, % of a core", "worker", digits=2),
    Column("server, % of a core", "server", digits=2),
    Column("API, MiB more", "memory"),
    Column("answer to its event, p50 ms", "seen"),
    Column("the same, p99 ms", "seen", fold=percentile(99)),
)


async def perform(contender: Watched, plan: Plan) -> Samples:
    """One trial. Raises TimeoutError if a viewer does not get what happens."""
    before = contender.processes.memory()
    async with asyncio.timeout(_SECONDS):
        viewers = await contender.watch(plan.viewers)
    memory = contender.processes.memory()
    spent = contender.processes.cpu_seconds()
    await asyncio.sleep(plan.quiet)
    quiet = contender.processes.cpu_seconds()
    began = time.perf_counter()
    async with asyncio.timeout(_SECONDS):
        seeing = await contender.answer()
        seen = await asyncio.gather(*(viewer.until("interrupt.answered") for viewer in seeing))
    return {
        "viewers": [float(len(viewers))],
        **{name: [100 * (quiet[name] - spent[name]) / plan.quiet] for name in quiet},
        "memory": [(memory[name] - before[name]) / _MIB for name in memory if name == "api"],
        "seen": [1000 * (moment - began) for moment in seen],
    }
