"""Which questions become forms of MCP, and which parts of their schemas the forms keep."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from abeyance.contrib.mcp.forms import form_of
from abeyance.schemas.json_schema import schema_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Answers(BaseModel):
    name: str = Field(min_length=1, pattern="^[A-Z]", description="Who?")
    age: int = Field(ge=0, lt=200)
    share: float | None = Field(default=None, le=1)
    colour: Colour = Colour.RED
    mood: Literal["good", "bad"] | None = None
    also: list[Literal["a", "b"]] = Field(default=[], max_length=2)
    is_sure: bool = False


class Inner(BaseModel):
    x: int


class Nested(BaseModel):
    inner: Inner


def test_an_object_of_plain_fields_is_a_form_with_what_a_form_can_say() -> None:
    form = form_of(schema_of(Answers))

    assert form is not None
    assert not form.is_wrapped
    assert form.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": "Who?", "minLength": 1},
            "age": {"type": "integer", "title": "Age", "minimum": 0},
            "share": {"type": "number", "title": "Share", "maximum": 1.0},
            "colour": {
                "type": "string",
                "title": "Colour",
                "default": "red",
                "enum": ["red", "blue"],
            },
            "mood": {"type": "string", "title": "Mood", "enum": ["good", "bad"]},
            "also": {
                "type": "array",
                "title": "Also",
                "default": [],
                "maxItems": 2,
                "items": {"type": "string", "enum": ["a", "b"]},
            },
            "is_sure": {"type": "boolean", "title": "Is Sure", "default": False},
        },
        "required": ["name", "age"],
    }


def test_a_field_left_out_of_a_form_is_left_out_of_the_answer() -> None:
    form = form_of(schema_of(Answers))

    assert form is not None
    assert form.answer_of({"name": "Ada", "age": 7, "mood": None}) == {"name": "Ada", "age": 7}


@pytest.mark.parametrize(
    ("response", "field"),
    [
        (None, {"type": "string"}),
        ({"type": "boolean"}, {"type": "boolean"}),
        ({"enum": ["yes", "no"]}, {"type": "string", "enum": ["yes", "no"]}),
        ({"const": "seen"}, {"type": "string", "enum": ["seen"]}),
        (
            {"type": "string", "format": "date", "pattern": "^2"},
            {"type": "string", "format": "date"},
        ),
        ({"type": "string", "format": "uuid"}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": "string"}),
    ],
)
def test_an_answer_that_is_not_an_object_is_the_only_field_of_a_form(
    response: Any, field: dict[str, Any]
) -> None:
    form = form_of(response)

    assert form is not None
    assert form.schema["properties"] == {"answer": field}
    assert form.answer_of({"answer": "yes"}) == "yes"
    assert form.answer_of({}) is None


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(Nested),
        True,
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "string"}},
        {"enum": [1, 2]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/unknown"}}},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_a_nested_or_empty_schema_has_no_form(schema: Any) -> None:
    assert form_of(schema) is None
