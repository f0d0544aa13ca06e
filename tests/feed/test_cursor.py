"""Cursors: opaque to their holder, in order as text, and of one run only."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abeyance import Refusal
from abeyance.history.cursors import Cursor, is_later

_EXECUTION = str(uuid.UUID(int=7))
_PLACES = st.tuples(st.integers(0, 2**52), st.integers(0, 60_000), st.integers(0, 2_000))


def cursor(place: tuple[int, int, int], run_id: str = "r") -> Cursor:
    birth, event, index = place
    return Cursor(run_id=run_id, execution=_EXECUTION, birth=birth, event=event, index=index)


@given(_PLACES)
def test_a_cursor_is_read_as_it_was_written(place: tuple[int, int, int]) -> None:
    assert Cursor.parse("r", str(cursor(place))) == cursor(place)


@given(_PLACES, _PLACES)
def test_cursors_sort_as_text_as_their_places_do(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    assert (str(cursor(one)) < str(cursor(other))) == (one < other)
    assert is_later(str(cursor(other)), str(cursor(one))) == (one < other)
    assert is_later(str(cursor(one)), "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "x" * 5_000,
        str(cursor((1, 2, 3)))[:-1],
        str(cursor((1, 2, 3))) + "0",
        str(cursor((1, 2, 3))).upper(),
        str(cursor((1, 2, 3))).replace("2", "4"),
        str(cursor((1, 2, 3), run_id="another")),
        "\u0661" * 64,
    ],
)
def test_what_is_no_cursor_of_the_run_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(Refusal, match="is not a cursor of the run 'r'") as refused:
        Cursor.parse("r", text)

    assert refused.value.code == "invalid_body"
    assert (
        refused.value.details["cursor"].removesuffix("...")
        == text[: 97 if len(text) > 100 else None]
    )
    assert len(refused.value.message) < 300
