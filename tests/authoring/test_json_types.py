"""Schemas tell before a run whether values fit where they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from graph_faults import unplaced
from pydantic import BaseModel, Field, PlainSerializer, RootModel

from abeyance import START, Agent, Graph, append, tool
from abeyance.core.json import Json, canonical
from abeyance.schemas import answer_types
from abeyance.schemas.answer_types import dumped
from abeyance.schemas.json_schema import schema_of
from abeyance.schemas.json_types import kinds, misfit, to_json


class Colour(Enum):
    RED = "r"
    NONE = None


class Inner(BaseModel):
    ok: bool


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (int, {"integer"}),
        (float, {"integer", "number"}),
        (Decimal, {"integer", "number", "string"}),
        (date, {"string"}),
        (int | None, {"integer", "null"}),
        ({"enum": ["y", 1, 1.5, True, None]}, {"string", "integer", "number", "boolean", "null"}),
        (Colour, {"string", "null"}),
        (Inner, {"object"}),
        (Inner | list[Inner], {"object", "array"}),
        ({"enum": [2.0, [1], {}]}, {"integer", "array", "object"}),
        ({"const": "x"}, {"string"}),
        ({"type": ["string", "null"], "allOf": [{"not": {"const": ""}}]}, {"string", "null"}),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, {"integer"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, {"null"}),
    ],
)
def test_the_kinds_of_json_that_a_type_lets_through(given: Any, found: set[str]) -> None:
    assert kinds(schema_of(given)) == found


@pytest.mark.parametrize("schema", [None, True, {}, {"$ref": "#/$defs/a"}, {"$ref": "#"}])
def test_an_empty_schema_allows_every_type(schema: Json) -> None:
    assert len(kinds(schema)) == 7
    assert kinds({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}) == kinds(schema)


class Tagged(BaseModel):
    numbers: set[int] = Field(alias="ns")
    below: dict[str, list[Tagged]] = {}


@dataclass
class Pair:
    numbers: frozenset[int]
    anything: Any = None


def in_both_orders(made: Callable[[list[int]], Any]) -> tuple[Any, Any]:
    """Return what is made of the same numbers, which sets of Python keep in the order they came in."""
    assert str({8, 0}) != str({0, 8})
    return made([0, 8]), made([8, 0])


@pytest.mark.parametrize(
    "made",
    [
        lambda ns: {"a": [set(ns), (1, frozenset(ns))]},
        lambda ns: Tagged(ns=set(ns), below={"b": [Tagged(ns=set(ns))]}),
        lambda ns: Pair(frozenset(ns), anything=Tagged(ns=set(ns))),
        lambda ns: RootModel[list[set[int]]]([set(ns)]),
    ],
)
def test_sets_are_written_in_one_order_at_every_depth(made: Callable[[list[int]], Any]) -> None:
    one, other = in_both_orders(made)
    assert one == other
    assert canonical(to_json(one)) == canonical(to_json(other))

    writer = answer_types.adapter(type(one))
    assert canonical(dumped(writer, one)) == canonical(dumped(writer, other))


def test_the_arguments_of_a_call_have_their_sets_in_one_order() -> None:
    @tool
    def count(numbers: set[int], pair: Pair) -> None: ...

    one, other = in_both_orders(lambda ns: count.read({"numbers": ns, "pair": {"numbers": ns}}))
    assert canonical(one) == canonical(other)


def test_what_a_serializer_makes_of_a_set_is_kept() -> None:
    joined = Annotated[set[str], PlainSerializer(lambda it: [" ".join(sorted(it))])]
    assert dumped(answer_types.adapter(joined), {"b", "a"}) == ["a b"]


def test_a_type_mismatch_is_described_in_words() -> None:
    told = misfit(schema_of(Inner | None), schema_of(float))

    assert told == "it is null or object, and has to be number"
    assert misfit(schema_of(int | None), schema_of(float)) is None
    assert misfit(False, schema_of(int)) == "it is nothing, and has to be integer"


class State(BaseModel):
    number: int = 0
    text: str = ""
    texts: Annotated[list[str], append] = []
    inner: Inner | None = None


def test_answers_of_another_kind_than_their_field_are_a_fault() -> None:
    graph = Graph("g", state=State)
    graph.interrupt("gate", prompt="?", response=Inner, answer_to="number")
    graph.interrupt("list", prompt="?", response=str, answer_to="texts")
    graph.edge(START, "gate")
    graph.edge("gate", "list")

    assert unplaced(graph) == (
        (
            "the interrupt 'gate' has answers that the field 'number' cannot hold: it is object, and "
            "has to be integer"
        ),
        (
            "the interrupt 'list' has answers that the field 'texts' cannot hold: it is string, and "
            "has to be array"
        ),
    )


def test_fields_of_different_kinds_are_not_handed_over() -> None:
    class Other(BaseModel):
        number: list[int] = []
        said: str = ""

    inner = Graph("inner", state=Other)
    inner.interrupt("ask", prompt="?", answer_to="said")
    inner.edge(START, "ask")
    graph = Graph("g", state=State)
    graph.subgraph("mapped", inner, input={"said": "number"}, output={"number": "said"})
    graph.subgraph("same", inner)
    graph.edge(START, "mapped")
    graph.edge("mapped", "same")

    integer, text, array = (
        f"it is {each}, and has to be " for each in ("integer", "string", "array")
    )
    assert unplaced(graph) == (
        f"the nested graph 'mapped', input=: 'number' cannot become 'said': {integer}string",
        f"the nested graph 'mapped', output=: 'said' cannot become 'number': {text}integer",
        f"the nested graph 'same', input=: 'number' cannot become 'number': {integer}array",
        f"the nested graph 'same', output=: 'number' cannot become 'number': {array}integer",
    )


@pytest.mark.parametrize(
    ("source", "output", "field", "told"),
    [
        ("nope", None, "text", "the agent 'work', input=: the state has no field 'nope'"),
        (5, None, "text", "the agent 'work', input=: 5 is invalid: name a field of the state"),
        (lambda: "x", None, "text", "a function of (state) or (state, item)"),
        ("text", None, "number", "output=: its result cannot become 'number': it is string, and"),
        ("text", Inner, "text", "its result cannot become 'text': it is object, and has to be"),
        ("text", list[str], "inner", "it is array, and has to be null or object"),
    ],
)
def test_the_input_and_output_of_an_agent_are_checked_against_the_state(
    source: Any, output: Any, field: str, told: str
) -> None:
    graph = Graph("g", state=State)
    clerk = Agent("clerk", model="test", output=output)
    graph.agent("work", clerk, input=source, output=field)
    graph.edge(START, "work")

    (fault,) = unplaced(graph)
    assert told in fault
