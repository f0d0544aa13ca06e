"""Each extra can be installed beside the base, alone, in versions that are not years old."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_EXTRAS = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("extra", sorted(_EXTRAS))
def test_an_extra_resolves_alone(extra: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"]
    done = subprocess.run(
        [*command, f"{_ROOT}[{extra}]"], capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stderr
