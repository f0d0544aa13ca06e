"""One trial: one contender, one workload, once, in a process of its own.

`python benchmarks/trial.py WORKLOAD CONTENDER [--quick] [RUNS]` prints what it measured as JSON. `run.py`
calls it, with `--turns`; alone it is good for a profiler.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import turns
from measured import Samples


async def trial(workload: str, name: str, *, quick: bool, runs: int | None) -> Samples:
    """What the contender `name` took for the workload. `runs` replaces the number of its plan."""
    work = import_module(f"{workload}.workload")
    (contender,) = [found for found in work.CONTENDERS if found.name == name]
    module = import_module(contender.module)
    plan = work.QUICK if quick else work.PLAN
    if runs is not None:
        plan = replace(plan, runs=runs)
    with TemporaryDirectory(prefix="abeyance-bench-") as folder:
        async with module.opened(Path(folder), **contender.options) as opened:
            found: Samples = await work.perform(opened, plan)
            return found


if __name__ == "__main__":
    turns.begin()
    workload, name, *flags = sys.argv[1:]
    runs = next((int(flag) for flag in flags if flag.isdecimal()), None)
    print(json.dumps(asyncio.run(trial(workload, name, quick="--quick" in flags, runs=runs))))
