"""Refusals as values."""

from __future__ import annotations

from abeyance.errors import Code, Refusal


def test_a_refusal_is_equal_to_another_of_the_same_content_only() -> None:
    refusal = Refusal(Code.STALE, "old", a=1)

    assert refusal == Refusal(Code.STALE, "old", a=1)
    assert refusal != Refusal(Code.STALE, "old", a=2)
    assert refusal != Refusal(Code.GONE, "old", a=1)
    assert refusal != "old"
