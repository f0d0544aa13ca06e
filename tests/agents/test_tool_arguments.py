"""Arguments that a model may send to a tool, and the error that it gets if they do not fit."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tool_calls import calling, written

from abeyance import Fatal
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ArgumentsError


class Payee(BaseModel):
    iban: str
    name: str = "?"


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


@tool
def book(
    day: date,
    seats: int,
    price: Decimal,
    speed: Speed = Speed.SLOW,
    with_: Annotated[list[Payee], Field(alias="with", max_length=2)] = [],  # noqa: B006
) -> list[str]:
    """Book seats."""
    return [type(each).__name__ for each in (day, seats, price, speed)] + [p.name for p in with_]


async def test_arguments_become_json_with_their_defaults_and_types_when_the_tool_runs() -> None:
    read = book.read('{"day": "2026-03-02", "seats": "2", "price": 9.5, "with": [{"iban": "X"}]}')

    assert read == {
        "day": "2026-03-02",
        "seats": 2,
        "price": "9.5",
        "speed": "slow",
        "with": [{"iban": "X", "name": "?"}],
    }
    assert book.read(read) == read
    assert await book.run(calling(), read) == ["date", "int", "Decimal", "Speed", "?"]


def test_a_default_that_is_a_list_is_not_shared_by_calls() -> None:
    sent = {"day": "2026-03-02", "seats": 1, "price": 1}
    book.read(sent)["with"].append("x")

    assert book.read(sent)["with"] == []


def test_an_empty_text_is_a_call_without_arguments() -> None:
    @tool
    def now() -> str:
        return "noon"

    assert now.read("") == {}
    assert now.read("{}") == {}


def test_a_refused_call_names_the_fault_and_the_type_of_each_argument() -> None:
    with pytest.raises(ArgumentsError) as refused:
        book.read({"seats": "many", "price": float("nan"), "witth": [], "with": [{"iban": 1}]})

    assert refused.value.text == (
        "'book' was not run, because its arguments do not fit:\n"
        '- day: it is missing; expected: {"format":"date","type":"string"}\n'
        "- seats: Input should be a valid integer, unable to parse string as an integer, but it is "
        '"many"; expected: {"type":"integer"}\n'
        "- price: Input should be a finite number, but it is nan; expected: "
        '{"anyOf":[{"type":"number"},{"pattern":"^[+-]?[0-9]+(\\\\.[0-9]+)?([eE][+-]?[0-9]+)?$",'
        '"type":"string"}]}\n'
        "- with.0.iban: Input should be a valid string, but it is 1; expected: "
        '{"items":{"$ref":"#/$defs/Payee"},"maxItems":2,"type":"array"}\n'
        "- witth: there is no such argument; there are 'day', 'seats', 'price', 'speed', 'with'\n"
        "Call it again with arguments that fit."
    )


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ('{"n": ', "not a JSON object: Invalid JSON: EOF"),
        ("[1]", "one JSON object; this is [1]"),
        ("null", "one JSON object; this is null"),
        ('{"n": "\\ud800"}', "not a JSON"),
        ('{"n": ' + "[" * 150 + "]" * 150 + "}", "deeper than 100"),
        ('{"n": "' + "x" * 500_001 + '"}', "they take 500009 bytes of at most 500000"),
        ('{"n": 1e999}', "not JSON"),
        ({"n": {1, 2}}, "not JSON"),
    ],
)
def test_arguments_that_are_not_a_small_json_object_are_refused(sent: Any, told: str) -> None:
    @tool
    def take(n: Any) -> None: ...

    with pytest.raises(ArgumentsError) as refused:
        take.read(sent)
    assert told in refused.value.text
    assert len(refused.value.text) < 2_100


def test_arguments_that_would_be_others_after_a_wait_are_the_authors_fault() -> None:
    class Doubled(BaseModel):
        n: int

        def model_post_init(self, context: Any) -> None:
            if self.n > 5:
                message = "too many"
                raise ValueError(message)
            self.n *= 2

    take = tool(written("def take(d: Doubled): ...", Doubled=Doubled))

    for sent in (1, 4):
        with pytest.raises(Fatal, match="round trip through JSON"):
            take.read({"d": {"n": sent}})


def test_arguments_whose_types_write_them_in_any_order_are_taken() -> None:
    take = tool(written("def take(n: dict[str, set[int]]): ..."))

    assert sorted(take.read({"n": {"a": [8, 0, 16, 8]}})["n"]["a"]) == [0, 8, 16]
