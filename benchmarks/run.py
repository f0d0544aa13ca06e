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
from contender import Contender, version_of
from measured import Measured, Samples

from abeyance.dev import server as devserver
from abeyance.dev.parent_death import STDIN, leashed

_HERE: Final = Path(__file__).parent
_WORKLOADS: Final = sorted(path.parent.name for path in _HERE.glob("*/workload.py"))
_TRIAL_SECONDS: Final = 7_200


def main() -> None:
    """Run what the command line asks for, and print the tables."""
    asked = _arguments()
    for workload in _WORKLOADS if asked.all else [asked.workload]:
        measured = _measured(workload, asked)
        print(f"## {workload}\n\n{measured}\n", flush=True)
        if asked.write is not None:
            page.write(asked.write, workload, measured)


def _measured(workload: str, asked: argparse.Namespace) -> str:
    work = import_module(f"{workload}.workload")
    contenders = _present(_asked_for(work.CONTENDERS, asked.contenders))
    measured = Measured(contenders, work.COLUMNS)
    load = os.getloadavg()[0]
    for number in range(asked.rounds):
        for contender in contenders:
            print(f"round {number + 1} of {asked.rounds}: {contender.title}", file=sys.stderr)
            measured.add(contender, _trial(workload, contender, asked))
    rounds = "One round" if asked.rounds == 1 else f"{asked.rounds} rounds"
    return "\n\n".join(
        [
            f"{rounds}, the contenders in turns. {_machine(load)}",
            _versions(contenders),
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


def _trial(workload: str, contender: Contender, asked: argparse.Namespace) -> Samples:
    command = [sys.executable, str(_HERE / "trial.py"), workload, contender.name]
    command += ["--quick"] if asked.quick else []
    command += [] if asked.runs is None else [str(asked.runs)]
    done = subprocess.run(
        leashed(os.getpid(), command),
        stdin=STDIN,
        stdout=subprocess.PIPE,
        timeout=_TRIAL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{contender.title} failed in {workload}; what went wrong stands above")
    found: Samples = json.loads(done.stdout.splitlines()[-1])
    return found


def _machine(load: float) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), {memory:.0f} GiB; "
        f"load {load:.1f} before the start."
    )


def _versions(contenders: Sequence[Contender]) -> str:
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
