"""What the first turn of an agent loads: a worker's loop that it holds for long sends no heartbeats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from foreign_office import FRAMEWORKS

_SUPPORT = str(Path(__file__).parents[1] / "support")
_TURN = f"""
import asyncio, sys
sys.path.insert(0, {_SUPPORT!r})
from foreign_office import FRAMEWORKS, Office, desk
from abeyance.testing import InMemoryRun

run = InMemoryRun(desk(FRAMEWORKS[sys.argv[1]](Office([("c1", "look", 1)], "Done."))))
before = set(sys.modules)
asyncio.run(run.start())
print(len(set(sys.modules) - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_a_framework_is_loaded_before_its_first_turn(framework: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TURN, framework],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40
