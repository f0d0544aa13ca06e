"""A prompt as HTML: the author's Markdown works, and a filled-in value is text that is seen in full."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abeyance.api.inbox.prompts import safe_html
from abeyance.core.json import fill_marked
from abeyance.core.text import visible

pytest.importorskip("markdown_it")
pytest.importorskip("nh3")

PAY = "Pay {payee} the amount of {amount} EUR. Reference: {ref}"


class Seen(HTMLParser):
    """The text and the tags of HTML, as a reader of the page sees it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", list[str]()
        self.feed(html)
        self.close()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def seen(prompt: str, **values: object) -> Seen:
    html = safe_html(*fill_marked(prompt, values))
    assert html is not None
    return Seen(html)


@pytest.mark.parametrize(
    ("payee", "ref"),
    [
        ('Bob 10 EUR\n\n[x]: /u "', '"'),
        ("Bob 10 EUR [](<", ">)"),
        ("Bob\n\n&#x202E;", "x"),
        ("Bob\n\n# Approved by the board", "|a|\n|-|\n|b|"),
        ("[https://bank.example](https://evil.example)", "~~x~~ **y** `z` <b>"),
        ("Bob\n---\n", "```x\n"),
    ],
)
def test_a_value_cannot_hide_reorder_or_forge_a_prompt(payee: str, ref: str) -> None:
    page = seen(PAY, payee=payee, amount=1000000, ref=ref)

    assert (
        page.text.removesuffix("\n") == f"Pay {payee} the amount of 1000000 EUR. Reference: {ref}"
    )
    assert set(page.tags) == {"p", "bdi"}


MARKS = (
    r'** * _ ` ~~ #  ``` | |-| [ ]( ) < > ](< [x]: " \ &amp; &#8238; ! --- === http://a.b/ mailto:a@b.c '
    "javascript:x Pay € ä 5 {a} {b}"
)
SPACES = ["# ", "- ", "1. ", "7. ", "> ", "\n", "\n\n", "    ", " ", "\t", "\u202e", "\U000f0000"]
fragments = st.sampled_from([*MARKS.split(), *SPACES])
texts = st.text(max_size=30) | st.lists(fragments, max_size=8).map("".join)


@given(template=st.lists(fragments, max_size=30).map("".join), a=texts, b=texts)
@example(template="{a}\n\n{b}", a='x\n\n[x]: /u "', b='"')
@example(template="[go](https://shop.example/{a})", a="../x?y", b="")
@example(template='[go]({a} "{b}")', a="javascript:alert(1)", b="x")
@example(template="```{a}\n{b}\n```", a="", b="```\nx")
@example(template="| x |\n|-|\n| {a} | {b} |", a="1", b="2")
@example(template="5. {a}\n9. {b}", a="", b="")
def test_every_value_is_seen_in_full_and_no_letter_is_hidden(template: str, a: str, b: str) -> None:
    prompt, spans = fill_marked(template, {"a": a, "b": b})
    text = seen(template, a=a, b=b).text

    for begin, end in spans:
        assert visible(prompt[begin:end]) in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("prompt", "tags"),
    [
        ("**Refund {a}**\n\nThe customer wrote *twice*.", ["p", "strong", "bdi", "p", "em"]),
        ("# {a}\n\n- one\n- `{a}`", ["h3", "bdi", "ul", "li", "li", "code", "bdi"]),
        ("| {a} |\n|--|\n| 2 |", ["table", "thead", "tr", "th", "bdi", "tbody", "tr", "td"]),
        ("3. {a}\n4. two", ["ol", "li", "bdi", "li"]),
        ("<https://shop.example/{a}>", ["p", "a", "bdi"]),
    ],
)
def test_the_markdown_of_an_author_works(prompt: str, tags: list[str]) -> None:
    assert seen(prompt, a="7*7*7").tags == tags


def test_a_link_shows_where_it_leads() -> None:
    html = safe_html(*fill_marked('[Order](https://shop.example/{id} "T")', {"id": "A/7 ?"}))

    assert html is not None
    assert 'href="https://shop.example/A%2F7%20%3F"' in html
    assert Seen(html).text.strip() == "Order (https://shop.example/A/7 ? T)"


@pytest.mark.parametrize("value", ["javascript:alert(1)", "data:text/html,x"])
def test_a_value_cannot_be_the_address_of_a_script(value: str) -> None:
    assert value not in str(safe_html(*fill_marked("[Order]({url})", {"url": value}))).split(">")[1]


@pytest.mark.parametrize(
    "prompt",
    [
        "Pay Bob [](<10 EUR>)",
        'Pay\n\n[x]: /u "1000000 EUR"',
        "| a |\n|-|\n| b | 1000000 |",
        "```1000000\nx\n```",
        "9. Pay\n1. Bob",
        "Pay &#x202E; Bob",
    ],
)
def test_a_prompt_that_code_wrote_hides_nothing_either(prompt: str) -> None:
    page = seen(prompt)

    assert re.findall(r"\w+", page.text) == re.findall(r"\w+", prompt)
    assert "\u202e" not in page.text
