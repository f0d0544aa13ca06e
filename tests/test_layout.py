"""The three top-level folders are imported only through the package, and imports stay light."""

import functools
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from abeyance import worker

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("activities", "api", "workflows")
ALL = (*(f"abeyance.{folder}" for folder in FOLDERS), "abeyance.adapters", "abeyance.worker")
FRAMEWORKS = ("agent_framework", "agents", "google.adk", "langgraph", "pydantic_ai", "strands")


def said_at_the_root(program: str) -> str:
    """Run a program with the checkout root on the import path, as in any script started there.

    Return the last line that it prints: an import may print warnings before.
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@functools.cache
def modules_after(*imports: str) -> set[str]:
    lines = [*(f"import {name}" for name in imports), "import json, sys"]
    names = json.loads(said_at_the_root("\n".join([*lines, "print(json.dumps([*sys.modules]))"])))
    return set(names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_link_is_relative_and_leads_to_a_real_folder_at_the_top(folder: str) -> None:
    link = ROOT / "abeyance" / folder

    assert link.is_symlink(), f"{link} is not a link: was it checked out with core.symlinks=false?"
    assert link.readlink() == Path("..") / folder
    assert link.resolve() == ROOT / folder
    assert (ROOT / folder / "__init__.py").is_file()


def test_nothing_is_imported_under_the_name_of_a_folder_at_the_top() -> None:
    loaded = modules_after(*ALL)

    assert loaded.issuperset(f"abeyance.{folder}" for folder in FOLDERS)
    assert not loaded.intersection(FOLDERS)


def test_a_worker_of_the_checkout_hides_no_package_of_a_graph() -> None:
    origins = said_at_the_root(
        "import importlib.util, runpy\n"
        "runpy.run_path('worker.py', run_name='a worker that is not started')\n"
        f"print(*(getattr(importlib.util.find_spec(each), 'origin', None) for each in {FOLDERS}))"
    ).split()

    assert len(origins) == len(FOLDERS)
    assert not {*origins} & {str(ROOT / folder / "__init__.py") for folder in FOLDERS}


def test_every_module_that_the_strict_sandbox_shares_is_there() -> None:
    missing = [name for name in worker._SHARED if find_spec(name) is None]

    assert not missing


def test_no_agent_framework_is_imported_before_its_adapter() -> None:
    loaded = modules_after(*ALL)

    assert not loaded.intersection(FRAMEWORKS)
