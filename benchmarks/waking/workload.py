"""The workload `waking`: a run that has done much waits for an answer, and no worker has it in memory.

Runs visit a node again and again, then wait at a gate. The worker that served them is killed, another one
is started, and the runs are answered one after another: each is woken from its history, be it short or
long. The time is that from the call that answers until the code behind the gate has begun.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from contender import Contender
from marks import until_there
from measured import Column, Samples, percentile

STEPS: Final = (1, 30, 150)
"""How often the node is visited before the gate. A visit by hand is six events."""


class Waking(Protocol):
    """What a contender has to do."""

    def worker(self) -> AbstractContextManager[int]:
        """A worker in a process of its own, until the context ends."""

    async def until_gate(self, run: str, steps: int, folder: str) -> None:
        """Start a run that visits its node so often, and return as soon as its gate can be answered."""

    async def answer(self, run: str) -> None:
        """Answer the gate; the code behind it leaves the mark of the run's id in the folder."""

    async def events(self, run: str) -> int:
        """How many events the history has that a worker replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs are woken for each number of visits."""

    runs: int
    steps: tuple[int, ...] = STEPS


PLAN: Final = Plan(runs=10)
QUICK: Final = Plan(runs=2, steps=STEPS[:2])

CONTENDERS: Final = (
    Contender(name="by-hand", title="Temporal by hand", module="waking.by_hand"),
    Contender(name="abeyance", title="Abeyance", module="waking.on_abeyance"),
)

COLUMNS: Final = (
    *(Column(f"{steps} visits, events to replay", f"events {steps}", digits=0) for steps in STEPS),
    *(Column(f"{steps} visits, p50 ms", f"wake {steps}") for steps in STEPS),
    Column(f"{STEPS[-1]} visits, p95 ms", f"wake {STEPS[-1]}", fold=percentile(95)),
)


async def perform(contender: Waking, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a run does not go on within a minute."""
    with TemporaryDirectory(prefix="abeyance-bench-") as folder:
        return await _trial(contender, plan, folder)


async def _trial(contender: Waking, plan: Plan, folder: str) -> Samples:
    runs = {steps: [f"run-{steps}-{n}" for n in range(plan.runs)] for steps in plan.steps}
    warm = "warm-0"
    with contender.worker():
        for run, steps in ((warm, 1), *((run, s) for s, named in runs.items() for run in named)):
            await contender.until_gate(run, steps, folder)
    found: dict[str, list[float]] = {}
    for steps, named in runs.items():
        found[f"events {steps}"] = [median([float(await contender.events(run)) for run in named])]
    with contender.worker():
        await _woken(contender, warm, folder)
        # In turns, so that what else the machine does meets short and long ones.
        for batch in zip(*runs.values(), strict=True):
            for steps, run in zip(runs, batch, strict=True):
                found.setdefault(f"wake {steps}", []).append(await _woken(contender, run, folder))
    return found


async def _woken(contender: Waking, run: str, folder: str) -> float:
    began = time.time()
    await contender.answer(run)
    return 1000 * (await until_there(folder, run) - began)
