"""The faults of a document that cannot be loaded: all of them, each with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from yaml_documents import Faults

from abeyance import GraphError, load

TEN = """\
id: triage
state: {record_id: str, verdict: strng}
nodes:
  - id: classify
    kind: "triage_nodes:clasify"
    config: {timeout: soon}
  - id: gate
    kind: interrupt
    config:
      prompt: Go on
      requested_capabilty: "runs:respond"
      on_timeout: halt
      on_timeout: goto:act
  - {id: act, kind: "triage_nodes:act", config: {on_error: "goto:nowhere"}}
  - {id: gate, kind: "triage_nodes:nothing"}
edges:
  - [START, classify]
  - [classify, gat]
  - {from: gate, to: act, when: {verdct: benign}}
rules:
  - {id: r1, when: "(verdict (value benign))", then: [{kind: halt}]}
"""


EXPECTED = [
    "line 2: 'verdict' should be 'str', 'int', 'float', 'bool', 'list', 'dict', 'any' or 'from_start'",
    "line 5: the module 'triage_nodes' has no attribute 'clasify'",
    "line 6: 'timeout': 'soon' is not a duration: write seconds, '30s', '5m', '2h', '2d' or ISO 8601",
    "line 11: 'requested_capabilty' is not a key here: use prompt, reason, payload,",
    "line 13: the key 'on_timeout' is repeated, first in line 12: remove one",
    "line 14: the node 'act', on_error, leads to an unknown node 'nowhere'",
    "line 15: two nodes are named 'gate'",
    "line 18: the edge from 'classify' to 'gat' leads to an unknown node 'gat'",
    "line 19: the edge from 'gate' to 'act' looks at 'verdct', which is not a field of the state",
    "line 21: the rule 'r1': CLIPS says: A literal restriction value found in CE #1 does not match the",
]


def told_as(told: list[str], expected: list[str]) -> bool:
    return len(told) == len(expected) and all(map(str.startswith, told, expected))


def test_all_faults_of_a_file_are_listed_with_their_lines(faults: Faults) -> None:
    told = faults(TEN)

    assert told_as(told, EXPECTED), told


UNREADABLE = """\
nodes:
  - {id: start, kind: "triage_nodes:nothing"}
  - {id: odd, kind: no_such_code, colour: red}
  - {id: gate, kind: interrupt, config: {promt: Well, timeout: PT5X, on_timeout: "goto:nowhere"}}
edges: [[START, start], [start], {from: start, to: gat, when: 5}, [start, odd]]
rules:
  - {id: r, when: {node: start}, then: [{kind: hal}]}
  - {id: s, when: {node: ghost}, then: [{kind: halt, why: x}]}
"""


def test_consequences_of_an_unreadable_part_are_not_faults(faults: Faults) -> None:
    told = faults(UNREADABLE)

    # No fault says that the gate has no prompt and no timeout, and is unreachable.
    expected = [
        "line 3: 'kind' should be interrupt, graph, or module:function, not 'no_such_code'",
        "line 3: 'colour' is not a key here",
        "line 4: 'promt' is not a key here",
        "line 4: 'timeout': 'PT5X' is not a duration",
        "line 4: the interrupt 'gate', on_timeout, leads to an unknown node 'nowhere'",
        "line 5: edges[1][1] is missing",
        "line 5: 'when' should be a mapping, or else, not 5",
        "line 5: the edge from 'start' to 'gat' leads to an unknown node 'gat'",
        "line 7: the kind 'hal' is unknown",
        "line 8: 'why' is not a key here",
        "line 8: the rule 's' looks at an unknown node 'ghost'",
    ]
    assert told_as(sorted(told), sorted(expected)), told


NODE = 'nodes: [{id: a, kind: "triage_nodes:nothing"}]\n'
GATE = "nodes: [{id: a, kind: interrupt, config: {prompt: Go, %s}}]\n"
TWO = """\
nodes:
  - {id: a, kind: "triage_nodes:nothing"}
  - {id: b, kind: "triage_nodes:nothing"}
