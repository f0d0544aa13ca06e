"""The table of the kinds of questions."""

from __future__ import annotations

from typing import get_args

from abeyance.core.terms import KINDS, Kind


def test_each_kind_of_question_has_a_row() -> None:
    assert set(KINDS) == set(get_args(Kind))
