"""The published JSON Schema accepts and refuses the same documents as the loader."""

from __future__ import annotations

import copy
import importlib.resources
import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from yaml_documents import Faults, Load

from abeyance.yaml import source
from abeyance.yaml.schema import json_schema, published

PUBLISHED = importlib.resources.files("abeyance").joinpath("yaml-schema.json").read_text()
SCHEMA = jsonschema_rs.Draft202012Validator(json.loads(PUBLISHED))

FULL = """
id: full
description: Everything that may be written.
state: {record_id: str, verdict: str, risk: {type: string}, ok: any}
on_error: interrupt
interrupt_before: [classify]
interrupt_after: "*"
nodes:
  - {id: classify, kind: "triage_nodes:classify", config: {timeout: 30s, retries: 1, heartbeat: 5,
     backoff: {first: 1s, factor: 1.5, most: 1m}, retry_for: 6h,
     retry_on: [ConnectionError, "builtins:OSError"], local: false, on_error: "goto:act", to: [act]}}
  - id: gate
    kind: interrupt
    config: {prompt: Go, reason: {a: 1}, payload: [1], response: "triage_nodes:Decision",
             answer_to: ok, requested_capability: pay, timeout: PT5M,
             on_timeout: {default: {approved: true}}}
  - {id: bare, kind: interrupt, config: {interrupt_payload: {a: 1}, response: {type: boolean}}}
  - {id: act, kind: "triage_nodes:act", config: {to: gate, timeout: null}}
  - {id: legal, kind: graph, config: {graph: nested.yaml, input: {text: record_id},
     output: {verdict: text}, on_error: interrupt}}
  - {id: report, kind: "triage_nodes:report"}
edges:
  - [START, classify]
  - {from: classify, to: gate, when: {verdict: benign}}
  - {from: classify, to: bare, when: else, join: all}
  - [[gate, bare], act]
  - [act, legal]
rules:
  - id: ask
    when: "?n <- (node-id (id bare))"
    then: [{kind: interrupt, prompt: Go, timeout: 60, on_timeout: "goto:act"}]
  - {id: all, when: {node: act, "ok.approved": true},
     then: [{kind: goto, node: gate}, {kind: halt, reason: done}, {kind: retry},
            {kind: parallel, nodes: [gate, act]},
            {kind: retry, node: act, backoff: 2s},
            {kind: assert, fact: alarm, slots: {level: high}}]}
  - {id: clips, when: '?a <- (alarm (level "high"))', then: [{kind: retract, pattern: "?a"}]}
finally: [report]
retired: {old: "triage_nodes:nothing", older: nested.yaml}
"""
SMALL = 'state: "triage_nodes:State"\nnodes: [{id: a, kind: "triage_nodes:nothing"}]\n'


def read(text: str) -> dict[str, Any]:
    document = source.read(text)
    assert document.faults == []
    assert isinstance(document.data, dict)
    return document.data


def forms(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of a document at which only certain keys may stand."""
    if isinstance(value, dict):
        if not free(place):
            yield place
        for key, item in value.items():
            yield from forms(item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from forms(item, (*place, number))


def free(place: tuple[str | int, ...]) -> bool:
    """Return whether an author's own keys stand here: fields, values of the run, schemas, payloads."""
    own = {
        "state",
        "when",
        "payload",
        "interrupt_payload",
        "reason",
        "response",
        "default",
        "slots",
    }
    return not {*own, "input", "output", "retired"}.isdisjoint(place)


PLACES = list(forms(read(FULL)))


def test_the_published_schema_equals_the_models() -> None:
    assert published() == PUBLISHED, (
        "write abeyance/yaml-schema.json anew, with what abeyance.yaml.schema.published() returns"
    )


@pytest.mark.parametrize("text", [FULL, SMALL])
def test_accepted_files_fit_the_published_schema(loaded: Load, text: str) -> None:
    loaded(text)

    assert [error.message for error in SCHEMA.iter_errors(read(text))] == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "/".join(map(str, place)) or "whole")
def test_an_unknown_key_is_refused_by_both(faults: Faults, place: tuple[str | int, ...]) -> None:
    data = copy.deepcopy(read(FULL))
    here: Any = data
    for step in place:
        here = here[step]
    here["surplus"] = 1

    assert not SCHEMA.is_valid(data)
    told = faults(json.dumps(data))
    assert any("'surplus' is not a key here" in fault for fault in told)


def test_every_sort_of_mapping_was_tried() -> None:
    assert len(PLACES) > 15
    definitions = json_schema()["$defs"]
    assert all(form["additionalProperties"] is False for form in definitions.values())


def test_two_words_for_one_thing_are_refused_by_both(faults: Faults) -> None:
    action = {"kind": "interrupt", "prompt": "?", "payload": 1, "interrupt_payload": 1}
    own, other = [*action][-2:]
    node = {"id": "a", "kind": "triage_nodes:nothing"}
    data = {"nodes": [node], "rules": [{"id": "r", "when": {"node": "a"}, "then": [action]}]}

    assert not SCHEMA.is_valid(data)
    text = f"nodes: [{json.dumps(node)}]\nrules:\n- id: r\n  when: {{node: a}}\n  then:\n  - "
    text += "\n    ".join(f"{key}: {json.dumps(value)}" for key, value in action.items())
    line = 5 + len(action)
    assert faults(text) == [f"line {line}: {other!r} and {own!r} are the same: write one of them"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("retries", "3"), ("retries", -1), ("local", "yes"), ("timeout", True), ("to", 5),
     ("on_error", "ignore"), ("heartbeat", None)],
)  # fmt: skip
def test_a_wrong_option_is_refused_by_both(faults: Faults, key: str, value: Any) -> None:
    node = {"id": "a", "kind": "triage_nodes:nothing", "config": {key: value}}

    assert not SCHEMA.is_valid({"nodes": [node]})
    assert len(faults(json.dumps({"nodes": [node]}))) == 1
