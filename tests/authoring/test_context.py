"""The idempotency key that a node's code gets."""

from __future__ import annotations

import re
from typing import Any

import pytest
from one_visit import context


def test_the_idempotency_key_is_the_same_in_every_attempt_at_a_visit() -> None:
    first = context(attempt=1, values={"x": 1}).idempotency_key
    later = context(attempt=7, values={"x": 2}, answers={"ask": True}).idempotency_key

    assert first == later
    assert re.fullmatch("[0-9a-f]{32}", first)


def test_the_idempotency_key_is_the_same_under_the_new_name_of_a_node() -> None:
    before = context(address="graph:g;node:pay").idempotency_key
    after = context(address="graph:g;node:payout", first_address="graph:g;node:pay").idempotency_key

    assert before == after


@pytest.mark.parametrize(
    "other",
    [
        {"run_id": "r2"},
        {"execution": "e2"},
        {"address": "graph:g;node:a:2"},
        {"address": "graph:g;node:b"},
    ],
)
def test_the_idempotency_key_is_different_for_every_other_visit(other: dict[str, Any]) -> None:
    assert context(**other).idempotency_key != context().idempotency_key
