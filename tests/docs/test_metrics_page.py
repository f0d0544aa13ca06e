"""docs/reference/metrics.md lists the metrics of the code."""

from __future__ import annotations

import re
from typing import get_args

from pages import read

from abeyance.metrics import METRICS, Checkpoint, Operation, Outcome
from abeyance.views import Metrics

_PAGE = read("reference/metrics.md")


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_table_is_that_of_the_code() -> None:
    rows = [line.strip("|").split("|") for line in _PAGE.splitlines() if "_" in line[:70]]
    listed = {
        (name.strip(" `"), exposed.strip(" `"), kind.strip(), unit.strip(), tuple(quoted(labels)))
        for name, exposed, kind, unit, labels in (row for row in rows if len(row) == 5)
    }

    assert listed == {(m.name, m.exposed, m.kind, m.unit, m.attributes) for m in METRICS}


def test_every_value_of_an_attribute_is_explained() -> None:
    values = {*get_args(Operation), *get_args(Outcome), *get_args(Checkpoint)}

    assert values <= {*quoted(_PAGE), *re.findall(r'status="(\w+)"', _PAGE)}


def test_every_counter_of_a_run_is_explained() -> None:
    assert {*Metrics.model_fields} <= {*quoted(_PAGE)}


def test_every_figure_of_an_alert_is_measured() -> None:
    page = read("how-to/production.md")
    asked = {*re.findall(r"\b(?:interrupt|checkpoint|notification)_\w+", page)}

    assert asked
    assert asked <= {m.exposed for m in METRICS}


def test_every_figure_of_a_query_is_measured() -> None:
    (queries,) = re.findall(r"```promql\n(.*?)```", _PAGE, re.DOTALL)
    asked = set(re.findall(r"(?:interrupt|checkpoint)_\w+", queries))

    assert asked <= {m.exposed for m in METRICS} | {f"{m.exposed}_bucket" for m in METRICS}
