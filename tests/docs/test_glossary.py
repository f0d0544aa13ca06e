"""docs/concepts/glossary.md explains each of our own words, once."""

from __future__ import annotations

import re
from collections import Counter

from pages import DOCS, read

_PAGE = read("concepts/glossary.md")
_WORDS = [
    word
    for row in re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]*\|$", _PAGE, re.MULTILINE)
    for word in row.split(", ")
    if word != "word"
]


def test_every_word_stands_there_once() -> None:
    assert len(_WORDS) > 50
    assert [word for word, count in Counter(_WORDS).items() if count > 1] == []


def test_every_word_that_is_set_apart_on_another_page_stands_there() -> None:
    defined = {
        word
        for page in DOCS.glob("**/*.md")
        if page.relative_to(DOCS).parts[0] != "internals"
        for word in re.findall(r"(?<!\*)\*([a-z][a-z -]+)\*(?!\*)", page.read_text("utf-8"))
    }

    assert {"cursor", "fact", "feed"} <= defined
    assert defined - {*_WORDS} == set(), "define them here, or call them otherwise"
