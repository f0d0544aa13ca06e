"""A short version of `make chaos-long`: a few runs beside a few faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_twelve_runs_beside_faults_lose_and_repeat_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "endurance/chaos.py", "--runs", "12", "--every", "2", "--keep", tmp_path],
        cwd=_TESTS,
        env={"PYTHONPATH": f"{_TESTS.parent}:{_TESTS / 'support'}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "12 runs" in ended.stdout
    assert "0 lost, 0 done twice" in ended.stdout
