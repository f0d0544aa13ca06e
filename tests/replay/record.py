"""Record histories of runs, for the replay tests: python tests/replay/record.py [NAME...].

Without names: every scenario that has no stored history yet. With names: these scenarios. Each is
played on a real Temporal server, until it ends or waits. Its histories go into tests/replay/histories:
NAME.json.gz, or, after a hand-over, the first and the last as NAME.1.json.gz and NAME.2.json.gz.

Stored histories are not overwritten. --anew replaces the histories of the named scenarios, or all of
them; use it only until the first release.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    from tests.replay import store
    from tests.replay.recorder import record
    from tests.replay.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="a scenario")
    parser.add_argument("--anew", action="store_true", help="replace what is stored")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - SCENARIOS.keys()):
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    stored = {store.scenario_of(path) for path in store.stored()}
    if options.anew:
        for gone in stored - SCENARIOS.keys():
            store.replace(gone, [])
        stored.clear()
    if taken := sorted(stored.intersection(options.names)):
        parser.error(f"{', '.join(taken)}: stored already; --anew replaces what is there")
    # Nodes of scenarios fail on purpose, and the worker would log each failure.
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        # The developer's own records may have the tables of another release.
        os.environ["ABEYANCE_DATABASE_URL"] = f"sqlite:///{folder}/records.db"
        failed = asyncio.run(record(options.names or [*SCENARIOS.keys() - stored]))
    if failed:
        print(f"not recorded: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    # As under pytest: import the scenarios from `tests.replay`, and what they use from tests/support.
    root = Path(__file__).resolve().parent.parent.parent
    sys.path[:1] = [str(root), str(root / "tests" / "support")]
    from abeyance.cli.errors import leave

    leave(main())
