"""Simulate schedules of runs: make simulate [SEEDS=n], or python tests/simulation/run.py --help.

Each seed is a run of a random graph, with people, workers and a server that act at random. The first
schedule that breaks a promise is shortened as far as possible, and printed with the command that repeats
it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.schedule import Kind

_CHUNK = 200
"""Schedules of one process: seeds that share their graphs."""
_NICE = 15


@dataclass(frozen=True)
class Batch:
    """The result of a batch of schedules. `broken` is the seed of the schedule that broke a promise and
    so ended the batch.
    """

    played: int
    steps: int
    broken: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    from tests.simulation.schedule import play

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many schedules")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one, and tell what happens in it")
    parser.add_argument("--draws", help="play what was drawn so, as 0,3,1: a shorter schedule")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    kinds = {
        "any": "random graphs",
        "grants": "an agent whose approvals may be remembered",
        "migrations": "random graphs that are deployed anew, and migrated",
    }
    told_kinds = "; ".join(f"{kind}: {what}" for kind, what in kinds.items())
    parser.add_argument("--kind", choices=kinds, default="any", help=told_kinds)
    options = parser.parse_args(arguments)
    # The graphs' code fails on purpose, and the worker would log each failure.
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        draws = None if options.draws is None else [int(each) for each in options.draws.split(",")]
        played = play(options.seed, draws, kind=options.kind)
        print("\n".join(played.log))
        print(played.fault or f"every promise is kept, in {played.steps} steps")
        return bool(played.fault)
    # The schedules take every processor for minutes, and must not delay tests that measure time.
    os.nice(_NICE)
    return _simulate(options.first, options.seeds, options.jobs, options.kind)


def _simulate(first: int, count: int, jobs: int, kind: Kind) -> int:
    began = time.monotonic()
    steps = done = 0
    for batch in batches(first, count, jobs, kind):
        done, steps = done + batch.played, steps + batch.steps
        if batch.broken is not None:
            print(f"The schedule of seed {batch.broken} breaks a promise.")
            print(told(batch.broken, kind))
            return 1
    seconds = time.monotonic() - began
    print(
        f"{done:,} schedules of {steps:,} steps kept every promise, in {seconds:.0f} s: "
        f"{done / seconds:.0f} a second in {jobs} processes"
    )
    return 0


def batches(first: int, count: int, jobs: int | None, kind: Kind = "any") -> Iterator[Batch]:
    """Play schedules in `jobs` processes."""
    from tests.simulation.schedule import play

    end = first + count
    starts = [first, *range(first - first % _CHUNK + _CHUNK, end, _CHUNK), end]
    chunks = [range(*each) for each in itertools.pairwise(starts)]
    # One play warms every cache before the fork. A process ends before garbage collection pays off.
    play(first)
    gc.freeze()
    forks = multiprocessing.get_context("fork")
    with forks.Pool(jobs, initializer=gc.disable, maxtasksperchild=1) as processes:
        played = partial(play_batch, kind=kind)
        yield from processes.imap_unordered(played, chunks)


def play_batch(seeds: Sequence[int], kind: Kind = "any") -> Batch:
    """Play these schedules, up to the first that breaks a promise."""
    from tests.simulation.schedule import play

    steps = 0
    for number, seed in enumerate(seeds, 1):
        found = play(seed, kind=kind)
        steps += found.steps
        if found.fault:
            return Batch(number, steps, seed)
    return Batch(len(seeds), steps)


def told(broken: int, kind: Kind = "any") -> str:
    """Return the shortest schedule that shows the same fault as this one, and how to repeat both."""
    from tests.simulation.schedule import play
    from tests.simulation.shrink import shrunk

    again = partial(play, kind=kind)
    shortest = shrunk(again(broken), again=again)
    draws = ",".join(map(str, shortest.draws))
    about = "" if kind == "any" else f" --kind {kind}"
    command = f"python tests/simulation/run.py{about} --seed {broken}"
    return "\n".join(
        [
            "The shortest schedule that shows it:\n",
            *shortest.log,
            shortest.fault,
            f"Repeat it:          {command} --draws {draws}",
            f"As it was found:    {command}",
        ]
    )


if __name__ == "__main__":
    # As under pytest: import the modules from `tests.simulation`, and what they use from tests/support.
    root = Path(__file__).resolve().parent.parent.parent
    sys.path[:1] = [str(root), str(root / "tests" / "support")]
    sys.exit(main())
