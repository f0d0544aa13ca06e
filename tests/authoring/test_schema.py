"""The schema of a response, and the faults of answers that do not fit it."""

from __future__ import annotations

import time
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import UUID4, BaseModel, Field, HttpUrl, ValidationError, condecimal

from abeyance.core.json import Json
from abeyance.schemas.answer_types import written_answer
from abeyance.schemas.json_schema import faults_of, schema_of

A_UUID = UUID("a6d5b3a2-1b1e-4c1f-9a1b-0123456789ab")
NIL = UUID(int=0)
LONG_ENOUGH_TO_WEDGE_A_RUN = 2.0


class Address(BaseModel):
    street: str


class Account(BaseModel):
    iban: str = Field(pattern=r"^[A-Z]{2}\d+$")
    addresses: list[Address] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    owner: Address | None = None


def pointers(response: Any, answer: Json) -> list[str]:
    return [fault.pointer for fault in faults_of(schema_of(response), answer)]


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        (
            Account | None,
            {"iban": "de", "addresses": [{"street": 1}]},
            ["/addresses/0/street", "/iban"],
        ),
        (list[Account | None], [None, {"iban": 5}], ["/1/iban"]),
        (Cat | Dog, {"kind": "dog", "owner": {"street": 5}}, ["/owner/street"]),
        (
            Annotated[Cat | Dog, Field(discriminator="kind")],
            {"kind": "cat", "lives": "9"},
            ["/lives"],
        ),
        (Cat | Dog, {"kind": "cow"}, [""]),
        (Account | None, "none", [""]),
        (int | str, [], [""]),
    ],
)
def test_faults_against_a_union_are_those_of_the_likely_member(
    response: Any, answer: Json, expected: list[str]
) -> None:
    assert sorted(set(pointers(response, answer))) == expected


@pytest.mark.parametrize(
    ("response", "fits", "misses"),
    [
        (None, [None, False, 0, "", {}, [1]], []),
        (
            Account,
            [{"iban": "DE12"}, {"iban": "DE1", "more": 1}],
            [{}, {"iban": "de"}, None, "DE12"],
        ),
        (Literal["yes", "no"], ["yes"], ["maybe", None, True]),
        (bool, [True, False], [0, 1, None, "true", ""]),
        (int, [0, 1, 1.0, 10**400], [1.5, "1", True, None]),
        (
            dict[int, str],
            [{}, {"1": "a", "-2": "b"}],
            [{"a": "a"}, {"1.5": "a"}, {"": "a"}, {"1": 1}],
        ),
        (dict[float, str], [{"1": "a", "-2.5e3": "b"}], [{"a": "a"}, {"": "a"}]),
        (UUID4, [str(A_UUID)], ["", "much", str(NIL), str(A_UUID) + "0"]),
        (list[UUID4], [[str(A_UUID)]], [["much"]]),
        (HttpUrl, ["http://a.example", "https://a.example/b?c"], ["ftp://a.example", "a:b", ""]),
        (Decimal, [0, 1.5, "1.50", "-3", "1e5"], ["much", "NaN", "", None]),
        (condecimal(ge=0, decimal_places=2), [0, 19.99, "19.99"], [-1, 0.001, "-5", "much"]),
        (condecimal(decimal_places=2), [0.07, "0.07", "-1"], [0.001, "0.001", "much"]),
        (condecimal(max_digits=4, decimal_places=2), [99.99, "-99.99"], [100, 0.001, "much"]),
        (str | None, [None, "", "a"], [0, False]),
        (type(None), [None], [False, 0, ""]),
        (datetime, ["2026-03-02T09:00:00Z"], ["tomorrow", 5]),
        ({"type": "string", "format": "email"}, ["a@example.com", "a"], [1]),
        ({"type": "string", "format": "unheard of"}, ["anything"], [1]),
        ({"enum": [None, False, 0, ""]}, [None, False, 0, ""], [1, "a", []]),
        ({}, [None, 0, {}], []),
    ],
)
def test_an_answer_fits_what_its_author_asked_for(
    response: Any, fits: list[Json], misses: list[Json]
) -> None:
    def is_taken(answer: Json) -> bool:
        schema = schema_of(response)
        if schema is not None and faults_of(schema, answer):
            return False
        try:
            written_answer(response, answer)
        except ValidationError:
            return False
        return True

    assert [answer for answer in fits if not is_taken(answer)] == []
    assert [answer for answer in misses if is_taken(answer)] == []


def test_faults_point_into_the_answer() -> None:
    answer = {"iban": "x", "addresses": [{"street": "a"}, {"street": 5}, {}]}

    found = faults_of(schema_of(Account), answer)
    assert sorted(fault.pointer for fault in found) == [
        "/addresses/1/street",
        "/addresses/2",
        "/iban",
    ]
    assert '5 is not of type "string"' in {fault.message for fault in found}


def test_a_pointer_escapes_tildes_and_slashes() -> None:
    schema = {"additionalProperties": {"type": "integer"}}

    assert pointers(schema, {"a/b": "x"}) == ["/a~1b"]
    assert pointers(schema, {"m~n": "x"}) == ["/m~0n"]
    assert pointers(schema, {"~1": "x"}) == ["/~01"]


def test_at_most_twenty_faults_are_listed_and_each_is_cut() -> None:
    assert len(pointers(list[int], ["x"] * 100)) == 20
    (fault,) = faults_of({"type": "integer"}, "x" * 5_000)
    assert len(fault.message) == 500


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema.json"},
        {"properties": {"a": {"items": {"$ref": "http://127.0.0.1/a"}}}},
        {"$ref": "file:///etc/hosts"},
        {"$ref": "other.json"},
        {"$ref": "#/$defs/missing"},
        {"$dynamicRef": "https://example.com/schema.json"},
        {"type": "strange"},
        {"pattern": "("},
        {"enum": {1, 2}},
        {"const": float("nan")},
        {"const": "\ud800"},
        {1: 2},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"can be used|not JSON compliant|surrogates"):
        schema_of(schema)


@pytest.mark.parametrize("response", [5, True, object(), ["a", "b"], "Undefined"])
def test_a_response_that_is_neither_a_type_nor_a_schema_is_refused(response: Any) -> None:
    with pytest.raises(ValueError, match="cannot be written as a JSON Schema"):
        schema_of(response)


def test_a_schema_is_a_copy_of_its_authors() -> None:
    given: dict[str, Any] = {"required": ["a"]}
    schema = schema_of(given)
    given["required"].append("b")

    assert schema == {"required": ["a"]}


@pytest.mark.parametrize(
    ("pattern", "text"), [(r"^(a+)+$", "a" * 5_000 + "!"), (r"^(a|aa)+$", "a" * 5_000 + "!")]
)
def test_a_pattern_on_which_others_would_never_end_does_not_fit(pattern: str, text: str) -> None:
    began = time.monotonic()

    assert pointers({"pattern": pattern}, text) == [""]
    assert time.monotonic() - began < LONG_ENOUGH_TO_WEDGE_A_RUN


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"^[\w ]*$", "word " * 2_000), (r"^\S+@\S+$", "a.b" * 30 + "@example.com")],
)
def test_ordinary_patterns_hold_for_long_texts(pattern: str, text: str) -> None:
    assert pointers({"pattern": pattern}, text) == []


def test_a_forbidden_part_is_named() -> None:
    schema = {"properties": {"reason": False}}

    (fault,) = faults_of(schema, {"reason": "because"})
    assert (fault.pointer, fault.message) == ("/reason", "it is not allowed here")
