"""Schemas that take endless work are refused where they are declared, offered or asked. Answers that are
too large for an allowed schema are refused before they are validated.

`tests/authoring/test_schema.py` tries regular expressions and references to files and addresses,
`tests/core/test_text.py` templates, `tests/yaml/test_faults.py` YAML, and `tests/clips` texts of CLIPS.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import hostile_mcp
import pytest
import pytest_asyncio
from mcp_site import started
from pydantic import BaseModel, WithJsonSchema
from sample_graphs import asking
from schema_shapes import doubled
from scripted_agents import Script, answered, desk
from temporal_site import ANYBODY as ADA
from temporal_site import begun, refused
from temporalio.client import Client as TemporalClient

from abeyance import (
    START,
    Agent,
    Context,
    Graph,
    GraphError,
    Interrupt,
    McpServer,
    Principal,
    load,
    testing,
    tool,
)
from abeyance.agents.tool import Tool, close_servers
from abeyance.agents.tool_errors import ToolDeclarationError
from abeyance.errors import Code
from abeyance.schemas.json_schema import faults_of, schema_of

TOO_MANY = "more than 10,000 places with its references written out"
"""The fault of the schema that hung a worker: each of 34 definitions refers twice to the next."""
A_MEGABYTE = 1_000_000
LONG_ENOUGH = 2.0
"""In seconds of a processor: no schema and no answer may hold a workflow's worker longer. Temporal gives
the worker up after two."""

IN_EACH_WAY: dict[str, Any] = {
    "anyOf": lambda two: {"anyOf": two},
    "allOf": lambda two: {"allOf": two},
    "oneOf": lambda two: {"oneOf": two},
    "not": lambda two: {"not": two[0], "allOf": two[1:]},
    "if": lambda two: {"if": two[0], "then": two[1]},
    "else": lambda two: {"if": False, "then": two[0], "else": two[1]},
    "properties": lambda two: {"properties": {"a": two[0], "b": two[1]}},
    "patternProperties": lambda two: {"patternProperties": {"^a": two[0], "a$": two[1]}},
    "additionalProperties": lambda two: {
        "properties": {"a": two[0]},
        "additionalProperties": two[1],
    },
    "propertyNames": lambda two: {"propertyNames": two[0], "anyOf": two[1:]},
    "items": lambda two: {"prefixItems": two[:1], "items": two[1]},
    "contains": lambda two: {"contains": two[0], "items": two[1]},
    "dependentSchemas": lambda two: {"dependentSchemas": {"a": two[0], "b": two[1]}},
    "unevaluatedProperties": lambda two: {"allOf": two[:1], "unevaluatedProperties": two[1]},
    "unevaluatedItems": lambda two: {"allOf": two[:1], "unevaluatedItems": two[1]},
    "unevaluated alone": lambda two: {"allOf": two[:1], "unevaluatedProperties": False},
}


@pytest.mark.parametrize("way", IN_EACH_WAY)
def test_references_that_double_are_refused_by_whatever_they_are_combined(way: str) -> None:
    two = IN_EACH_WAY[way]
    named = {f"a{n}": two([{"$ref": f"#/$defs/a{n + 1}"}] * 2) for n in range(40)}
    began = time.thread_time()

    with pytest.raises(ValueError, match=TOO_MANY):
        schema_of({"$ref": "#/$defs/a0", "$defs": {**named, "a40": {"type": "string"}}})
    assert time.thread_time() - began < 0.5


def test_the_schema_that_hung_a_worker_is_a_fault_of_its_graph() -> None:
    with pytest.raises(GraphError, match=f"the interrupt 'ask', response=: .* it has {TOO_MANY}"):
        asking(response=doubled(34)).build()


def test_a_too_large_schema_is_a_fault_of_a_graph_in_yaml(tmp_path: Path) -> None:
    config = {"prompt": "Go?", "response": doubled(34)}
    document = {"nodes": [{"id": "ask", "kind": "interrupt", "config": config}]}
    (tmp_path / "gated.yaml").write_text(json.dumps(document))

    with pytest.raises(GraphError, match=re.escape(TOO_MANY)):
        load(tmp_path / "gated.yaml")


def test_a_too_large_schema_is_a_fault_of_a_state() -> None:
    class State(BaseModel):
        name: Annotated[Any, WithJsonSchema({"anyOf": [{"enum": [0] * 5_000}] * 3})] = None

    with pytest.raises(GraphError, match=f"the state State .* it has {TOO_MANY}"):
        asking(state=State).build()


def test_a_too_large_schema_cannot_be_the_schema_of_a_tool() -> None:
    with pytest.raises(ToolDeclarationError, match=re.escape(TOO_MANY)):

        @tool(schema={"type": "object", **doubled(34)})
        def send(ctx: object, arguments: Mapping[str, Any]) -> None:
            """Send something."""


class Tree(BaseModel):
    name: str
    parts: list[Tree] = []


TO_ITSELF = (
    "a question's answer schema may not refer to itself: '#/$defs/Tree' does. Write out as many levels "
    "as a person may fill in"
)


def test_an_answer_that_may_contain_answers_of_its_type_is_a_fault_of_its_graph() -> None:
    with pytest.raises(GraphError, match=re.escape(f"the interrupt 'ask', response=: {TO_ITSELF}")):
        asking(response=Tree).build()


@pytest.mark.parametrize(("response", "told"), [(Tree, TO_ITSELF), (doubled(34), TOO_MANY)])
async def test_a_visit_whose_code_asks_for_one_fails_and_says_why(response: Any, told: str) -> None:
    run = await testing.run(asking_code(response))

    assert run.status == "failed"
    ending = run.state.ending
    assert ending is not None
    assert ending.error is not None
    assert told in ending.error.message


@tool(approve=True)
async def plant(tree: Tree) -> str:
    """Plant a tree."""
    return " ".join(part.name for part in tree.parts)


async def test_the_arguments_of_a_tool_may_contain_each_other_and_an_approver_edits_them() -> None:
    run = testing.InMemoryRun(clerk(calling("plant", {"tree": {"name": "oak"}}), plant))
    await run.start()

    def edited(*parts: Any) -> Any:
        return {"approved": True, "arguments": {"tree": {"name": "oak", "parts": list(parts)}}}

    refusal = await refused(run.respond("approve", edited({"parts": []})))
    await run.respond("approve", edited({"name": "leaf", "parts": [{"name": "vein"}]}))

    assert refusal.code is Code.INVALID_ANSWER
    assert run.values["report"] == "leaf"


async def test_a_field_of_a_state_may_contain_values_of_its_type() -> None:
    class Garden(BaseModel):
        tree: Tree

    graph = Graph("garden", state=Garden, interrupt_before="water")

    @graph.node
    async def water(state: Garden) -> None:
        assert state.tree.parts[0].parts[0].name == "vein"

    graph.edge(START, "water")
    run = testing.InMemoryRun(graph, {"tree": {"name": "oak"}})
    await run.start()
    tree = {"name": "oak", "parts": [{"name": "leaf", "parts": [{"name": "vein"}]}]}
    (asked,) = await run.interrupts()
    await run.respond(asked.id, {"values": {"tree": tree}, "version": asked.payload["version"]})

    assert run.status == "completed"


def asking_code(response: Any) -> Graph:
    graph = Graph("asking")

    @graph.node
    async def ask(state: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        return {"name": await ctx.interrupt("name", prompt="Your name?", response=response)}

    graph.edge(START, "ask")
    return graph


def texts(letters: str, length: int) -> str:
    drawn = random.Random(7)
    return "".join(drawn.choice(letters) for _ in range(length))


def chained(levels: int, **more: Any) -> dict[str, Any]:
    named = {f"u{n}": {"allOf": [{"$ref": f"#/$defs/u{n + 1}"}], **more} for n in range(levels)}
    return {"$ref": "#/$defs/u0", "$defs": {**named, f"u{levels}": {"properties": {"a": True}}}}


HEAVY = r"(?:x{1,100}){1,100}y"
"""A pattern of ten thousand states, which needs four minutes for a megabyte of x."""
WORST: dict[str, tuple[Any, Any]] = {
    "few places, a megabyte": ({"items": {"type": "string"}}, [1] * 330_000),
    "all places, few values": ({"items": {"enum": [f"c{n}" for n in range(9_900)]}}, ["x"] * 2_000),
    "all places, a megabyte": (
        {"items": {"enum": [f"c{n}" for n in range(9_900)]}},
        ["x"] * 240_000,
    ),
    "combinations": ({"items": doubled(10, False), **doubled(10, False)}, ["x"] * 2_400),
    "alternatives": ({"items": {"anyOf": [{"const": n} for n in range(3_300)]}}, ["x"] * 2_000),
    "misses to list": ({"items": {"required": [f"a{n}" for n in range(150)]}}, [{}] * 320),
    "unique items": ({"uniqueItems": True}, [[n] for n in range(150_000)]),
    "contains": ({"items": {"contains": {"contains": {"const": 5}}}}, [[[1] * 30] * 30] * 350),
    "a text, again and again": (doubled(10, {"maxLength": 5}), "é" * 490_000),
    "many names, a text": (doubled(10, {"pattern": "^é"}, "allOf"), ["é" * 100_000] * 4),
    "heavy names": (
        {"patternProperties": {HEAVY: True}},
        {"x" * 90 + str(n): 1 for n in range(9_000)},
    ),
    "heavy texts": ({"items": {"pattern": HEAVY}}, ["x" * 1_000] * 990),
    "one heavy text": ({"pattern": HEAVY}, "x" * 990_000),
    "as heavy as may be": ({"pattern": HEAVY}, "x" * 1_990),
    "many heavy patterns": (doubled(2, {"pattern": HEAVY}, "allOf"), "x" * 490),
    "states without end": ({"pattern": "(?:[01]*1[01]{200})y"}, texts("01", 30_000) + "y"),
    "unevaluated": (chained(3, unevaluatedProperties=False), {f"b{n}": 1 for n in range(90_000)}),
}


@pytest.mark.parametrize("case", WORST)
def test_validating_any_answer_takes_a_bounded_time(case: str) -> None:
    asked, answer = WORST[case]
    schema = schema_of(asked)
    assert len(json.dumps(answer, ensure_ascii=False).encode()) < 1.5 * A_MEGABYTE
    began = time.thread_time()

    faults_of(schema, answer)
    assert time.thread_time() - began < LONG_ENOUGH


def test_an_answer_too_large_to_validate_is_refused() -> None:
    (told,) = faults_of(schema_of({"items": {"enum": list(range(9_000))}}), [-1] * 3_000)

    assert told.pointer == ""
    assert told.message == (
        "it is too large to be validated against its schema: it has 3,001 values and 0 bytes of text, "
        "and the schema 9,003 places"
    )


def test_a_schema_that_was_pinned_before_there_was_a_bound_takes_no_answer() -> None:
    began = time.thread_time()
    (told,) = faults_of(doubled(34), "Ada")

    assert TOO_MANY in told.message
    assert time.thread_time() - began < 0.5


async def test_answers_that_come_together_take_no_longer_than_one() -> None:
    graph = Graph("asking")

    @graph.node
    async def ask(state: Mapping[str, Any], ctx: Context) -> None:
        await ctx.interrupts([Interrupt(f"q{n}", response={"pattern": HEAVY}) for n in range(20)])

    graph.edge(START, "ask")
    run = testing.InMemoryRun(graph)
    await run.start()
    began = time.thread_time()

    refusal = await refused(run.respond({f"q{n}": "x" * 1_500 + "y" for n in range(20)}))
    assert time.thread_time() - began < LONG_ENOUGH
    assert refusal.code is Code.INVALID_ANSWER
    assert "the schema 1 places; send it in a request of its own" in refusal.message


async def test_an_answer_over_a_real_server_is_refused_and_the_worker_goes_on(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, asking_code({"items": {"enum": list(range(9_000))}})) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        refusal = await refused(run.respond(response=[-1] * 3_000, principal=ADA))
        other = await site.start()
        await site.until(other, "awaiting-input")
        await run.respond(response="Ada", principal=ADA)
        ended = await site.ended(run.run_id)

    assert refusal.code is Code.INVALID_ANSWER
    assert "it is too large to be validated against its schema" in refusal.message
    assert ended.values["name"] == "Ada"
    await site.replays(run.run_id)


def calling(made: str, arguments: dict[str, Any]) -> Script:
    """Return a model that makes one call, and then says its result."""
    return Script([(made, arguments)], answered)


def clerk(model: Script, offered: McpServer | Tool) -> Graph:
    return desk(Agent("clerk", model=model, tools=[offered]))


def hostile(*arguments: str) -> McpServer:
    return McpServer(name="hostile", command=[sys.executable, hostile_mcp.__file__, *arguments])


@pytest_asyncio.fixture(scope="module")
async def servers_closed() -> AsyncIterator[None]:
    """Close the servers that the tests of this module share."""
    yield
    await close_servers()


@pytest.mark.usefixtures("servers_closed")
async def test_a_servers_tool_with_an_endless_schema_is_left_out_and_the_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = calling("honest", {"to": "ada"})
    run = await testing.run(clerk(model, hostile()))

    assert model.offered == ["honest", "email", "ask"]
    assert run.values["report"] == "honest was called"
    (told,) = {each.getMessage() for each in caplog.records if "not offered" in each.getMessage()}
    assert told.startswith("server=hostile tool=endless | not offered: ")
    assert re.search(TOO_MANY, told)


@pytest.mark.usefixtures("servers_closed")
@pytest.mark.parametrize("to", ["ada@example.com", "no address"])
async def test_a_pattern_of_a_server_that_looks_around_is_left_to_the_server(to: str) -> None:
    run = await testing.run(clerk(calling("email", {"to": to}), hostile()))

    assert run.values["report"] == "email was called"


@pytest.mark.usefixtures("servers_closed")
@pytest.mark.parametrize("older", [True, False])
async def test_a_forbidden_elicitation_is_declined_and_the_call_goes_on(
    caplog: pytest.LogCaptureFixture, *, older: bool
) -> None:
    graph = clerk(calling("ask", {}), hostile(*["--older"] * older))
    run = await testing.run(graph)

    assert run.status == "completed"
    assert re.match("decline: the field 'name' has the type", run.values["report"])
    assert any(
        each.getMessage().startswith("server=hostile tool=ask | declined an elicitation")
        for each in caplog.records
    )


@pytest.mark.usefixtures("servers_closed")
async def test_answering_a_servers_question_requires_the_servers_capability(tmp_path: Path) -> None:
    server = started(tmp_path, requested_capability="payments:approve")
    run = testing.InMemoryRun(clerk(calling("transfer", {"amount": 9}), server))
    await run.start()

    (asked,) = await run.interrupts()
    assert (asked.kind, asked.requested_capability) == ("elicitation", "payments:approve")
    answer = {"action": "accept", "content": {"sure": True}}
    refusal = await refused(run.respond("elicit", answer, principal=Principal(subject="intern")))
    await run.respond(
        "elicit", answer, principal=Principal(subject="ada", capabilities=("payments:approve",))
    )

    assert refusal.code is Code.CAPABILITY_REQUIRED
    assert run.values["report"] == "transferred"
