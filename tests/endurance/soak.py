"""`make soak`: starts, answers and messages for an hour, at the rate that the machine can take.

`python tests/endurance/soak.py --help` lists the options. The program prints tables: the resources of
each process near the beginning and at the end, and how long callers waited.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from installation import Installation, installation, work_beside
from people import People, faults_of

_AT_ONCE: Final = 8
_SAMPLE_EVERY: Final = 5.0
_KIB: Final = 1_024
_MEASURES: Final = ("memory, MiB", "open files", "threads")


@dataclass(frozen=True)
class Sample:
    """The resources in use at one moment, by process and measure."""

    at: float
    used: Mapping[tuple[str, str], float]


def used_by(pid: int) -> Sequence[float]:
    """Return the resident memory in MiB, the open files and the threads of a process."""
    folder = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text("utf-8").splitlines()
    )
    return (
        int(status["VmRSS"].split()[0]) / _KIB,
        len([*(folder / "fd").iterdir()]),
        int(status["Threads"]),
    )


def sample(site: Installation, at: float) -> Sample:
    """Return the current resources of the workers and the API."""
    return Sample(
        at,
        {
            (program.name, measure): value
            for program in (*site.workers, site.api)
            for measure, value in zip(_MEASURES, used_by(program.pid), strict=True)
        },
    )


async def soak(folder: Path, *, seconds: float) -> tuple[str, Sequence[str]]:
    """Work for `seconds`. Return the tables, and what was lost or done twice."""
    async with installation(folder) as site:
        people = People(site.url, booked=lambda *_: False)
        began = time.monotonic()
        samples: list[Sample] = []
        numbers = iter(range(sys.maxsize))

        async def work() -> None:
            while time.monotonic() - began < seconds:
                await people.see_through(next(numbers))

        async def watch() -> None:
            while True:
                samples.append(sample(site, time.monotonic() - began))
                for program in site.programs:
                    program.assert_alive()
                await asyncio.sleep(_SAMPLE_EVERY)

        try:
            await work_beside(watch(), (work() for _ in range(_AT_ONCE)))
        finally:
            await people.aclose()
        faults, _ = faults_of(people.runs, site.bookings())
    return _tables(people, samples, time.monotonic() - began), faults


def _tables(people: People, samples: Sequence[Sample], seconds: float) -> str:
    # Skip the first tenth: imports, caches and connections grow in it.
    tenth = max(1, len(samples) // 10)
    first, last = samples[tenth : 2 * tenth] or samples, samples[-tenth:]
    rows = [
        f"{len(people.runs)} runs in {seconds:.0f} s, {len(people.runs) / seconds:.1f} each second.",
        "",
        "| process | measure | at the beginning | at the end |",
        "|---|---|---:|---:|",
        *(
            f"| {name} | {measure} | {_of(first, name, measure):.0f} | {_of(last, name, measure):.0f} |"
            for name, measure in samples[0].used
        ),
        *(
            f"| caller | {what}, ms, median (p99) | {_ms(found[:part])} | {_ms(found[-part:])} |"
            for what, found in people.latencies.items()
            for part in [max(1, len(found) // 10)]
        ),
    ]
    return "\n".join(rows)


def _of(samples: Sequence[Sample], name: str, measure: str) -> float:
    return median(each.used[name, measure] for each in samples)


def _ms(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return f"{median(ordered) * 1_000:.0f} ({ordered[int(len(ordered) * 0.99)] * 1_000:.0f})"


def main() -> None:
    """Run the test as the command line asks, and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="abeyance-soak-") as folder:
        tables, faults = asyncio.run(soak(Path(folder), seconds=asked.minutes * 60))
    print(tables)
    print("\n".join(faults) if faults else "\n0 lost, 0 done twice.")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
