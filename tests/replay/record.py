"""Record histories of runs, for the replay tests: python tests/replay/record.py [NAME...].

Without names: every scenario that has no stored history yet. With names: these scenarios. Each is
played on a real Temporal server, to its end or to where it waits, and its histories are put into
tests/replay/histories, with their checksums in MANIFEST: NAME.json.gz, or NAME.1.json.gz,
NAME.2.json.gz and so on where the run was handed over.

What is stored is never edited and never overwritten. --again records a scenario that is stored once
more, with today's code, beside what is there: as NAME-2. --anew deletes what is stored of
the named scenarios, or everything, and records it; that is for as long as nothing was released.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    from tests.replay import store
    from tests.replay.recorder import record
    from tests.replay.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="a scenario")
    parser.add_argument("--again", action="store_true", help="record what is stored once more")
    parser.add_argument("--anew", action="store_true", help="delete what is stored, and record it")
    parser.add_argument("--list", action="store_true", help="list the scenarios, and stop")
    options = parser.parse_args(arguments)
    stored = {store.scenario_of(path) for path in store.stored()}
    if options.list:
        for name in SCENARIOS:
            print(name if name in stored else f"{name} (not recorded yet)")
        return 0
    if unknown := sorted(set(options.names) - SCENARIOS.keys()):
        parser.error(f"no such scenario: {', '.join(unknown)}; --list lists them")
    if options.anew:
        store.delete(options.names or stored)
        stored -= set(options.names or stored)
    if options.again and not options.names:
        parser.error("--again needs the names of scenarios")
    if not options.again and (taken := sorted(stored.intersection(options.names))):
        parser.error(
            f"{', '.join(taken)}: stored already, and histories are never edited, only added; "
            "--again records today's code beside what is there"
        )
    # Nodes of scenarios fail on purpose, and the worker tells of each.
    logging.disable(logging.ERROR)
    asyncio.run(record(options.names or [name for name in SCENARIOS if name not in stored]))
    return 0


if __name__ == "__main__":
    # As pytest has it: the scenarios are modules of `tests.replay`, what they use is in tests/support.
    root = Path(__file__).resolve().parent.parent.parent
    sys.path[:1] = [str(root), str(root / "tests" / "support")]
    from abeyance.cli.errors import leave

    leave(main())