"""
NESTED = "nodes: [{id: a, kind: graph, config: {%s}}]"
RULE = TWO + "rules:\n  - {id: r, %s}\n"

ONE_FAULT = {
    # the text
    "line 1: the document is not a mapping: write at least the key 'nodes'": "# nothing",
    "line 2: invalid YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'": (
        "nodes: [a\n"
    ),
    "line 2: invalid YAML: expected a single document in the stream but found another document": (
        "nodes: []\n---\nnodes: []\n"
    ),
    "line 2: invalid YAML: special characters are not allowed (U+0001)": "id: a\nx: \x01",
    "line 1: invalid YAML: found undefined alias 'x'": "nodes: *x",
    "line 1: nested deeper than 60 levels, or an anchor within itself": "nodes: &x [*x]",
    "line 2: nested deeper than 60 levels": "nodes:\n  " + "[" * 70 + "]" * 70,
    "line 2: '5' cannot be a key: write a string, in quotes": NODE + "5: a\n",
    "line 2: a list or mapping cannot be a key: write a string, in quotes": NODE + "[a]: a\n",
    "line 2: a merge key (<<) is not YAML 1.2: write out the keys": NODE + "<<: {id: a}\n",
    "line 2: the tag !!python/name:os.system is not supported: write plain values": (
        NODE + "state: !!python/name:os.system ''\n"
    ),
    "line 1: the tag !!set is not supported: write plain values": GATE % "payload: !!set {a}",
    "line 1: 'x' is not a valid int": GATE % "payload: !!int x",
    "line 1: .inf is not a JSON number": GATE % "payload: .inf",
    "line 1: 1e999 is not a JSON number": GATE % "payload: 1e999",
    'line 1: 12345678901234567.89 has too many digits: write fewer, or "12345678901234567.89" for a '
    "Decimal": GATE % "payload: {fee: 12345678901234567.89}",
    # the form
    "line 1: 'nodes' is missing": "id: a",
    "line 1: there are no nodes: add one": "nodes: []",
    "line 1: 'nodes' should be a valid list, not {}": "nodes: {}",
    "line 2: 'flow' is not a key here: use id, description, state, nodes, edges, "
    "rules, finally, retired, on_error, interrupt_before, interrupt_after, mcp": NODE + "flow: 1",
    "line 2: 'budget' is gone: give each agent one, as Agent(..., budget=Budget(...))": NODE
    + "budget: {usd: 5}",
    "line 1: 'fuse' is gone: set local on nodes that are done within seconds": (
        'nodes: [{id: a, kind: "triage_nodes:nothing", config: {fuse: true}}]'
    ),
    "line 2: 'id' should be a valid string, not 5": NODE + "id: 5",
    "line 2: 'state' should be a mapping of fields to types, or module:Class, not []": (
        NODE + "state: []"
    ),
    "line 2: 'my field' should be letters, digits and '_', a letter first, not 'my field'": (
        NODE + "state: {my field: str}"
    ),
    "line 2: 'on_error' should be fail, interrupt or goto:<node>, not 'ignore'": NODE
    + "on_error: ignore",
    "line 1: nodes[0] should be a mapping, not 5": ("nodes: [5]"),
    "line 1: 'id' is missing": "nodes: [{kind: interrupt, config: {prompt: Go}}]",
    "line 1: 'kind' should be interrupt, graph, or module:function, not 'interupt'": (
        "nodes: [{id: a, kind: interupt}]"
    ),
    "line 1: 'on_timeout' should be halt or goto:<node>, not 'stop'": GATE % "on_timeout: stop",
    "line 1: 'on_timeout' should be halt, goto:<node> or {default: <answer>}, not 5": (
        GATE % "on_timeout: 5"
    ),
    "line 1: 'interrupt_payload' and 'payload' are the same: write one of them": (
        GATE % "payload: 1, interrupt_payload: 2"
    ),
    "line 1: 'response' should be module:name, not 'Decision'": GATE % "response: Decision",
    "line 4: edges[0] should be a pair [from, to], or a mapping with from and to, not 'START'": (
        TWO + "edges: [START, [START, a], [a, b]]"
    ),
    "line 5: the kind 'stop' is unknown: use one of 'assert', 'goto', 'halt', 'interrupt', 'parallel', "
    "'retract', 'retry'": (RULE % "when: {node: a}, then: [{kind: stop}]"),
    "line 5: 'kind' is missing": RULE % "when: {node: a}, then: [{node: a}]",
    "line 5: 'node' is missing": RULE % "when: {node: a}, then: [{kind: goto}]",
    "line 5: the rule 'r', retry, leads to an unknown node 'd'": (
        RULE % "when: {node: a}, then: [{kind: retry, node: d}]"
    ),
    "line 5: 'backoff' should be greater than or equal to 0, not -1.0": (
        RULE % "when: {node: a}, then: [{kind: retry, backoff: -1}]"
    ),
    "line 5: 'when' should be a mapping, or CLIPS text, not 5": RULE % "when: 5, then: []",
    "line 5: 'slots' should be a valid dictionary, not 5": (
        RULE % "when: (a), then: [{kind: assert, fact: b, slots: 5}]"
    ),
    "line 2: 'interrupt_before' should be a list of names of nodes, or '*', not 5": (
        NODE + "interrupt_before: 5"
    ),
    "line 1: 'graph' should be a YAML file, or module:name, not 'inner'": NESTED % "graph: inner",
    "line 1: 'config' is missing": "nodes: [{id: a, kind: graph}]",
    # the code
    "line 1: 'triage_nodes:number' is not a function, but 5": (
        'nodes: [{id: a, kind: "triage_nodes:number"}]'
    ),
    "line 1: the module 'triage_nodes' has no attribute 'Missing'": (
        GATE % 'response: "triage_nodes:Missing"'
    ),
    "line 2: the state 5 is not a pydantic model: pass a subclass of BaseModel": NODE
    + 'state: "triage_nodes:number"',
    "line 1: 'triage_nodes:number' is not a graph, but 5": NESTED % "graph: 'triage_nodes:number'",
    "line 1: the file 'gone.yaml' cannot be read: No such file or directory": (
        NESTED % "graph: gone.yaml"
    ),
    "line 1: 'triage.yaml' contains this document: remove the cycle": (
        NESTED % "graph: triage.yaml"
    ),
    "line 1: in 'faulty.yaml', line 2: the module 'triage_nodes' has no attribute 'gone'": (
        NESTED % "graph: faulty.yaml"
    ),
    # the graph
    "line 1: the graph name '1st' must start with a letter or underscore and have at most 100 "
    "letters, digits, '_', '-' or '.'": "id: 1st\n" + NODE,
    "line 2: the field 'copy' has a name that pydantic reserves: use another": (
        NODE + "state: {copy: str}"
    ),
    "line 2: the field 'f' has a schema with a reference, which is not supported: write the state "
    "as a pydantic model, and name it (state: module:Class)": (
        NODE + "state: {f: {$ref: '#/$defs/x'}}"
    ),
    "line 3: the field 'f' has a default, which would not be used, as a field is null until it is set: "
    "set it in the first node, or write the state as a pydantic model, and name it (state: "
    "module:Class)": NODE + "state:\n  f: {type: integer, default: 0}\n  g: {default: null}",
    "line 2: the field 'f' has no usable schema: {'minimum': 'x'} is not a JSON Schema that can be "
    'used: "x" is not of type "number"': NODE + "state: {f: {minimum: x}}",
    "line 1: invalid YAML: while parsing a flow mapping expected ',' or '}', but got '?': quote a "
    "text with a question mark within { } and [ ]": "nodes: [{id: a, prompt: Go?, kind: b}]",
    "line 1: the interrupt 'a' has on_timeout but no timeout: add a timeout": GATE
    % "on_timeout: 'goto:END'",
    "line 4: finally names an unknown node 'c'": TWO + "finally: [c]",
    "line 4: the retired node 'a' is also in the graph: remove one of the two, or rename it": (
        TWO + "retired: {a: 'triage_nodes:nothing'}"
    ),
    "line 4: 'c' should be module:name, or a YAML file, not 'nothing'": (
        TWO + "retired: {c: nothing}"
    ),
    "line 4: 'triage_nodes:number' is not a function or a graph, but 5": (
        TWO + "retired: {c: 'triage_nodes:number'}"
    ),
    "line 4: in 'faulty.yaml', line 2: the module 'triage_nodes' has no attribute 'gone'": (
        TWO + "retired: {c: faulty.yaml}"
    ),
    "line 3: the node 'b' is unreachable from START: add an edge, route or goto to it": TWO
    + "edges: [[START, a]]",
    "line 6: two rules are named 'r'": (
        RULE % "when: {node: a}, then: [{kind: halt}]"
        + "  - {id: r, when: {node: b}, then: [{kind: halt}]}\n"
    ),
    "line 2: interrupt_after names an unknown node 'c'": NODE + "interrupt_after: c",
    "line 2: the nested graph 'a', input=: 'txt' is not a field of the state of 'nested'": (
        "nodes: [{id: a, kind: graph, config: {graph: nested.yaml,\n  input: {txt: text}}}]"
    ),
    "line 5: the rule 'r', assert: line 1, column 2: `test`: this is not a valid name of a fact": (
        RULE % "when: (a), then: [{kind: assert, fact: test}]"
    ),
    "line 5: the rule 'r': CLIPS says: Undefined variable ?x referenced in RHS of defrule.": (
        RULE % "when: (a), then: [{kind: retract, pattern: '?x'}]"
    ),
    "line 9: the edge from 'a' to 'END' looks at 'ok' for \"yes\", which it never is: as JSON it "
    "is boolean or null; write true or false, without quotes (True or False in Python)": (
        """\
