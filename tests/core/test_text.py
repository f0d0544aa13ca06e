"""Text that people and models read, and the values that a prompt may show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core_strategies import json_values
from hypothesis import given

from abeyance.core.json import Json, canonical, fill, fill_all, fill_by, look_up, misformatted
from abeyance.core.policy import Principal
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


VALUES = {
    "amount": 100,
    "name": "Ada",
    "none": None,
    "flag": False,
    "order": {"id": "A-1", "lines": [{"sku": "x"}], "deep": {"er": "down"}},
    "trap": "{secret} {amount}",
    "secret": "hidden",
    "price": 1234.5,
    "decimal": "980.50",
    "huge": "1e999999999",
    "long": 10**400,
}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Refund {amount} to {name}?", "Refund 100 to Ada?"),
        ("{order.id} {order.deep.er}", "A-1 down"),
        ("{none} {flag}", "null false"),
        ("{order.lines}", '[{"sku":"x"}]'),
        ("{name}{name}", "AdaAda"),
        ("no field", "no field"),
        ("{{amount}}", "{amount}"),
        ("{{amount}} is {amount}", "{amount} is 100"),
        ("{{", "{"),
        ('{{"a": {amount}', '{"a": 100'),
    ],
)
def test_a_field_shows_its_value(text: str, filled: str) -> None:
    assert fill(text, VALUES) == filled


@pytest.mark.parametrize(
    "text",
    [
        "{missing}",
        "{order.missing}",
        "{name.upper}",
        "{order.lines.0}",
        "{order.lines[0]}",
        "{amount!r}",
        "{amount:.2f!r}",
        "{amount:>100}",
        "{amount:.100f}",
        "{amount:c}",
        "{missing:.2f}",
        "{}",
        "{ amount }",
        "{name.__class__}",
        "{9}",
    ],
)
def test_braces_that_are_not_a_field_stay_as_written(text: str) -> None:
    assert fill(text, VALUES) == text


def test_a_filled_in_value_is_not_filled_again() -> None:
    assert fill("{trap}", VALUES) == "{secret} {amount}"


def test_every_text_in_a_reason_is_filled_and_no_key_is() -> None:
    reason = {"{name}": ["no. {amount}", {"who": "{name}", "n": 3}], "t": ("is {flag}", None)}

    assert fill_all(reason, VALUES) == {
        "{name}": ["no. 100", {"who": "Ada", "n": 3}],
        "t": ["is false", None],
    }


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{amount:.2f} EUR", "100.00 EUR"),
        ("{price:,.2f}", "1,234.50"),
        ("{amount:>6}|{name:*^7}|{name:.2}", "   100|**Ada**|Ad"),
        ("{amount:05d} {amount:x} {price:.0%}", "00100 64 123450%"),
        ("{order.id:<5}|", "A-1  |"),
        ("{decimal:,.1f}", "980.5"),
        ("{amount:}", "100"),
        ("{{amount:.2f}}", "{amount:.2f}"),
    ],
)
def test_a_format_decides_how_a_number_or_a_text_is_shown(text: str, filled: str) -> None:
    assert fill(text, VALUES) == filled


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{none:.2f} {flag:.2f}", "null false"),
        ("{name:.2f}", "Ada"),
        ("{price:d}", "1234.5"),
        ("{order.lines:>9}", '[{"sku":"x"}]'),
        ("{huge:.2f}", "1e999999999"),
        ("{long:.2f}", f"{10**400}.00"),
    ],
)
def test_a_value_that_its_format_does_not_fit_is_shown_without_it(text: str, filled: str) -> None:
    assert fill(text, VALUES) == filled


def test_a_field_with_an_invalid_format_is_found() -> None:
    text = "{amount:.2f} {{amount!r}} {amount!r} {order.id:>100} {json: yes} {name"

    assert [*misformatted(text)] == ["{amount!r}", "{order.id:>100}", "{json: yes}"]


@given(json_values())
def test_a_value_without_fields_is_shown_as_it_is(value: Json) -> None:
    assert fill_all(value, {}) == value


def test_a_lone_field_in_a_reason_keeps_its_type() -> None:
    reason = [
        "{amount}",
        "{flag}",
        "{order.lines}",
        "{missing}",
        "{trap}",
        "{amount:d}",
        "{{amount}}",
    ]

    assert fill_all(reason, VALUES) == [
        *(100, False, [{"sku": "x"}], "{missing}"),
        *("{secret} {amount}", "100", "{amount}"),
    ]


def test_a_field_that_would_nest_a_reason_too_deep_is_shown_as_text() -> None:
    just: Json = "x"
    for level in range(99):
        just = [just] if level % 2 else {"in": just}
    values = {"just": just, "deep": [just]}

    assert fill_all("{deep}", values) == [just]
    assert fill_all({"it": "{deep}"}, values) == {"it": canonical([just])}
    assert fill_all(["{just}", "{deep}"], values) == [just, canonical([just])]
    assert fill_all({"it": "{just}"}, values) == {"it": just}


def test_a_field_with_a_format_is_left_to_who_shows_it() -> None:
    assert fill_by("{a} {b.c} {a:.2f} {{d}}", str.upper) == "A B.C {a:.2f} {d}"


def test_a_path_walks_mappings_only() -> None:
    assert look_up(VALUES, "order.deep") == {"er": "down"}
    assert look_up(VALUES, "order.deep.er.x") is None
    assert look_up(VALUES, "nowhere", "missing") == "missing"
    assert look_up(VALUES, "none", "missing") is None


@pytest.mark.parametrize(
    "about", [{"subject": "\ud800"}, {"capabilities": ("a", "\ud800")}, {"groups": ("\ud800",)}]
)
def test_nobody_is_called_half_a_character(about: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="has an unpaired surrogate"):
        Principal(**{"subject": "ada", **about})
