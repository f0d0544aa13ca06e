"""Declaring a graph, and building it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import pytest
import sample_graphs
from graph_faults import faults
from pydantic import BaseModel, Field, TypeAdapter

from abeyance import END, START, Context, Graph, GraphError, append
from abeyance.core.spec import Fail, FunctionNode, GoTo, GraphSpec, InterruptNode


class Decision(BaseModel):
    approved: bool


class State(BaseModel):
    amount: int = 0
    log: Annotated[list[str], append] = []
    decision: Decision | None = None


def nothing() -> None:
    """Do nothing."""


def refund() -> Graph:
    """START -> assess -> approve or pay; approve -> pay or END."""
    graph = Graph("refund", state=State, description="Pays money back.")

    @graph.node(retries=1, timeout="30s", heartbeat=timedelta(seconds=2))
    async def assess(state: State, ctx: Context) -> None:
        """Say how risky it is.

        And more.
        """

    graph.node(name="pay")(nothing)
    graph.node(name="late")(nothing)
    graph.interrupt(
        "approve",
        prompt="Refund {amount}?",
        reason={"why": ["{amount}"]},
        answer_to="decision",
        requested_capability="refunds:approve",
        timeout="P2D",
        on_timeout="goto:late",
    )
    graph.edge(START, "assess")
    graph.route("assess", lambda s: "approve" if s.amount > 100 else "pay", to=["approve", "pay"])
    graph.edge("approve", "pay", when={"decision.approved": True})
    graph.edge("approve", END, when="else")
    return graph


def graph_of(function: Callable[..., Any] = nothing, **options: Any) -> Graph:
    return sample_graphs.alone(function, node="a", state=State, **options)


asking = partial(sample_graphs.asking, state=State)


# The spec of a declaration


def test_a_graph_becomes_a_spec_that_reads_like_its_declaration() -> None:
    spec = refund().build()

    assess, approve = spec.nodes["assess"], spec.nodes["approve"]
    assert isinstance(assess, FunctionNode)
    assert isinstance(approve, InterruptNode)
    assert (spec.name, spec.description, spec.open_values) == ("refund", "Pays money back.", False)
    assert {name: field.reducer for name, field in spec.fields.items()} == {
        "amount": "last",
        "log": "append",
        "decision": "last",
    }
    assert (assess.description, assess.retry.retries) == ("Say how risky it is.", 1)
    assert (assess.timeout, assess.heartbeat) == (30.0, 2.0)
    assert approve.question.timeout == 2 * 86_400
    assert approve.question.on_timeout == GoTo(node="late")
    assert approve.question.response_schema["required"] == ["approved"]
    assert [(edge.sources, edge.target) for edge in spec.edges] == [
        (("START",), "assess"),
        (("approve",), "pay"),
        (("approve",), "END"),
    ]
    assert [(route.name, route.targets) for route in spec.routes] == [("route", ("approve", "pay"))]


def test_a_spec_is_the_same_after_it_has_travelled() -> None:
    spec, adapter = refund().build(), TypeAdapter(GraphSpec)

    assert adapter.validate_json(adapter.dump_json(spec)).version == spec.version


class Callables:
    def method(self, state: State) -> None: ...

    def __call__(self, state: State, ctx: Context) -> None: ...


async def coroutine(state: State, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (nothing, 0),
        (coroutine, 2),
        (lambda state: None, 1),
        (lambda state, /: None, 1),
        (lambda *both: None, 2),
        (lambda state, *rest: None, 2),
        (lambda state, n=1: None, 1),
        (lambda state, ctx=None: None, 2),
        (lambda state, ctx, n=1: None, 2),
        (lambda state, *, flag=False: None, 1),
        (partial(coroutine, State()), 1),
        (Callables(), 2),
        (Callables().method, 1),
    ],
)
def test_a_node_is_given_as_many_of_state_and_context_as_it_takes(
    function: Callable[..., Any], takes: int
) -> None:
    graph = graph_of(function)

    graph.build()
    assert graph.code["a"].takes == takes


def test_a_decorated_function_stays_the_function_and_names_its_node() -> None:
    graph = Graph("g")
    bare = graph.node(nothing)
    named = graph.node(name="other", local=True)(nothing)
    graph.edge(START, "nothing")
    graph.edge(START, "other")

    assert bare is named is nothing
    assert [*graph.build().nodes] == ["nothing", "other"]


def test_the_routes_of_one_node_get_names_of_their_own() -> None:
    graph = graph_of()
    for _ in range(3):
        graph.route("a", lambda state: END, to=[END])
    graph.route("a", nothing_for, to=[END])
    graph.route("a", nothing_for, to=[END], name="route_5")

    names = [route.name for route in graph.build().routes]
    assert names == ["route", "route_2", "route_3", "nothing_for", "route_5"]


def nothing_for(state: State) -> None: ...


def test_the_default_for_errors_spares_its_own_target_and_the_finally_nodes() -> None:
    graph = Graph("g", on_error="goto:mend")
    for name in ("a", "mend", "tidy"):
        graph.node(name=name)(nothing)
    graph.node(name="stubborn", on_error="fail")(nothing)
    graph.edge(START, "a")
    graph.edge("a", "stubborn")
    graph.finally_("tidy")

    found = {name: getattr(node, "on_error", None) for name, node in graph.build().nodes.items()}
    assert found == {"a": GoTo(node="mend"), "mend": Fail(), "tidy": Fail(), "stubborn": Fail()}


def test_an_answer_may_be_what_its_field_may_be_but_not_the_none_of_no_answer_yet() -> None:
    class Asked(BaseModel):
        age: int | None = Field(default=None, ge=18)
        tags: Annotated[list[str], append] = Field(default=[], max_length=2)

    def schema(field: str) -> Any:
        graph = Graph("g", state=Asked)
        graph.interrupt("ask", prompt="?", answer_to=field)
        graph.edge(START, "ask")
        node = graph.build().nodes["ask"]
        assert isinstance(node, InterruptNode)
        return node.question.response_schema

    assert schema("age") == {"type": "integer", "minimum": 18}
    assert schema("tags") == {"type": "array", "items": {"type": "string"}}


class Early(BaseModel):
    late: Later | None = None


early = Graph("early", state=Early)
early.edge(START, END)


class Later(BaseModel):
    x: int


def test_a_state_may_refer_to_what_is_defined_after_the_graph() -> None:
    early.build()

    assert early.states.patch({"late": {"x": "1"}}) == {"late": {"x": 1}}


# Building


def test_build_gives_the_same_spec_until_something_is_declared() -> None:
    graph = refund()
    first = graph.build()
    again = graph.build()
    graph.node(name="more")(nothing)
    graph.edge("pay", "more")

    assert again is first
    assert "more" in graph.build().nodes
    assert "more" not in first.nodes


def test_the_faults_are_the_same_each_time_and_go_when_they_are_mended() -> None:
    graph = graph_of()
    graph.edge("a", "b")
    first, again = faults(graph), faults(graph)
    graph.node(name="b")(nothing)

    assert first == again
    assert [*graph.build().nodes] == ["a", "b"]


def test_later_changes_of_declared_objects_do_not_reach_the_graph() -> None:
    reason, schema, when = {"x": [1]}, {"type": "object", "required": ["x"]}, {"amount": 1}
    graph = asking(reason=reason, response=schema)
    graph.edge("ask", END, when=when)
    version = graph.build().version
    reason["x"].append(2)
    schema["required"] = []
    when["amount"] = 2
    graph.node(name="more")(nothing)
    spec = graph_spec_without(graph, "more")

    assert spec.version == version


def graph_spec_without(graph: Graph, node: str) -> GraphSpec:
    graph.edge(START, node)
    kept = asdict(graph.build())
    del kept["nodes"][node]
    kept["edges"] = kept["edges"][:-1]
    return TypeAdapter(GraphSpec).validate_python(kept)


PROGRAM = """
import json
from typing import Literal
from pydantic import BaseModel
from abeyance import START, Graph
class State(BaseModel):
    tags: set[str] = {"ash", "birch", "cedar", "date", "elder", "fir"}
    kind: Literal["x", "y"] | None = None
