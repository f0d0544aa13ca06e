"""Simulate schedules of runs: make simulate [SEEDS=n], or python tests/simulation/run.py --help.

Each seed is a run of a random graph, with people, workers and a server that do to it what chance wants.
The first schedule that breaks a promise is made as short as it will be, and is printed with the command
that repeats it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_CHUNK = 100
_KEPT = 20
"""Schedules until the garbage of theirs is collected."""


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
    options = parser.parse_args(arguments)
    # Code of the graphs fails on purpose, and the worker tells of each.
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        draws = None if options.draws is None else [int(each) for each in options.draws.split(",")]
        played = play(options.seed, draws)
        print("\n".join(played.log))
        print(played.fault or f"every promise is kept, in {played.steps} steps")
        return bool(played.fault)
    play(0)
    gc.freeze()
    return _simulate(options.first, options.seeds, options.jobs)


def _simulate(first: int, count: int, jobs: int) -> int:
    from tests.simulation.schedule import play
    from tests.simulation.shrink import shrunk

    began = time.monotonic()
    chunks = [
        range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)
    ]
    steps = done = 0
    with multiprocessing.get_context("fork").Pool(jobs) as processes:
        for broken, played, taken in processes.imap_unordered(_played, chunks):
            done, steps = done + played, steps + taken
            if broken is not None:
                processes.terminate()
                print(f"The schedule of seed {broken} breaks a promise.")
                shortest = shrunk(play(broken))
                print("The shortest schedule that shows it:\n")
                print("\n".join(shortest.log))
                print(shortest.fault)
                draws = ",".join(map(str, shortest.draws))
                print("Repeat it:          python tests/simulation/run.py", end=" ")
                print(f"--seed {broken} --draws {draws}")
                print(f"As it was found:    python tests/simulation/run.py --seed {broken}")
                return 1
    seconds = time.monotonic() - began
    print(
        f"{done:,} schedules of {steps:,} steps kept every promise, in {seconds:.0f} s: "
        f"{done / seconds:.0f} a second in {jobs} processes"
    )
    return 0


def _played(seeds: range) -> tuple[int | None, int, int]:
    """The first seed that breaks a promise, how many were played, and their steps."""
    from tests.simulation.schedule import play

    gc.disable()
    steps = 0
    try:
        for number, seed in enumerate(seeds, 1):
            played = play(seed)
            steps += played.steps
            if number % _KEPT == 0:
                gc.collect()
            if played.fault:
                return seed, number, steps
        return None, len(seeds), steps
    finally:
        gc.collect()


if __name__ == "__main__":
    # As pytest has it: the modules are those of `tests.simulation`, what they use is in tests/support.
    root = Path(__file__).resolve().parent.parent.parent
    sys.path[:1] = [str(root), str(root / "tests" / "support")]
    sys.exit(main())
