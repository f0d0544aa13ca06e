"""`make capacity`: measure what each unit of the capacity model costs, and compute its tables.

`python benchmarks/run_capacity.py --help` says what can be asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import page
from capacity.measuring import PLAN, QUICK, measured
from capacity.model import Cost, tables
from capacity.rows import ROWS_QUICK, RUNS, beside, table
from run import machine, versions

MEASURED: Final = Path(__file__).parent / "capacity" / "measured.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "how-to" / "capacity.md"
ROWS_PAGE: Final = PAGE.parents[1] / "internals" / "measurements.md"
_SECONDS: Final = 1_200
_FILLING_SECONDS: Final = 3_600


def main() -> None:
    """Measure, print the tables, and write them if that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few runs, to see that it works")
    parser.add_argument("--json", action="store_true", help="print the costs as JSON")
    parser.add_argument(
        "--rows", action="store_true", help="read and write beside millions of rows"
    )
    parser.add_argument("--write", action="store_true", help="keep the costs, and write the page")
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(os.getloadavg()[0]), "versions": versions([])}
    if asked.rows:
        rows = asyncio.run(_rows(ROWS_QUICK if asked.quick else RUNS))
        text = f"{found['machine']} {found['versions']}\n\n{table(rows)}"
        print(json.dumps(rows) if asked.json else text)
        if asked.write:
            page.write(ROWS_PAGE, "rows", text)
        return
    found["units"] = asyncio.run(_measured(quick=asked.quick))
    print(json.dumps(found["units"]) if asked.json else shown(found))
    if asked.write:
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        page.write(PAGE, "capacity", shown(found))


async def _measured(*, quick: bool) -> Mapping[str, Mapping[str, float]]:
    with TemporaryDirectory(prefix="abeyance-capacity-") as folder:
        # PostgreSQL runs as another user.
        Path(folder).chmod(0o711)
        async with asyncio.timeout(_SECONDS):
            units = await measured(Path(folder), QUICK if quick else PLAN)
    return {
        name: {n: round(v, 3) for n, v in asdict(cost).items() if v} for name, cost in units.items()
    }


async def _rows(runs: int) -> Mapping[str, Mapping[str, float]]:
    with TemporaryDirectory(prefix="abeyance-rows-") as folder:
        Path(folder).chmod(0o711)
        async with asyncio.timeout(_FILLING_SECONDS):
            return await beside(Path(folder), runs)


def shown(found: Mapping[str, Any]) -> str:
    """Return what was measured as the page shows it."""
    units = {name: Cost(**cost) for name, cost in found["units"].items()}
    return f"{found['machine']} {found['versions']}\n\n{tables(units)}"


if __name__ == "__main__":
    main()
