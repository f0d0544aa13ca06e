"""An author is told all faults of a graph at once."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import pytest
import sample_graphs
from graph_faults import faults, only_fault
from pydantic import BaseModel, EmailStr, Field, SecretStr, model_validator

from abeyance import END, START, Backoff, Graph, GraphError, Refusal, add, append, merge
from abeyance.errors import Code


class Decision(BaseModel):
    approved: bool


class Explained(Decision):
    reason: str = ""

    @model_validator(mode="after")
    def _explained(self) -> Explained:
        if not (self.approved or self.reason):
            raise ValueError("a refusal has a reason")
        return self


class State(BaseModel):
    amount: int = 0
    log: Annotated[list[str], append] = []
    decision: Decision | None = None
    desk: str = Field("", json_schema_extra={"readOnly": True})


class Town(State):
    town: str = ""


def nothing() -> None:
    """Do nothing."""


def graph_of(function: Callable[..., Any] = nothing, **options: Any) -> Graph:
    return sample_graphs.alone(function, node="a", state=State, **options)


asking = partial(sample_graphs.asking, state=State)


def nothing_for(state: State) -> None: ...


# Faults


def test_all_faults_of_a_graph_are_listed_and_numbered() -> None:
    graph = Graph("bad name", state=State, on_error="retry")
    graph.node(name="a", timeout="soon")(nothing)
    graph.node(name="island")(nothing)
    graph.interrupt("ask", prompt="?", on_timeout="goto:x")
    graph.edge(START, "a")
    graph.edge("ghost", "ask", when={"colour": 1})
    graph.finally_("never")

    with pytest.raises(GraphError) as caught:
        graph.build()
    told = str(caught.value)
    assert told.startswith(f"the graph 'bad name' has {len(caught.value.faults)} errors:\n  1. ")
    for number, fault in enumerate(caught.value.faults, 1):
        assert f"\n  {number}. {fault}" in told
    for part in (
        "the graph name 'bad name' must start",
        "on_error='retry' is invalid: use 'fail', 'interrupt' or 'goto:<node>'",
        "the node 'a', timeout=: 'soon' is not a duration",
        "the interrupt 'ask', on_timeout, leads to an unknown node 'x'",
        "starts at an unknown node 'ghost'",
        "looks at 'colour', which is not a field of the state",
        "finally names an unknown node 'never'",
        "the node 'island' is unreachable from START: add an edge, route or goto to it",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timeout": "soon"}, "timeout=: 'soon' is not a duration"),
        ({"timeout": True}, "timeout=: True is not a duration"),
        ({"timeout": float("inf")}, "longer than 100 years"),
        ({"timeout": "0s"}, "has a timeout of 0 s"),
        ({"heartbeat": -1}, "has a heartbeat of -1 s"),
        ({"retries": -1}, "the node 'a', retries=-1 is negative"),
        ({"retries": "3"}, "the node 'a', retries='3' is invalid"),
        ({"retries": True}, "the node 'a', retries=True is invalid"),
        ({"backoff": 5}, "backoff=5 is invalid: use Backoff("),
        ({"backoff": Backoff("1m", 2, "1s")}, "most=1 s, which is shorter than first=60 s"),
        ({"retry_for": "-1s"}, "retry_for: '-1s' is not a duration"),
        ({"retry_for": 0}, "retry_for is 0 s: it must be positive"),
        ({"retry_for": "500ms"}, "retry_for of 0.5 s is over before the first retry"),
        ({"retry_on": ("ConnectionError",)}, "retry_on: 'ConnectionError' is not an exception"),
        ({"retry_on": (int,)}, "retry_on: <class 'int'> is not an exception"),
        ({"retry_on": ()}, "retry_on is empty"),
        ({"on_error": "goto:b"}, "on_error, leads to an unknown node 'b'"),
        ({"on_error": "goto:"}, "on_error, leads to an unknown node ''"),
        ({"on_error": 5}, "on_error=5 is invalid"),
        ({"to": ["b"]}, "to=, leads to an unknown node 'b'"),
        ({"to": [nothing]}, "is not the name of a node"),
        ({"asks": [5]}, "asks=: 5 is not a capability: use a string"),
        ({"local": True, "timeout": "2m"}, "local=True is for work of at most 60 s"),
        ({"name": ""}, "the node name '' must start with a letter"),
    ],
)
def test_a_wrong_option_of_a_node_is_a_fault(options: dict[str, Any], told: str) -> None:
    graph = Graph("g", state=State)
    graph.node(**{"name": "a", **options})(nothing)
    graph.edge(START, options.get("name", "a"))

    assert told in only_fault(graph)


def test_an_option_that_is_gone_is_a_fault_that_names_what_to_write() -> None:
    graph = Graph("g")
    fused: dict[str, Any] = {"fuse": True}
    graph.node(name="a", **fused)(nothing)
    graph.edge(START, "a")
    assert "the node 'a': fuse= is gone: set local on nodes" in only_fault(graph)

    bounded: dict[str, Any] = {"budget": 5}
    with pytest.raises(GraphError, match="the graph: budget= is gone: give each agent one"):
        graph.build(**bounded)
    misspelt: dict[str, Any] = {"retires": 5}
    with pytest.raises(TypeError, match="the node 'a' has no option 'retires'"):
        graph.node(name="a", **misspelt)(nothing)


@pytest.mark.parametrize(
    "function",
    [lambda state, ctx, more: None, lambda state, *, flag: None, lambda *, flag: None, dict],
)
def test_a_node_that_cannot_be_called_is_a_fault(function: Callable[..., Any]) -> None:
    assert only_fault(graph_of(function)) == (
        "the node 'a' must take (state), (state, ctx) or nothing"
    )


def test_a_node_decorator_with_a_text_says_how_to_name_the_node() -> None:
    with pytest.raises(TypeError, match=r"write @graph.node\(name='assess'\)"):
        Graph("g").node("assess")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"response": {"type": "strange"}}, "is not a JSON Schema that can be used"),
        (
            {"response": {"$ref": "https://example.com/a.json"}},
            "outside of the schema: begin references with '#'",
        ),
        ({"response": list["Undefined"]}, "is not fully defined"),  # type: ignore[name-defined]  # noqa: F821
        ({"response": object()}, "cannot be written as a JSON Schema"),
        ({"timeout": "a while"}, "timeout=: 'a while' is not a duration"),
        ({"timeout": 10**400}, "is not a duration"),
        ({"timeout": -1}, "has a timeout of -1 s"),
        ({"on_timeout": "goto:ask"}, "has on_timeout but no timeout: add a timeout"),
        ({"timeout": 1, "on_timeout": "wait"}, "on_timeout='wait' is invalid: use 'halt',"),
        ({"timeout": 1, "on_timeout": {"default": 1, "x": 2}}, "is invalid: use 'halt',"),
        ({"timeout": 1, "on_timeout": "goto:b"}, "on_timeout, leads to an unknown node 'b'"),
        (
            {"response": Decision, "timeout": 1, "on_timeout": {"default": {"approved": "maybe"}}},
            'a default answer that does not fit: /approved: "maybe" is not of type "boolean"',
        ),
        (
            {"answer_to": "amount", "timeout": 1, "on_timeout": {"default": None}},
            'a default answer that does not fit: (the answer): null is not of type "integer"',
        ),
        (
            {
                "answer_to": "amount",
                "response": {"type": ["string", "integer"]},
                "timeout": 1,
                "on_timeout": {"default": "much"},
            },
            "a default answer that does not fit: /amount: Input should be a valid integer",
        ),
        ({"timeout": 1, "on_timeout": {"default": float("nan")}}, "not JSON compliant"),
        (
            {"response": Explained, "timeout": 1, "on_timeout": {"default": {"approved": False}}},
            "a default answer that does not fit: (the answer): a refusal has a reason",
        ),
        ({"answer_to": "nope"}, "has answer_to='nope', which is not a field"),
        ({"reason": {1: "x"}}, "reason=: the key 1 of a JSON mapping is not text"),
        ({"payload": {"x": {1, 2}}}, "payload=: set is not a JSON value"),
        ({"payload": "\ud800"}, "surrogates not allowed"),
        ({"requested_capability": ""}, "requests the capability '', which no principal can have"),
        ({"requested_capability": "*"}, "requests the capability '*', which no principal can have"),
        ({"requested_capability": "a,b"}, "which no principal can have"),
        ({"requested_capability": "a\nb"}, "which no principal can have"),
        ({"prompt": 5}, "the interrupt 'ask', prompt=: 5 is not a string"),
        ({"prompt": "\ud800"}, "the interrupt 'ask', prompt=: 'utf-8' codec can't encode"),
        ({"reason": "x" * 100_001}, "the interrupt 'ask' has 1000"),
        ({"prompt": "x" * 100_001}, "the limit is 100000: store large data elsewhere"),
        ({"requested_capability": 5}, "requests the capability 5, which no principal can have"),
        (
            {"prompt": "{decision!r} {amout:>100}"},
            "prompt=, shows {decision!r}, whose format cannot be used: write",
        ),
        (
            {"requested_capability": "approve:{amout}"},
            "'approve:{amout}' with 'amout', which is not a field of the state: write 'amount'",
        ),
        (
            {"requested_capability": "approve:{amount}"},
            "and whoever starts a run can set 'amount': declare the field as read-only",
        ),
        (
            {"requested_capability": "approve:{desk}"[:-1]},
            "with a brace that is not part of a {field}",
        ),
        (
            {"requested_capability": "{desk}:approve"},
            "which a field alone decides: begin with a word",
        ),
        (
            {"requested_capability": "approve", "from_input": True},
            "from_input= has no effect without a {field}: remove it",
        ),
    ],
)
def test_a_wrong_option_of_an_interrupt_is_a_fault(question: dict[str, Any], told: str) -> None:
    assert told in only_fault(asking(**question))


@pytest.mark.parametrize(
    "question",
    [
        {"prompt": "{{amout}} of {amount}?"},
        {"reason": {"text": "{{amout}}"}, "payload": ["{{amout}}", "{ }", "{amount}"]},
        {"requested_capability": "approve:{desk}"},
        {"requested_capability": "approve:{amount}", "from_input": True},
    ],
)
def test_valid_templates_are_not_faults(question: dict[str, Any]) -> None:
    assert asking(**question).build()


def test_an_open_state_may_have_any_field_and_its_input_can_set_each() -> None:
    graph = Graph("g")
    graph.interrupt("ask", prompt="{anything}?", requested_capability="approve:{team}")
    graph.edge(START, "ask")
    assert "whoever starts a run can set 'team'" in only_fault(graph)


def test_only_a_declared_interrupt_fills_a_capability() -> None:
    graph = Graph("g", state=State)
    graph.node(name="work", asks=["approve:{desk}"])(nothing)
    graph.edge(START, "work")
    assert "only a declared interrupt can fill in a field" in only_fault(graph)


def test_a_nested_graph_gets_a_read_only_field_from_another_alone() -> None:
    inner = asking(requested_capability="approve:{desk}")
    outer = Graph("outer", state=State)
    outer.subgraph("review", inner)
    outer.edge(START, "review")
    assert outer.build()

    for mapped in ({"desk": "amount"}, {"desk": "town"}):
        outer = Graph("outer", state=Town)
        outer.subgraph("review", inner, input=mapped)
        outer.edge(START, "review")
        told = "\n".join(faults(outer))
        assert "'desk' is read-only, and whoever starts a run can set" in told


def test_the_input_of_a_run_cannot_set_a_read_only_field() -> None:
    graph = asking(requested_capability="approve:{desk}")

    with pytest.raises(Refusal) as refused:
        graph.states.initial({"amount": 1, "desk": "red"})
    assert refused.value.code is Code.INVALID_INPUT
    assert refused.value.details["errors"][0]["pointer"] == "/desk"
    assert graph.states.initial(State(amount=1))["desk"] == ""


def test_a_too_deeply_nested_payload_is_a_fault() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]

    assert "deeper than" in only_fault(asking(payload=deep)) or "recursion" in only_fault(
        asking(payload=deep)
    )


def edge(*given: Any, **options: Any) -> Callable[[Graph], None]:
    return lambda graph: graph.edge(*given, **options)


def route(*given: Any, **options: Any) -> Callable[[Graph], None]:
    return lambda graph: graph.route(*given, **options)


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (edge("a", nothing), "is not the name of a node"),
        (edge(nothing, "a"), "is not the name of a node"),
        (edge("a", END, when="otherwise"), "when='otherwise' is invalid: use a mapping or 'else'"),
        (edge("a", END, when={}), "has an empty condition"),
        (edge("a", END, when={"amount": float("inf")}), "not JSON compliant"),
        (edge("a", END, when={1: 2}), "the key 1 of a JSON mapping is not text"),
        (edge("a", END, when={"colour": 1}), "looks at 'colour', which is not a field"),
        (
            edge("a", END, join="some"),
            "the edge from 'a' to 'END': join='some' is invalid: use 'all' or 'arrived'",
        ),
        (route(["a"], lambda state: END, to=[END]), "it begins at one node"),
        (route("a", lambda: END, to=[END]), "cannot be called with (state)"),
        (route("a", lambda state, ctx: END, to=[END]), "cannot be called with (state)"),
        (route("a", "b", to=[END]), "'b' cannot be called with (state)"),
        (lambda graph: graph.node(name="a")(nothing), "two nodes are named 'a'"),
        (lambda graph: graph.interrupt("a", prompt="?"), "two nodes are named 'a'"),
    ],
)
def test_a_wrong_edge_is_a_fault(declare: Callable[[Graph], None], told: str) -> None:
    graph = graph_of()
    declare(graph)

    assert any(told in fault for fault in faults(graph))


def test_two_routes_cannot_be_given_one_name() -> None:
    graph = graph_of()
    graph.route("a", nothing_for, to=[END], name="way")
    graph.route("a", nothing_for, to=[END], name="way")

    assert only_fault(graph) == "two routes from 'a' are named 'way'"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"x": (Annotated[list[str], append, merge], [])},
            "the field 'x' has 2 reducers: keep one",
        ),
        ({"x": (Annotated[str, append], "")}, "has the reducer 'append' but its JSON type is"),
        ({"x": (Annotated[dict[str, int] | None, append], None)}, "but its JSON type is object"),
        (
            {"x": (Annotated[list[str], operator.add], [])},
            "annotated with the function 'add', which is not a reducer",
        ),
        ({"x": (Annotated[int, lambda a, b: a + b], 0)}, "use append, merge, add or union of"),
        ({"x": (SecretStr | None, None)}, "the field 'x' holds a secret"),
        ({"x": (Callable[[], int], None)}, "cannot be used: Cannot generate a JsonSchema"),
        ({"x": ("Undefined", None)}, "cannot be used"),
    ],
)
def test_an_unusable_state_is_a_fault(fields: dict[str, Any], told: str) -> None:
    space: dict[str, Any] = {"__annotations__": {}, "__module__": __name__}
    for name, (annotation, default) in fields.items():
        space["__annotations__"][name] = annotation
        space[name] = default
    graph = Graph("g", state=type("Odd", (BaseModel,), space))
    graph.edge(START, END)

    assert told in only_fault(graph)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[list[Decision], append],
        Annotated[set[str], append],
        Annotated[dict[str, int] | None, merge],
        Annotated[Decision | None, merge],
        Annotated[float, add],
        Annotated[int | float | None, add],
        Annotated[Decimal, add],
        Annotated[Any, append],
    ],
)
def test_a_reducer_with_a_fitting_type_is_not_a_fault(annotation: Any) -> None:
    space = {"__annotations__": {"x": annotation}, "x": None, "__module__": __name__}
    graph = Graph("g", state=type("Fine", (BaseModel,), space))
    graph.edge(START, END)

    assert graph.build().fields["x"].reducer != "last"


def test_an_answer_type_with_a_missing_package_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "email_validator", None)

    told = only_fault(asking(response=EmailStr))

    assert "the interrupt 'ask'" in told
    assert "email-validator is not installed" in told


def test_a_state_that_is_not_a_model_is_a_fault() -> None:
    graph = Graph("g", state=dict)  # type: ignore[arg-type]
    graph.edge(START, END)

    assert (
        only_fault(graph)
        == "the state <class 'dict'> is not a pydantic model: pass a subclass of BaseModel"
    )
