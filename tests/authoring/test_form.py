"""The form of an answer, as an operator reads it in one line."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel

from abeyance.workflows.details import form


class Address(BaseModel):
    street: str
    number: int | None = None


class Verdict(BaseModel):
    approved: bool
    grade: Literal["good", "bad"]
    send_to: Address | None = None
    tags: list[str] = []


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (None, "any JSON"),
        ({}, "any JSON"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "object"}, "object"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"const": "yes"}, '"yes"'),
        ({"enum": ["a", 1, None]}, '"a" or 1 or null'),
        ({"type": "array", "items": {"type": "integer"}}, "[integer, ...]"),
        ({"$ref": "#/$defs/none"}, "any JSON"),
        ({"enum": list(range(20))}, "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or ..."),
    ],
)
def test_a_schema_is_told_in_words(schema: Any, shown: str) -> None:
    assert form(schema) == shown


def test_a_model_is_told_with_what_may_be_left_out() -> None:
    assert form(Verdict.model_json_schema()) == (
        '{"approved": boolean, "grade": "good" or "bad", '
        '"send_to"?: {"street": string, "number"?: integer or null} or null, '
        '"tags"?: [string, ...]}'
    )


def test_a_schema_that_contains_itself_ends_somewhere() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}

    assert form(schema) == '{"next"?: {"next"?: {"next"?: {"next"?: object}}}}'


def test_an_object_of_many_fields_is_cut() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(12)}

    assert form({"type": "object", "properties": fields}).endswith('"f7"?: string, ...}')
