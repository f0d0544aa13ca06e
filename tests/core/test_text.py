"""Text that people and models read (where it is shown: tests/security/test_shown_to_approvers.py)."""

import json

from abeyance.core.text import UNSEEN, beginning, escaped, truncate, visible


def test_a_text_that_is_too_long_ends_in_dots_within_the_limit() -> None:
    assert (truncate("as it is", 8), truncate("too long for it", 8)) == ("as it is", "too l...")


def test_the_beginning_of_a_text_is_whole_and_dots_follow_if_there_is_more() -> None:
    assert [beginning(text, 4) for text in ("as", "as i", "as it")] == ["as", "as i", "as i..."]


def test_half_of_a_character_is_a_question_mark_so_that_the_text_can_be_sent() -> None:
    assert truncate("a\ud800b", 8).encode() == b"a?b"


def test_the_end_of_a_line_is_one_wherever_it_was_written() -> None:
    assert visible("a\r\nb\rc") == "a\nb<U+000D>c"


def test_json_means_the_same_with_what_cannot_be_seen_in_it_escaped() -> None:
    value = {"a\u202e": ["\x9b2J", "\x7f", "\U000e0041", "größer \\u202e", "\ufeff"]}
    told = escaped(json.dumps(value, ensure_ascii=False))

    assert not UNSEEN.search(told)
    assert json.loads(told) == value
    assert "größer" in told
