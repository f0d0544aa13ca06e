"""Fields that only the start of a run sets, and the people whom they name."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import pytest
import sample_graphs
from graph_faults import faults
from pydantic import BaseModel

from abeyance import (
    START,
    Context,
    Escalation,
    FromStart,
    Graph,
    Quorum,
    append,
    testing,
    tool,
)
from abeyance.agents.tool_errors import ToolDeclarationError


class Order(BaseModel):
    lead: str = ""


class State(BaseModel):
    requester: Annotated[str, FromStart] = "carol"
    order: Annotated[Order, FromStart] = Order()
    number: Annotated[int, FromStart] = 0
    note: str = ""
    log: Annotated[list[str], append] = []


asking = partial(sample_graphs.asking, state=State, response=bool)


def test_a_field_of_the_start_names_people_wherever_a_question_has_some() -> None:
    quorum = Quorum(2, of=["{order.lead}", "bob"])
    graph = asking(
        assignees=["{requester}", "group:{requester}"], not_by="{order.lead}", quorum=quorum
    )

    assert graph.build().fields["requester"].reducer == "start"


def test_people_from_the_input_may_be_allowed_as_a_capability_from_it_is() -> None:
    allowed: dict[str, Any] = {"from_input": True, "requested_capability": "orders:approve"}

    asking(not_by="{requester}", **allowed).build()
    (fault,) = faults(asking(assignees="requester", **allowed))

    assert "from_input= has no effect without a {field}" in fault


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"assignees": "{nobody}"}, "assignees=: '{nobody}' names people, and 'nobody' is not a"),
        ({"not_by": ["{note}"]}, "not_by=: '{note}' names people, and 'note' is not set by the"),
        ({"quorum": Quorum(1, of=["{log}"])}, "quorum, of=: '{log}' names people, and 'log' is"),
        ({"assignees": ["{number}"]}, "and 'number' is integer, not text"),
        ({"assignees": ["{order.led}"]}, "names people by {order.led}, but 'order' has no 'led'"),
        ({"assignees": ["{requester"]}, "has a brace that is not part of a {field}: correct it"),
        ({"not_by": ["{requester!r}"]}, "has a brace that is not part of a {field}: correct it"),
        ({"not_by": ["group:{requester}"]}, "bars nobody: write {field} and nothing beside it"),
        (
            {"escalate": Escalation(after="1h", to=["{requester}"])},
            "to=: '{requester}' has a brace, and fields of the state name people only in",
        ),
    ],
)
def test_a_name_that_names_nobody_is_a_fault(options: dict[str, Any], told: str) -> None:
    (fault,) = faults(asking(**options))

    assert told in fault


def test_a_graph_without_a_state_cannot_name_people_by_fields() -> None:
    (fault,) = faults(asking(state=None, assignees="{requester}"))

    assert "'requester' is not a field of the state: declare `requester: Annotated[str" in fault


def test_a_rule_names_people_as_an_interrupt_does() -> None:
    graph = Graph("g", state=State)
    graph.node(name="work")(lambda: None)
    graph.edge(START, "work")
    asks = {"kind": "interrupt", "prompt": "Really?", "assignees": ["{note}"]}
    graph.rule("check", when={"node": "work"}, then=[asks])

    assert "the rule 'check', assignees=: '{note}' names people" in faults(graph)[0]


async def test_code_has_no_fields_to_name_people_by() -> None:
    graph = Graph("g", state=State)

    @graph.node(retries=0)
    async def work(state: State, ctx: Context) -> None:
        await ctx.interrupt("ask", assignees=["{requester}"])

    graph.edge(START, "work")
    run = await testing.run(graph)

    assert (run.status, "'{requester}' has a brace" in str(run.state)) == ("failed", True)


def test_a_tool_has_no_fields_to_name_people_by() -> None:
    with pytest.raises(ToolDeclarationError, match="has a brace"):

        @tool(approve=True, not_by=["{requester}"])
        def pay() -> None: ...


def test_a_declaration_cannot_write_a_field_that_only_the_start_sets() -> None:
    (fault,) = faults(asking(response=str, answer_to="requester"))
    assert "answer_to='requester', which only the start of a run sets" in fault

    outer = Graph("outer", state=State)
    outer.subgraph("inner", asking(), output={"requester": "note"})
    outer.edge(START, "inner")
    (fault,) = faults(outer)
    assert "output=: only the start of a run sets 'requester'" in fault


class Loose(BaseModel):
    requester: str = ""
    note: str = ""


@pytest.mark.parametrize("mapped", [None, {"requester": "note"}])
def test_a_nested_graph_has_it_from_such_a_field_alone(mapped: dict[str, str] | None) -> None:
    inner = asking(assignees="{requester}")
    outer = Graph("outer", state=Loose)
    outer.subgraph("inner", inner, input=mapped)
    outer.edge(START, "inner")
    assert "input=: only the start of a run sets 'requester'" in faults(outer)[0]

    outer = Graph("outer", state=State)
    outer.subgraph("inner", inner, input={"requester": "requester"})
    outer.edge(START, "inner")
    assert outer.build()
