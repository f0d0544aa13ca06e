"""The workload `pause`: a run is paused while its node runs, with mode `now`, and goes on again.

The node's code writes down when it heard that it should stop, and when it was entered again. A cancel
reaches it with the answer to its next sign of life, of which there is one a second here and there; so the
pauses are spread over that second. A run that does not complete fails the trial.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from contender import Contender
from marks import is_there, leave, until_there
from measured import Column, Samples, percentile
from stage import Processes

BEAT_SECONDS: Final = 1.0
_SPREAD: Final = 0.618
"""Of a second, from one pause to the next: such steps fill it evenly, however many there are."""
_RUN_SECONDS: Final = 60.0


class Pausing(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def start(self, run: str, folder: str) -> None:
        """Start a run whose node does `work(folder)`."""

    async def pause(self, run: str) -> None:
        """Tell the run to stop what runs now."""

    async def resume(self, run: str) -> None:
        """Tell the run to go on."""

    async def end(self, run: str) -> str:
        """Wait for the run's end, and return what its node returned."""

    async def events(self, run: str) -> int:
        """How many events the run left in Temporal's history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs a trial has, one after another."""

    warm_up: int
    runs: int


PLAN: Final = Plan(warm_up=3, runs=30)
QUICK: Final = Plan(warm_up=1, runs=3)

CONTENDERS: Final = (
    Contender(name="by-hand", title="Temporal by hand", module="pause.by_hand"),
    Contender(name="abeyance", title="Abeyance", module="pause.on_abeyance"),
)

COLUMNS: Final = (
    Column("runs", "runs", fold=sum, digits=0),
    Column("pause to stopped, p50 ms", "stopped", digits=0),
    Column("the same, p99 ms", "stopped", fold=percentile(99), digits=0),
    Column("the call of pause, p50 ms", "call"),
    Column("resume to entered again, p50 ms", "again"),
    Column("the same, p99 ms", "again", fold=percentile(99)),
    Column("events a run", "events", digits=0),
)


async def work(folder: str) -> str:
    """What the node does: go on until it is stopped; entered again, it is done."""
    if is_there(folder, "stopped"):
        leave(folder, "again")
        return "done"
    leave(folder, "begun")
    try:
        await asyncio.sleep(_RUN_SECONDS)
    except asyncio.CancelledError:
        leave(folder, "stopped")
        raise
    return "never stopped"


async def perform(contender: Pausing, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a run ends otherwise than it should, or not in time."""
    found: dict[str, list[float]] = {"runs": [float(plan.runs)]}
    with TemporaryDirectory(prefix="abeyance-bench-") as folder:
        for number in range(plan.warm_up + plan.runs):
            own = Path(folder) / str(number)
            own.mkdir()
            async with asyncio.timeout(_RUN_SECONDS):
                measured = await _run(contender, f"run-{number}", str(own), number)
            for name, took in measured.items() if number >= plan.warm_up else ():
                found.setdefault(name, []).append(took)
    found["events"] = [float(await contender.events(f"run-{plan.warm_up}"))]
    return found


async def _run(contender: Pausing, run: str, folder: str, number: int) -> dict[str, float]:
    await contender.start(run, folder)
    await until_there(folder, "begun")
    await asyncio.sleep(number * _SPREAD % BEAT_SECONDS)
    # What another process writes down is compared with these, so it is the clock on the wall.
    paused = time.time()
    await contender.pause(run)
    told = time.time()
    stopped = await until_there(folder, "stopped")
    await contender.resume(run)
    ended = await contender.end(run)
    # Until the code has stopped a resume is early, and waits for it: so from the later of the two.
    resumed = max(told, stopped)
    again = await until_there(folder, "again")
    if ended != "done":
        message = f"the run {run!r} ended with {ended!r}"
        raise ValueError(message)
    return {
        "stopped": 1000 * (stopped - paused),
        "call": 1000 * (told - paused),
        "again": 1000 * (again - resumed),
    }