state: {ok: bool}
nodes:
  - {id: a, kind: "builtins:print"}
edges:
  - [START, a]
  - from: a
    to: END
    # YAML 1.2 reads a word.
    when: {ok: yes}
"""
    ),
    "line 6: the rule 's' looks at an unknown node 'd'": (
        RULE % "when: {node: a}, then: [{kind: halt}]"
        + "  - {id: s, when: (node-id (id d)) (a), then: [{kind: halt}]}\n"
    ),
    "line 6: the rule 'r' looks at 'verdct', which is not a field of the state: write 'verdict', and no "
    "rule asserts it": (
        "state: {verdict: str, deep: dict}\n"
        + RULE % "when: (verdict) (deep.er) (alarm) (verdct), then: [{kind: assert, fact: alarm}]"
    ),
}


@pytest.mark.parametrize("fault", ONE_FAULT)
def test_a_faulty_file_has_exactly_its_fault_with_its_line(faults: Faults, fault: str) -> None:
    assert faults(ONE_FAULT[fault]) == [fault]


def test_clips_text_without_the_extra_is_a_fault_with_its_line(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "clips", None)

    assert faults(RULE % "when: (risk), then: [{kind: halt}]") == [
        "line 5: the rule 'r' has CLIPS text as its condition: pip install 'abeyance[rules]'"
    ]


def test_faults_of_a_nested_python_graph_have_the_naming_line(folder: Path, faults: Faults) -> None:
    (folder / "empty_graphs.py").write_text(
        "import abeyance\ngraph = abeyance.Graph('1st')\ngraph.edge(abeyance.START, abeyance.END)\n"
    )
    (told,) = faults(
        "nodes:\n  - id: a\n    kind: graph\n    config:\n      graph: 'empty_graphs:graph'\n"
    )
    sys.modules.pop("empty_graphs")

    assert told.startswith("line 5: the nested graph 'a': the graph name '1st' must start")


def test_a_module_that_cannot_be_imported_is_a_fault_with_the_reason(faults: Faults) -> None:
    missing, broken = faults(
        "nodes:\n"
        "  - {id: a, kind: 'no_such_module_anywhere:f'}\n"
        "  - {id: b, kind: 'lame_nodes:f'}\n"
    )

    assert missing.startswith("line 2: the module 'no_such_module_anywhere' cannot be imported")
    assert broken.startswith(
        "line 3: 'lame_nodes:f' cannot be imported: RuntimeError: out of order ("
    )
    assert broken.endswith("lame_nodes.py, line 2)")


def test_an_option_given_by_a_rule_and_its_gate_is_a_fault(faults: Faults) -> None:
    told = faults(
        "nodes:\n"
        "  - id: gate\n"
        "    kind: interrupt\n"
        "    config: {requested_capability: pay, timeout: 1h, answer_to: ok}\n"
        "rules:\n"
        "  - id: r\n"
        "    when: {node: gate}\n"
        "    then: [{kind: interrupt, prompt: Go, requested_capability: see, timeout: 1h,\n"
        "            answer_to: no}]\n"
    )

    both = "line 2: the interrupt 'gate' and the rule 'r' both have "
    assert told == [f"{both}{key}: remove one" for key in ("requested_capability", "answer_to")]


def test_a_default_of_a_gate_is_held_against_the_schema_that_a_rule_supplies(
    faults: Faults,
) -> None:
    (told,) = faults(
        "nodes:\n"
        "  - {id: gate, kind: interrupt, config: {timeout: 1h, on_timeout: {default: 5}}}\n"
        "rules:\n"
        "  - id: r\n"
        "    when: {node: gate}\n"
        "    then: [{kind: interrupt, prompt: Go, response: {type: boolean}}]\n"
    )

    assert told.startswith("line 2: the interrupt 'gate' has a default answer that does not fit")


def test_a_document_that_its_anchors_multiply_is_refused_quickly(faults: Faults) -> None:
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for name, before in zip("bcdefghi", "abcdefgh", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")

    assert faults("\n".join(lines)) == [
        "line 1: the document has more than 100000 values: use fewer anchors"
    ]


def test_a_document_that_is_too_large_is_not_read(faults: Faults) -> None:
    assert faults("x" * 1_000_001) == [
        "line 1: the document has 1000001 characters, and the limit is 1000000"
    ]


def test_a_file_that_is_not_text_is_refused_with_the_line(folder: Path) -> None:
    (folder / "binary.yaml").write_bytes(b"id: a\nname: \xff\xfe\n")

    with pytest.raises(GraphError, match="line 2: not UTF-8: invalid start byte"):
        load("binary.yaml")


def test_a_file_that_is_not_there_is_an_os_error(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.yaml"):
        load("missing.yaml")


NAMED = """\
id: order
state: {requester: from_start, note: str}
nodes:
  - id: gate
    kind: interrupt
    config:
      prompt: Go on
      assignees: ["{requester}", "{note}"]
  - id: next
    kind: interrupt
    config:
      prompt: Go on
      not_by: ["{requestr}"]
"""


def test_a_field_that_names_nobody_is_a_fault_with_its_line(faults: Faults) -> None:
    first, second = faults(NAMED)

    assert first.startswith("line 8: the interrupt 'gate', assignees=: '{note}' names people, and")
    assert second.startswith("line 13: the interrupt 'next', not_by=: '{requestr}' names people")
