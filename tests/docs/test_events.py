"""docs/reference/events.md lists the events of the feed as the code makes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from pages import read

from abeyance import views, wire
from abeyance.core.state import Ending, Outcome
from abeyance.notifications.moments import ENDS, EVENTS
from abeyance.records import steps

_ROOT = Path(__file__).parents[2]
_PAGE = read("reference/events.md")
_ROWS = re.findall(r"^\| `([\w.]+)` \| (fact|step) \|(.*?)\| .+ \|$", _PAGE, re.MULTILINE)
_TABLE = {(type_, source): {*re.findall(r"`(\w+)`", data)} for type_, source, data in _ROWS}
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
_NODE, _TOOL = "graph:g;node:draft:1", "graph:g;node:assist:1;agent:clerk;tool:book:c1"

# Functions that publish, each after those that it calls, with the position of the type argument.
_PUBLISHING = {"publish": 0, "publish_about": 1, "publish_vote": 1, "_publish_edit": 1}


def calls_in(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (
            getattr(node.func, "attr", None),
            getattr(node.func, "id", None),
        ):
            yield node


def keys_in(node: ast.expr) -> set[str]:
    """Return the keys of every mapping that is written out in an expression."""
    return {
        str(ast.literal_eval(key))
        for each in ast.walk(node)
        if isinstance(each, ast.Dict)
        for key in each.keys
        if key is not None
    }


def fields_of(call: ast.Call, function: ast.FunctionDef) -> set[str]:
    """Return the data among the keywords of a publishing call, also of a mapping made before it."""
    made = {
        ast.unparse(target): node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    fields: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is None:
            fields |= keys_in(made.get(ast.unparse(keyword.value), keyword.value))
        elif keyword.arg not in ("address", "actor", "audit"):
            fields.add(keyword.arg)
    return fields


def facts() -> Mapping[tuple[str, str], set[str]]:
    """Return the facts that the core publishes, by their type, with the names of their data.

    A function that gets the type from its callers adds its own data to theirs.
    """
    told: dict[tuple[str, str], set[str]] = {}
    functions = [
        node
        for path in (_ROOT / "abeyance" / "core").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    added: dict[str, set[str]] = {"publish": set()}
    for name, place in _PUBLISHING.items():
        for function in functions:
            for call in calls_in(function, name):
                type_, fields = call.args[place], added[name] | fields_of(call, function)
                if isinstance(type_, ast.Name):
                    assert function.name in _PUBLISHING, "it publishes for others"
                    added[function.name] = fields
                else:
                    told.setdefault((ast.literal_eval(type_), "fact"), set()).update(fields)
    return told


def of_steps() -> Mapping[tuple[str, str], set[str]]:
    """Return the steps that are recorded of a run's start, of its code, and of its end."""
    start = wire.StartRun(run_id="r", started_by="ada", sent_by="svc")
    turn = {"finish_reason": "stop", "calls": [], "model": "m", "turn": 1, "usage": None}
    granted = {"grant": "g", "by": "ada", "tool": "book", "call": "c1", "capability": None}
    made = [steps.began(start, "g")]
    for address, status in ((_NODE, None), (_TOOL, "success")):
        outcomes: list[dict[str, Any]] = [
            {
                "kind": "finished",
                "tool_status": status,
                "turn": None if status else turn,
                "granted": granted if status else None,
            },
            {"kind": "stopped"},
            {"kind": "attempt_failed", "message": "x", "attempts": {"count": 1}, "pause": 1},
            {"kind": "failed", "code": "node_failed", "message": "It failed."},
        ]
        made.append(steps.started(address))
        for each in outcomes:
            outcome = wire.VisitReport.model_validate({"outcome": each}).outcome
            made += steps.reported(address, outcome)
    for type_ in views.TERMINAL_EVENTS:
        outcome_ = cast("Outcome", type_.removeprefix("run."))
        made.append(steps.ended(Ending(outcome=outcome_, reason=None, since=NOON)))
    return {(step.type, "step"): {*step.data} for step in made}


def test_the_table_lists_exactly_the_events_with_source_and_data() -> None:
    assert len(_ROWS) == len(_TABLE), "a type stands there twice"
    # The writer of the records reads this event from Temporal.
    rewound = {("run.rewound", "step"): {"to", "kept", "reason"}}
    assert {**facts(), **of_steps(), **rewound} == _TABLE


def test_the_last_types_of_the_page_are_those_of_the_code() -> None:
    last = re.findall(r"^\| `([\w.]+)` \| step \| .* \| the last event: ", _PAGE, re.MULTILINE)

    assert {*last} == views.TERMINAL_EVENTS


def test_the_page_names_every_field_of_an_event() -> None:
    for field in views.Event.model_fields:
        assert f"`{field}`" in _PAGE, field


def test_a_rule_for_notifications_may_name_every_fact_but_its_own_and_every_end() -> None:
    types = {type_ for type_, source in _TABLE if source == "fact"}

    assert types - {*EVENTS} == {"notification.failed"}
    # An end that Temporal makes announces nothing.
    assert views.TERMINAL_EVENTS - {*ENDS} == {"run.terminated", "run.timed_out"}
