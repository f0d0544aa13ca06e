"""`make chaos-long`: many runs while processes are killed, disks fill up and connections fail.

`python tests/endurance/chaos.py --help` lists the options. The exit code is 1 if anything was lost or
done twice.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from installation import Installation, Program, installation, work_beside
from people import People, faults_of

_LASTS: Final = 3.0
"""Seconds for which a disk is full, a connection is slow, or a clock is wrong."""
_DELAY: Final = 0.2
_JUMP: Final = 3_600
_AT_ONCE: Final = 30


@dataclass(frozen=True)
class Report:
    """The result of a long test."""

    runs: int
    seconds: float
    mishaps: Mapping[str, int]
    repeated_calls: int
    repeated_requests: int
    outcomes: int
    faults: list[str]

    def __str__(self) -> str:
        mishaps = ", ".join(f"{name} {count}" for name, count in sorted(self.mishaps.items()))
        lost = "0 lost, 0 done twice" if not self.faults else "\n".join(self.faults)
        return (
            f"{self.runs} runs in {self.seconds:.0f} s. {lost}.\n"
            f"Mishaps: {mishaps}.\n"
            f"{self.repeated_calls} calls were repeated with their key after a kill, "
            f"{self.outcomes} approved calls were asked about, and people repeated "
            f"{self.repeated_requests} requests."
        )


class Mishaps:
    """The faults that strike an installation, one after the other."""

    def __init__(self, site: Installation, seed: int) -> None:
        self._site = site
        self._random = Random(seed)
        self.count: Counter[str] = Counter()
        self.kinds: Mapping[str, Callable[[], Awaitable[None]]] = {
            "worker killed": lambda: self._killed(self._random.choice(self._site.workers)),
            "API killed": lambda: self._killed(self._site.api),
            "server of tools killed": lambda: self._killed(self._site.tools),
            "Temporal killed": self._temporal_killed,
            "PostgreSQL killed": self._postgres_killed,
            "disk full": self._disk_full,
            "connection slow": self._slow,
            "connections lost": self._lost,
            "clock jumped": self._jumped,
        }

    async def go_on(self, every: float) -> None:
        """Cause one fault after the other: each kind once, then all again in another order."""
        while True:
            for name in self._random.sample([*self.kinds], len(self.kinds)):
                await asyncio.sleep(every)
                await self.kinds[name]()
                self.count[name] += 1
                for program in self._site.programs:
                    program.assert_alive()

    async def _killed(self, program: Program) -> None:
        program.kill()
        await asyncio.sleep(self._random.uniform(0, 1))
        program.start()

    async def _temporal_killed(self) -> None:
        self._site.temporal.kill()
        self._site.network.drop()
        await asyncio.sleep(self._random.uniform(0, 1))
        self._site.temporal.start()
        await self._site.temporal.client()

    async def _postgres_killed(self) -> None:
        self._site.postgres.kill()
        try:
            await asyncio.sleep(self._random.uniform(0, _LASTS))
        finally:
            # The test may end meanwhile, and then drops the database on this server.
            self._site.postgres.start()

    async def _disk_full(self) -> None:
        full = self._site.faults / "full"
        full.touch()
        await asyncio.sleep(_LASTS)
        full.unlink()

    async def _slow(self) -> None:
        self._site.network.delay = _DELAY
        await asyncio.sleep(_LASTS)
        self._site.network.delay = 0

    async def _lost(self) -> None:
        self._site.network.drop()

    async def _jumped(self) -> None:
        program = self._random.choice([*self._site.workers, self._site.api])
        file = self._site.faults / f"jump-{program.pid}"
        file.write_text(str(self._random.choice([-_JUMP, _JUMP])), encoding="utf-8")
        await asyncio.sleep(_LASTS)
        file.unlink()


async def chaos(folder: Path, *, runs: int, every: float, seed: int) -> Report:
    """See `runs` runs through, with a fault `every` so many seconds."""
    began = time.monotonic()
    async with installation(folder) as site:

        def booked(run_id: str, item: str) -> bool:
            return any(booking[1:] == (run_id, item) for booking in site.bookings())

        people, mishaps = People(site.url, booked=booked, seed=seed), Mishaps(site, seed)
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int) -> None:
            async with places:
                await people.see_through(number)

        try:
            await work_beside(mishaps.go_on(every), (one(number) for number in range(runs)))
        finally:
            await people.aclose()
        faults, repeated = faults_of(people.runs, site.bookings())
    return Report(
        runs=len(people.runs),
        seconds=time.monotonic() - began,
        mishaps=mishaps.count,
        repeated_calls=repeated,
        repeated_requests=sum(people.repeated.values()),
        outcomes=people.outcomes,
        faults=[*faults],
    )


def main() -> None:
    """Run the test as the command line asks, and print its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between mishaps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for logs and data, which is kept")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="abeyance-chaos-") as folder:
        report = asyncio.run(
            chaos(asked.keep or Path(folder), runs=asked.runs, every=asked.every, seed=asked.seed)
        )
    print(report)
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
