"""A document becomes the graph that the same declaration in Python becomes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from yaml_documents import Load

from abeyance import START, Backoff, Graph, GraphError, Refusal, load, testing
from abeyance.core.json import Json
from abeyance.core.spec import AskHuman, FunctionNode, GraphSpec

TRIAGE = """
    id: triage
    state: {record_id: str, verdict: str}
    nodes:
      - {id: classify, kind: "triage_nodes:classify"}
      - id: human_gate
        kind: interrupt
        config: {prompt: "Approve remediation for {record_id}?", requested_capability: "runs:respond", timeout: PT5M, on_timeout: halt}
      - {id: act, kind: "triage_nodes:nothing"}
    edges: [[START, classify], [classify, human_gate], [human_gate, act]]
    rules:
      - {id: r1, when: {node: classify, verdict: benign}, then: [{kind: halt, reason: benign}]}
"""  # noqa: E501


class Triage(BaseModel):
    model_config = ConfigDict(title="triage")

    record_id: str | None = None
    verdict: str | None = None


def nodes() -> Any:
    return importlib.import_module("triage_nodes")


def in_python() -> Graph:
    graph = Graph("triage", state=Triage)
    graph.node(name="classify")(nodes().classify)
    graph.interrupt(
        "human_gate",
        prompt="Approve remediation for {record_id}?",
        requested_capability="runs:respond",
        timeout="5m",
    )
    graph.node(name="act")(nodes().nothing)
    graph.edge(START, "classify")
    graph.edge("classify", "human_gate")
    graph.edge("human_gate", "act")
    graph.rule(
        "r1",
        when={"node": "classify", "verdict": "benign"},
        then=[{"kind": "halt", "reason": "benign"}],
    )
    return graph


def test_a_yaml_graph_equals_the_same_graph_in_python(loaded: Load) -> None:
    assert loaded(TRIAGE).build() == in_python().build()


def test_a_yaml_graph_may_be_a_tool_of_mcp(loaded: Load) -> None:
    assert not loaded(TRIAGE).is_mcp_tool
    assert loaded(f"{TRIAGE}    mcp: true").is_mcp_tool


def nodes_only(loaded: Load, *nodes: str, **more: str) -> GraphSpec:
    lines = ["nodes:", *(f"  - {node}" for node in nodes)]
    lines += [f"{key.rstrip('_')}: {value}" for key, value in more.items()]
    return loaded("\n".join(lines)).build()


A, B, C = (f'{{id: {name}, kind: "triage_nodes:nothing"}}' for name in "abc")


# The whole


def test_nodes_without_edges_run_in_their_order(loaded: Load) -> None:
    spec = nodes_only(loaded, A, B, C, finally_="[b]")

    assert [edge.key for edge in spec.edges] == ["START>a", "a>c"]
    assert spec.finally_nodes == ("b",)


@pytest.mark.parametrize(
    ("edge", "key"),
    [
        ("[a, b]", "a>b"),
        ("{from: a, to: b}", "a>b"),
        ("{from: [a, c], to: b, join: arrived}", "a+c>b"),
        ("[[a, c], b]", "a+c>b"),
    ],
)
def test_an_edge_is_a_pair_or_a_mapping(loaded: Load, edge: str, key: str) -> None:
    spec = nodes_only(loaded, A, B, C, edges=f"[[START, a], [START, b], [START, c], {edge}]")

    assert spec.edges[-1].key == key
    assert spec.edges[-1].join == ("arrived" if "arrived" in edge else "all")


def test_a_graph_has_the_name_that_it_says_or_that_of_its_file(loaded: Load) -> None:
    named = loaded(f"id: other\nnodes: [{A}]", "one.yaml")
    unnamed = loaded(f"nodes: [{A}]", "one.yml")

    assert (named.name, unnamed.name) == ("other", "one")


def test_a_graph_says_what_it_is_for_and_what_happens_on_errors(loaded: Load) -> None:
    spec = nodes_only(loaded, A, B, description="Looks at records.", on_error="goto:b")

    assert spec.description == "Looks at records."
    assert spec.successors("a") == {"b"}


# The state


async def test_fields_are_of_their_types_and_null_until_they_are_set(loaded: Load) -> None:
    graph = loaded(
        """
        state:
          {text: str, whole: int, number: float, flag: bool, items: list, mapping: dict, thing: any}
        nodes: [{id: a, kind: "triage_nodes:nothing"}]
        """
    )
    given: dict[str, Json] = {
        "text": "x", "whole": 1, "number": 1.5, "flag": True,
        "items": [1, "a"], "mapping": {"a": 1}, "thing": [None],
    }  # fmt: skip
    full, empty = await testing.run(graph, given), await testing.run(graph, {})

    assert full.values == given
    assert empty.values == dict.fromkeys(given)
    wrongs: list[dict[str, Json]] = [
        {"text": 1}, {"whole": "x"}, {"items": {}}, {"mapping": []}, {"unknown": 1},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(Refusal, match=next(iter(wrong))):
            await testing.run(graph, wrong)


async def test_a_field_may_be_a_json_schema(loaded: Load) -> None:
    graph = loaded(
        """
        state: {risk: {type: string, enum: [low, high]}}
        nodes: [{id: ask, kind: interrupt, config: {prompt: "Which?", answer_to: risk}}]
        """
    )
    run = testing.InMemoryRun(graph)
    await run.start()
    assert (await run.interrupts())[0].response_schema == {
        "type": "string",
        "enum": ["low", "high"],
    }
    with pytest.raises(Refusal, match="medium"):
        await run.respond("ask", "medium")
    await run.respond("ask", "high")

    assert run.values == {"risk": "high"}
    low = await testing.run(graph, {"risk": "low"}, skip_time=False)
    assert low.values == {"risk": "low"}
    with pytest.raises(Refusal, match="risk"):
        await testing.run(graph, {"risk": "medium"})


async def test_a_state_may_be_a_pydantic_model(loaded: Load) -> None:
    graph = loaded(
        'state: "triage_nodes:State"\nnodes: [{id: classify, kind: "triage_nodes:classify"}]'
    )

    assert graph.states.model is nodes().State
    ended = await testing.run(graph, {"record_id": "ok-1"})
    assert ended.values == {"record_id": "ok-1", "verdict": "benign"}


# Nodes


def test_the_options_of_a_function_are_those_of_a_node_in_python(loaded: Load) -> None:
    spec = nodes_only(
        loaded,
        '{id: a, kind: "triage_nodes:act", config: {timeout: 1m, retries: 0, heartbeat: 7, '
        "backoff: {first: 2s, factor: 3, most: 5m}, retry_for: 6h, retry_on: ConnectionError, "
        'local: true, on_error: "goto:b", to: b}}',
        B,
        edges="[[START, a]]",
    )
    graph = Graph("triage")
    graph.node(
        name="a",
        timeout="1m",
        retries=0,
        backoff=Backoff("2s", 3, "5m"),
        retry_for="6h",
        heartbeat=7,
        local=True,
        on_error="goto:b",
        to=["b"],
    )(nodes().act)
    graph.node(name="b")(nodes().nothing)
    graph.edge(START, "a")

    assert spec == graph.build()


@pytest.mark.parametrize("payload", ["payload", "interrupt_payload"])
def test_the_options_of_an_interrupt_are_those_of_an_interrupt_in_python(
    loaded: Load, payload: str
) -> None:
    spec = nodes_only(
        loaded,
        f"{{id: ask, kind: interrupt, config: {{prompt: 'Go?', reason: {{why: '{{x}}'}}, {payload}: "
        "[1], response: 'triage_nodes:Decision', answer_to: x, requested_capability: a:b, timeout: "
        "1d, on_timeout: {default: {approved: false}}}}",
    )
    graph = Graph("triage")
    graph.interrupt(
        "ask",
        prompt="Go?",
        reason={"why": "{x}"},
        payload=[1],
        response=nodes().Decision,
        answer_to="x",
        requested_capability="a:b",
        timeout="1d",
        on_timeout={"default": {"approved": False}},
    )
    graph.edge(START, "ask")

    assert spec == graph.build()


@pytest.mark.parametrize(
    ("option", "one"),
    [
        ("assignees", "ada"),
        ("not_by", "'@starter'"),
        ("remind", "1h"),
        ("escalate", "{after: 1h, to: bob}"),
    ],
)
def test_what_may_be_several_may_be_one_without_a_list(loaded: Load, option: str, one: str) -> None:
    def terms(written: str) -> Any:
        gate = f"{{id: gate, kind: interrupt, config: {{prompt: P, {option}: {written}}}}}"
        (question,) = loaded(f"nodes: [{gate}]\n").build().questions
        return question.terms

    assert getattr(terms(one), option)
    assert terms(one) == terms(f"[{one}]")


def test_a_deadline_may_go_to_a_node_and_an_answer_have_a_schema(loaded: Load) -> None:
    spec = nodes_only(
        loaded,
        "{id: ask, kind: interrupt, config: {prompt: 'Go?', response: {type: boolean}, timeout: 60, "
        "on_timeout: 'goto:b'}}",
        B,
        edges="[[START, ask]]",
    )
    (question,) = spec.questions

    assert (question.response_schema, question.timeout) == ({"type": "boolean"}, 60)
    assert spec.successors("ask") == {"b"}


# Breakpoints


def test_breakpoints_can_be_written_in_yaml(loaded: Load) -> None:
    spec = nodes_only(
        loaded, A, B, C, interrupt_before="'*'", interrupt_after="[b]", on_error="interrupt"
    )
    one = nodes_only(loaded, A, interrupt_before="a")

    assert (spec.interrupt_before, spec.interrupt_after) == (("a", "b", "c"), ("b",))
    assert {getattr(node, "on_error", None) for node in spec.nodes.values()} == {AskHuman()}
    assert one.interrupt_before == ("a",)


# Nested graphs

OUTER = """
    state: {record_id: str, verdict: str}
    nodes:
      - id: legal
        kind: graph
        config: {graph: %s, input: {text: record_id}, output: {verdict: text}, on_error: "goto:last"}
      - {id: last, kind: "triage_nodes:nothing"}
