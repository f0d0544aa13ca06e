"""`make bench`: contenders side by side, in turns, in one run on one machine.

`python benchmarks/run.py --help` says what can be asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import page
import stage
from contender import Contender, version_of
from measured import Measured, Samples
from turns import Trial

from abeyance.dev import server as devserver

_HERE: Final = Path(__file__).parent
_WORKLOADS: Final = sorted(path.parent.name for path in _HERE.glob("*/workload.py"))


def main() -> None:
    """Run what the command line asks for, and print the tables."""
    asked = _arguments()
    os.environ[stage.DATABASE] = asked.database
    for workload in _WORKLOADS if asked.all else [asked.workload]:
        measured = _measured(workload, asked)
        print(f"## {workload}\n\n{measured}\n", flush=True)
        if asked.write is not None:
            place = workload if asked.database == "sqlite" else f"{workload}, PostgreSQL"
            page.write(asked.write, place, measured)


def _measured(workload: str, asked: argparse.Namespace) -> str:
    work = import_module(f"{workload}.workload")
    contenders = _present(_asked_for(work.CONTENDERS, asked.contenders))
    measured = Measured(contenders, work.COLUMNS)
    load = os.getloadavg()[0]
    for number in range(asked.rounds):
        print(f"{workload}: round {number + 1} of {asked.rounds}", file=sys.stderr)
        for contender, samples in zip(contenders, _round(workload, contenders, asked), strict=True):
            measured.add(contender, samples)
    rounds = "One round" if asked.rounds == 1 else f"{asked.rounds} rounds"
    return "\n\n".join(
        [
            f"{rounds}, the contenders in turns. {machine(load)}",
            versions(contenders),
            measured.numbers(),
            "Ratios to the floor, the median of the rounds (least to most); above 1 is dearer:",
            measured.ratios(),
        ]
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--workload", choices=_WORKLOADS, default="approval")
    which.add_argument("--all", action="store_true", help="every workload, one after another")
    parser.add_argument("--contenders", help="their names with commas; all unless given")
    parser.add_argument("--rounds", type=int, help="how often each has its turn (3; 2 with --all)")
    parser.add_argument("--runs", type=int, help="how many runs a trial of `parked` or `agent` has")
    parser.add_argument("--quick", action="store_true", help="a few runs, to see that it works")
    parser.add_argument(
        "--database", choices=("sqlite", "postgres"), default="sqlite", help="of the records"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    asked = parser.parse_args()
    asked.rounds = asked.rounds or (1 if asked.quick else 2 if asked.all else 3)
    return asked


def _asked_for(contenders: Sequence[Contender], names: str | None) -> list[Contender]:
    if names is None:
        return list(contenders)
    wanted = names.split(",")
    known = [contender.name for contender in contenders]
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"no contender is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [contender for contender in contenders if contender.name in wanted]


def _present(contenders: Sequence[Contender]) -> list[Contender]:
    present = []
    for contender in contenders:
        if missing := contender.missing():
            print(f"{contender.title} is left out: {', '.join(missing)} is not installed.")
        else:
            present.append(contender)
    if not present:
        sys.exit("no contender is left: `pip install 'abeyance[dev,bench]'` installs all of them")
    return present


def _round(
    workload: str, contenders: Sequence[Contender], asked: argparse.Namespace
) -> list[Samples]:
    """Have a trial of each contender. They take turns as often as the workload says."""
    options = ["--quick"] if asked.quick else []
    options += [] if asked.runs is None else [str(asked.runs)]
    trials = [
        Trial([str(_HERE / "trial.py"), workload, each.name, *options]) for each in contenders
    ]
    left = trials
    while left:
        left = [trial for trial in left if not trial.has_ended()]
    found: list[Samples] = []
    for contender, trial in zip(contenders, trials, strict=True):
        if (printed := trial.last_line) is None:
            sys.exit(f"{contender.title} failed in {workload}; what went wrong stands above")
        found.append(json.loads(printed))
    return found


def machine(load: float) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), {memory:.0f} GiB; "
        f"load {load:.1f} before the start."
    )


def versions(contenders: Sequence[Contender]) -> str:
    server = subprocess.run(
        [devserver.binary(), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    names = dict.fromkeys(
        ["abeyance", "temporalio", *(name for found in contenders for name in found.packages)]
    )
    packages = ", ".join(f"{name} {version_of(name) or 'of this checkout'}" for name in names)
    python = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{python}, {packages}, {server}."


if __name__ == "__main__":
    main()
