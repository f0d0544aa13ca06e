"""What a prompt may show of the values."""

import pytest
from core_strategies import json_values
from hypothesis import given

from abeyance.core.json import Json, fill, fill_all, look_up

VALUES = {
    "amount": 100,
    "name": "Ada",
    "none": None,
    "flag": False,
    "order": {"id": "A-1", "lines": [{"sku": "x"}], "deep": {"er": "down"}},
    "trap": "{secret} {amount}",
    "secret": "hidden",
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
        "{amount:>10}",
        "{amount!r}",
        "{}",
        "{ amount }",
        "{name.__class__}",
        "{9}",
    ],
)
def test_what_is_no_field_stays_as_it_was_written(text: str) -> None:
    assert fill(text, VALUES) == text


def test_what_was_put_in_is_not_looked_at_again() -> None:
    assert fill("{trap}", VALUES) == "{secret} {amount}"


def test_every_text_in_a_reason_is_filled_and_no_key_is() -> None:
    reason = {"{name}": ["{amount}", {"who": "{name}", "n": 3}], "t": ("{flag}", None)}

    assert fill_all(reason, VALUES) == {
        "{name}": ["100", {"who": "Ada", "n": 3}],
        "t": ["false", None],
    }


@given(json_values())
def test_a_value_without_fields_is_shown_as_it_is(value: Json) -> None:
    assert fill_all(value, {}) == value


def test_a_path_walks_mappings_only() -> None:
    assert look_up(VALUES, "order.deep") == {"er": "down"}
    assert look_up(VALUES, "order.deep.er.x") is None
    assert look_up(VALUES, "nowhere", "missing") == "missing"
    assert look_up(VALUES, "none", "missing") is None
