"""Each extra resolves alone, and two frameworks pass the adapters' tests in their own environments."""

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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", ["google-adk", "strands"])
def test_an_adapter_works_whose_framework_excludes_what_the_tests_run_with(
    extra: str, tmp_path: Path
) -> None:
    python = str(tmp_path / "bin" / "python")
    what = ["pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis"]
    subjects = ["adapters", "adapters_killed", "adapters_on_temporal", "framework_first", "loading"]
    subjects += ["owners_validation", "strands"]
    tests = [f"tests/adapters/test_{each}.py" for each in subjects]
    name = extra.replace("-", "_")
    for command in (
        [sys.executable, "-m", "venv", str(tmp_path)],
        [python, "-m", "pip", "install", "--quiet", f"{_ROOT}[{extra},dev]", *what],
        [python, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", *tests, "-k", name],
    ):
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
