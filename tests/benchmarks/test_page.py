"""The benchmark command writes its tables into the page of measurements."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = "before\n<!-- measured: steer -->\nold\n<!-- end -->\nafter\n"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(_ROOT / "benchmarks")
    return import_module("page")


def test_new_measurements_replace_the_earlier_ones_on_the_page(page: Any) -> None:
    shown = page.shown(_PAGE, "steer", "new | 1\\2")

    assert shown == ("before\n<!-- measured: steer -->\n\nnew | 1\\2\n\n<!-- end -->\nafter\n")
    assert page.shown(shown, "steer", "new | 1\\2") == shown


def test_a_page_without_a_place_for_a_workload_is_refused(page: Any) -> None:
    with pytest.raises(ValueError, match="no place for pause"):
        page.shown(_PAGE, "pause", "new")


def test_every_workload_has_its_place_on_the_page(page: Any) -> None:
    text = (_ROOT / "docs/internals/measurements.md").read_text(encoding="utf-8")
    workloads = [path.parent.name for path in (_ROOT / "benchmarks").glob("*/workload.py")]

    assert len(workloads) == 10
    for workload in [*workloads, "approval, PostgreSQL"]:
        assert "measured anew" in page.shown(text, workload, "measured anew")