graph = Graph("g", state=State)
graph.interrupt("ask", prompt="?", answer_to="tags")
graph.edge(START, "ask")
print(json.dumps([graph.build().version, graph.states.initial({})]))
"""


async def test_version_and_initial_values_are_the_same_in_every_process() -> None:
    async def said(seed: int) -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
        out, _ = await process.communicate()
        return json.loads(out)

    first, second = await asyncio.gather(said(1), said(2))
    assert first == second


def test_faults_of_a_nested_graph_have_its_name() -> None:
    inner = Graph("inner", state=State)
    inner.edge(START, "nowhere")
    graph = Graph("outer", state=State)
    graph.subgraph("part", inner, input={"nope": "amount"})
    graph.subgraph("self", graph)
    graph.edge(START, "part")
    graph.edge(START, "self")
    with pytest.raises(GraphError) as caught:
        graph.build()
    told = str(caught.value)
    assert "the nested graph 'part': the edge from 'START' to 'nowhere'" in told
    assert "the nested graph 'self' contains this graph" in told


def test_a_nested_graph_needs_values_for_the_fields_that_have_no_default() -> None:
    class Strict(BaseModel):
        needed: str

    inner = Graph("inner", state=Strict)

    @inner.node
    async def work(state: Strict) -> None: ...

    inner.edge(START, "work")
    graph = Graph("outer", state=State)
    graph.subgraph("part", inner)
    graph.edge(START, "part")
    with pytest.raises(GraphError, match="gets no value for 'needed'"):
        graph.build()
