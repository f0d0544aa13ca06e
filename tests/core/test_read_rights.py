"""What a caller who is bound to labels may see."""

from __future__ import annotations

import pytest

from abeyance.core.policy import ALL_RUNS, ReadRights

FINANCE = ReadRights.of({"team": ["finance"], "region": ["de", "at", "de"]})


@pytest.mark.parametrize(
    ("labels", "may"),
    [
        ({"team": "finance", "region": "at", "more": "x"}, True),
        ({"team": "finance", "region": "fr"}, False),
        ({"team": "finance"}, False),
        ({"team": "Finance", "region": "de"}, False),
        ({}, False),
    ],
)
def test_a_run_is_seen_if_each_label_has_one_of_its_values(
    labels: dict[str, str], may: bool
) -> None:
    assert FINANCE.may_read(labels) is may
    assert ALL_RUNS.may_read(labels)
    assert (FINANCE.is_bound, ALL_RUNS.is_bound) == (True, False)


def test_a_new_run_gets_the_labels_that_can_have_one_value_only() -> None:
    assert FINANCE.filled({"x": "y"}) == {"x": "y", "team": "finance"}
    assert FINANCE.filled({"team": "legal"}) == {"team": "legal"}
    assert ALL_RUNS.filled({}) == {}


def test_the_order_of_labels_and_values_does_not_matter() -> None:
    assert ReadRights.of({"region": ["at", "de"], "team": ["finance"]}) == FINANCE
