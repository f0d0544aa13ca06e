"""The parts of a model's text that a worker sends while the model speaks, and that a watcher gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abeyance.live_text import LiveText, joined, merged, news, parts, tail


def said(text: str, offset: int = 0, turn: int = 1) -> LiveText:
    return LiveText(turn=turn, text=text, offset=offset)


def test_a_long_text_is_sent_as_its_last_characters_that_fit_and_where_they_begin() -> None:
    assert tail(2, "abcdef", 4) == said("cdef", 2, turn=2)
    assert tail(1, "ab", 4) == said("ab")


def test_a_character_is_never_sent_in_half() -> None:
    assert tail(1, "aüü", 3) == said("ü", 2)
    assert tail(1, "a\ud800", 4) == said("a?")


@given(st.text(max_size=40), st.integers(1, 9))
def test_the_parts_of_a_text_make_the_text_again(text: str, size: int) -> None:
    whole = said(text, 5)
    sent = parts(whole, size)

    assert joined(sent) == (whole if text else None)
    assert all(0 < len(part.text) <= size for part in sent)
    assert [part.offset for part in sent] == [5 + size * number for number in range(len(sent))]


def test_a_reader_gets_what_came_since() -> None:
    assert news(None, said("The letter")) == said("The letter")
    assert news(said("The"), said("The letter")) == said(" letter", 3)
    assert news(said("The letter"), said("The letter")) is None
    assert news(None, None) is None
    assert news(said("The"), said("", 3)) is None


def test_a_cut_tail_continues_the_text_read_before() -> None:
    assert news(said("abcd", 10), said("cdef", 12)) == said("ef", 14)


@pytest.mark.parametrize(
    "now",
    [
        said("Another letter"),
        said("Th"),
        said("The letter", turn=2),
        said("far away", 40),
        said("other", 7),
    ],
)
def test_a_text_that_does_not_continue_what_was_read_is_sent_as_it_is(now: LiveText) -> None:
    assert news(said("The lett", 5), now) == now


def test_a_text_that_is_no_longer_there_is_taken_back() -> None:
    assert news(said("The letter"), None) == said("")


def test_a_reader_puts_new_text_where_it_belongs_and_sees_where_some_is_missing() -> None:
    assert merged("The ", "letter", 4) == "The letter"
    assert merged("The letter", "A", 0) == "A"
    assert merged("The", "its way", 20) == "The…its way"


@given(st.lists(st.tuples(st.text(max_size=6), st.booleans()), max_size=12), st.integers(1, 30))
def test_an_occasional_reader_ends_with_the_whole_text(
    pieces: list[tuple[str, bool]], limit: int
) -> None:
    whole, text, seen = "", "", None
    for piece, is_read in [*pieces, ("", True)]:
        whole += piece
        if is_read:
            now = tail(1, whole, limit) if whole else None
            new = news(seen, now)
            text, seen = text if new is None else merged(text, new.text, new.offset), now

    assert text.rpartition("…")[2] == whole[len(whole) - len(text.rpartition("…")[2]) :]
    if len(whole.encode()) <= limit:
        assert text == whole