"""


@pytest.mark.parametrize("written", ["nested.yaml", "deep/../nested.yaml", "'made:graph'"])
async def test_a_node_is_a_graph_in_another_document_or_in_python(
    folder: Path, loaded: Load, written: str
) -> None:
    (folder / "deep").mkdir()
    (folder / "made.py").write_text("import abeyance\ngraph = abeyance.load('nested.yaml')\n")
    graph = loaded(OUTER % written)
    sys.modules.pop("made", None)
    ended = await testing.run(graph, {"record_id": "R-7"})

    visited = [
        event.address async for event in ended.events(follow=False) if event.type == "node.started"
    ]
    assert visited == [
        "graph:triage;node:legal;graph:nested;node:say",
        "graph:triage;node:last",
    ]
    assert ended.values["verdict"] == "said R-7"
    assert graph.build().successors("legal") == {"last"}


def test_documents_of_nested_graphs_are_looked_for_from_their_document(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("parts", "elsewhere"):
        (folder / name).mkdir()
    (folder / "triage_nodes.py").rename(folder / "elsewhere" / "triage_nodes.py")
    (folder / "nested.yaml").rename(folder / "parts" / "nested.yaml")
    (folder / "parts" / "middle.yaml").write_text(
        "nodes: [{id: one, kind: graph, config: {graph: nested.yaml}}]"
    )
    (folder / "outer.yaml").write_text(
        "nodes:\n"
        "  - {id: one, kind: graph, config: {graph: parts/middle.yaml}}\n"
        "  - {id: two, kind: graph, config: {graph: parts/middle.yaml}}\n"
    )
    monkeypatch.chdir("elsewhere")

    graph = load(Path("..") / "outer.yaml")
    assert [inner.name for inner in graph.subgraphs.values()] == ["middle", "middle"]


def test_documents_that_contain_each_other_are_refused(folder: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (folder / f"{name}.yaml").write_text(
            f"nodes:\n  - {{id: n, kind: graph, config: {{graph: {other}.yaml}}}}\n"
        )

    with pytest.raises(GraphError) as caught:
        load("a.yaml")
    assert caught.value.faults == (
        "line 2: in 'b.yaml', line 2: 'a.yaml' contains this document: remove the cycle",
    )


# The text


def test_an_anchor_stands_for_what_it_names(loaded: Load) -> None:
    spec = nodes_only(
        loaded,
        "{id: a, kind: 'triage_nodes:nothing', config: &patient {retries: 9, timeout: 1h}}",
        "{id: b, kind: 'triage_nodes:nothing', config: *patient}",
    )

    assert {
        node.retry.retries for node in spec.nodes.values() if isinstance(node, FunctionNode)
    } == {9}


def test_a_file_may_begin_with_a_byte_order_mark(folder: Path, loaded: Load) -> None:
    assert loaded(f"\ufeffnodes: [{A}]").name == "triage"


def test_retired_nodes_have_code_and_are_not_in_the_graph(loaded: Load) -> None:
    plain = loaded(TRIAGE)
    graph = loaded(TRIAGE + "    retired: {say: 'triage_nodes:nothing', legal: nested.yaml}\n")

    assert graph.build() == plain.build()
    assert graph.code["say"].function is nodes().nothing
    assert graph.subgraphs["legal"].name == "nested"
