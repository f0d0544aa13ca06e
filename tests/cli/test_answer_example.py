"""The example answer that a person is shown to edit is one that the API accepts."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from answer_samples import Pet
from pydantic import BaseModel

from abeyance import START, Graph
from abeyance.api.schemas import InterruptStatus, RunStatus
from abeyance.cli.formatting import interrupt_lines, run_lines
from abeyance.contrib.mcp.client.elicitation import Elicitation, elicitation_question
from abeyance.core.bounds import Amounts, Use
from abeyance.core.budgets import answer_schema
from abeyance.schemas.example import answer_example
from abeyance.schemas.json_schema import schema_of
from abeyance.testing import InMemoryRun

FORM = {
    "type": "object",
    "properties": {"email": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["email"],
}


class Street(BaseModel):
    name: str
    number: int = 1


class Order(BaseModel):
    street: Street
    express: bool
    items: list[str]
    note: str | None = None


def elicited(schema: Any) -> Any:
    asked = Elicitation(
        name="elicit", server="s", tool="t", message="Who?", requested_schema=schema
    )
    return schema_of(elicitation_question(asked).response)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (elicited(FORM), {"action": "accept", "content": {"email": "..."}}),
        (Order.model_json_schema(), {"street": {"name": "..."}, "express": True, "items": []}),
        ({"enum": ["done", "retry"]}, "done"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 0),
        ({"const": 7}, 7),
        (schema_of(Pet), {"kind": "cat"}),
    ],
)
def test_an_example_answer_fits_its_schema(schema: Any, expected: Any) -> None:
    assert answer_example(schema) == expected
    assert jsonschema_rs.is_valid(schema, answer_example(schema))


async def test_an_example_answer_at_a_breakpoint_changes_nothing() -> None:
    graph = Graph("g", interrupt_before=["work"])
    graph.node(name="work")(lambda state: {"done": True})
    graph.edge(START, "work")
    run = InMemoryRun(graph)
    await run.start()
    (question,) = await run.interrupts()

    await run.respond(question.id, answer_example(question.response_schema))
    assert run.values == {"done": True}


def test_an_example_answer_about_a_budget_is_a_raise() -> None:
    schema = answer_schema(Use(turns=9), Amounts(usd=5.0, turns=9), ("turns",), "clerk")

    assert answer_example(schema) == {"raise_to": {"turns": 10}}
    assert jsonschema_rs.is_valid(schema, answer_example(schema))


def test_a_schema_that_leads_into_itself_comes_to_an_end() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    tree["required"] = ["next"]

    assert answer_example(tree)["next"]["next"]
    assert answer_example({"$ref": "#"}) == "..."
    assert answer_example({"$ref": "#/$defs/missing"}) is None


def asked(**about: Any) -> str:
    entry = {
        "id": "r.1",
        "status": "open",
        "kind": "question",
        "prompt": "Go on?",
        "address": "graph:g;node:n",
        **about,
    }
    return "\n".join(line.text for line in interrupt_lines([entry]))


def test_a_change_by_a_caller_without_read_rights_shows_no_values() -> None:
    run = RunStatus(run_id="refund-7", status="paused").model_dump()
    entry = InterruptStatus(id="r.1", run_id="r", status="open").model_dump()

    told = [[line.text for line in lines] for lines in (run_lines(run), interrupt_lines([entry]))]

    note = "details require the capability runs:read"
    assert told == [["refund-7", "paused", note], ["r.1", "open", note]]


def test_a_question_about_a_call_shows_it_where_its_prompt_does_not() -> None:
    call = {"tool": "transfer", "arguments": {"amount": 5, "to": 'a"da'}}

    shown = asked(kind="approval", reason=call)
    assert 'about transfer(amount=5, to="a\\"da")' in shown
    assert "about" not in asked(
        kind="approval", reason=call, prompt='Run with {"amount":5,"to":"a\\"da"}?'
    )
    lost = asked(
        kind="outcome",
        reason=call,
        response_schema={
            "type": "object",
            "properties": {"action": {"enum": ["done", "retry", "fail"]}},
            "required": ["action"],
        },
    )
    assert 'abeyance respond r.1 \'{"action": "done"}\'' in lost


def test_a_question_shows_the_reason_that_its_author_gave() -> None:
    assert 'because {"candidates": [1, 2]}' in asked(reason={"candidates": [1, 2]})
    assert "because 0" in asked(reason=0)
    assert "because" not in asked()
    assert len(asked(reason="x" * 5_000)) < 500


def test_a_question_shows_what_else_its_approver_agrees_to() -> None:
    call = {"tool": "refund", "arguments": {"amount": 90}}
    preview = {"summary": "90 of 480 EUR would be paid back", "cost": 90}

    assert f"preview {json.dumps(preview)}" in asked(kind="approval", reason=call, preview=preview)
    assert 'payload {"order": [1, 2]}' in asked(payload={"order": [1, 2]})
    assert "payload" not in asked(kind="approval", reason=call, payload={"digest": "sha256:1"})
