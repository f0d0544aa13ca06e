"""The filters of lists and of events take a plain string for a single name."""

from __future__ import annotations

from typing import Any

import pytest

from abeyance import EventFilter, InboxFilter, RunFilter


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        (RunFilter, "statuses"),
        (RunFilter, "labels"),
        (InboxFilter, "capabilities"),
        (EventFilter, "types"),
        (EventFilter, "capabilities"),
    ],
)
def test_a_plain_string_is_one_name(filters: Any, field: str) -> None:
    assert filters(**{field: "pay"}) == filters(**{field: type(getattr(filters(), field))(["pay"])})
