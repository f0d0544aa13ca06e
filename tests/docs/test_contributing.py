"""CONTRIBUTING.md names targets and files that exist; the continuous integration runs the checks."""

from __future__ import annotations

import re
from typing import Any

import yaml
from pages import DOCS

_ROOT = DOCS.parent


def test_every_target_and_file_that_it_names_is_there() -> None:
    page = (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall(r"`make (\w+)", page)}
    paths = re.findall(r"`([\w./]+/[\w./]*\w)`", page)

    assert {"check", "demo", "docs", "test"} <= targets
    assert [name for name in targets if f"\n{name}:" not in makefile] == []
    assert len(paths) > 5
    assert [
        path for path in paths if not path.startswith("out/") and not (_ROOT / path).exists()
    ] == []


def test_the_continuous_integration_runs_the_checks_and_the_site_by_actions_of_one_version() -> (
    None
):
    workflow: dict[str, Any] = yaml.safe_load((_ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]

    assert {".ci/run", "make docs"} == {step["run"] for step in steps if "run" in step}
    for step in steps:
        assert "uses" not in step or re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", step["uses"])
