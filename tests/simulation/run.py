"""Simulate schedules of runs: make simulate [SEEDS=n], or python tests/simulation/run.py --help.

Each seed is a run of a random graph, with people, workers and a server that do to it what chance wants.
The first schedule that breaks a promise is made as short as it will be, and is printed with the command
that repeats it.
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

_CHUNK = 200
"""Schedules of one process: those that have their graphs in common."""
_NICE = 15


@dataclass(frozen=True)
class Batch:
    """What became of some schedules: `broken` is the seed of the first that broke a promise, with which
    they end.
    """

    played: int
    steps: int
    broken: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    from tests.simulation.schedule import play

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many schedules")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one, and tell what happens in it")
    parser.add_argument("--draws", help="play what was drawn so, as 0,3,1: a shorter schedule")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--grants", action="store_true", help="runs of an agent with grants")
    options = parser.parse_args(arguments)
    # Code of the graphs fails on purpose, and the worker tells of each.
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        draws = None if options.draws is None else [int(each) for each in options.draws.split(",")]
        played = play(options.seed, draws, has_grants=options.grants)
        print("\n".join(played.log))
        print(played.fault or f"every promise is kept, in {played.steps} steps")
        return bool(played.fault)
    # It takes every processor for minutes, and must not make those late who go by the clock.
    os.nice(_NICE)
    return _simulate(options.first, options.seeds, options.jobs, has_grants=options.grants)


def _simulate(first: int, count: int, jobs: int, *, has_grants: bool) -> int:
    began = time.monotonic()
    steps = done = 0
    for batch in batches(first, count, jobs, has_grants=has_grants):
        done, steps = done + batch.played, steps + batch.steps
        if batch.broken is not None:
            print(f"The schedule of seed {batch.broken} breaks a promise.")
            print(told(batch.broken, has_grants=has_grants))
            return 1
    seconds = time.monotonic() - began
    print(
        f"{done:,} schedules of {steps:,} steps kept every promise, in {seconds:.0f} s: "
        f"{done / seconds:.0f} a second in {jobs} processes"
    )
    return 0


def batches(
    first: int, count: int, jobs: int | None, *, has_grants: bool = False
) -> Iterator[Batch]:
    """Play schedules in so many processes."""
    from tests.simulation.schedule import play

    end = first + count
    starts = [first, *range(first - first % _CHUNK + _CHUNK, end, _CHUNK), end]
    chunks = [range(*each) for each in itertools.pairwise(starts)]
    # What all of them need is made once. A process ends before its garbage is worth collecting.
    play(first)
    gc.freeze()
    forks = multiprocessing.get_context("fork")
    with forks.Pool(jobs, initializer=gc.disable, maxtasksperchild=1) as processes:
        played = partial(play_batch, has_grants=has_grants)
        yield from processes.imap_unordered(played, chunks)


def play_batch(seeds: Sequence[int], *, has_grants: bool = False) -> Batch:
    """Play these schedules, up to the first that breaks a promise."""
    from tests.simulation.schedule import play

    steps = 0
    for number, seed in enumerate(seeds, 1):
        found = play(seed, has_grants=has_grants)
        steps += found.steps
        if found.fault:
            return Batch(number, steps, seed)
    return Batch(len(seeds), steps)


def told(broken: int, *, has_grants: bool = False) -> str:
    """Return the shortest schedule that shows what is wrong with this one, and how to repeat both."""
    from tests.simulation.schedule import play
    from tests.simulation.shrink import shrunk

    again = partial(play, has_grants=has_grants)
    shortest = shrunk(again(broken), again=again)
    draws = ",".join(map(str, shortest.draws))
    kind = " --grants" if has_grants else ""
    command = f"python tests/simulation/run.py{kind} --seed {broken}"
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
    # As pytest has it: the modules are those of `tests.simulation`, what they use is in tests/support.
    root = Path(__file__).resolve().parent.parent.parent
    sys.path[:1] = [str(root), str(root / "tests" / "support")]
    sys.exit(main())
