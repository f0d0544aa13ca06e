"""What docs/reference/events.md tells of the feed is what the code can tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pages import read
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from abeyance import views
from abeyance.history import entries
from abeyance.notifications.moments import ENDS, EVENTS

_ROOT = Path(__file__).parents[2]
_PAGE = read("reference/events.md")
_ROWS = re.findall(r"^\| `([\w.]+)` \| (fact|history) \|(.*?)\| .+ \|$", _PAGE, re.MULTILINE)
_TABLE = {(type_, source): {*re.findall(r"`(\w+)`", data)} for type_, source, data in _ROWS}


_PUBLISHING = {"publish_edit", "publish_vote"}


def calls_of(path: Path, name: str) -> Iterator[ast.Call]:
    return calls_in(ast.parse(path.read_text(encoding="utf-8")), name)


def calls_in(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (
            getattr(node.func, "attr", None),
            getattr(node.func, "id", None),
        ):
            yield node


def keys_in(node: ast.expr) -> set[str]:
    """The keys of every mapping that is written out in an expression."""
    return {
        str(ast.literal_eval(key))
        for each in ast.walk(node)
        if isinstance(each, ast.Dict)
        for key in each.keys
        if key is not None
    }


def fields_of(call: ast.Call) -> set[str]:
    """The keyword arguments of a call of `publish` that are data."""
    fields: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is None:
            fields |= keys_in(keyword.value)
        elif keyword.arg not in ("address", "actor", "shown"):
            fields.add(keyword.arg)
    return fields


def facts() -> Mapping[tuple[str, str], set[str]]:
    """What the core publishes: the type among the arguments of `publish`, and its keyword arguments.

    A function that is given the type adds data of its own to that of its callers.
    """
    told: dict[tuple[str, str], set[str]] = {}
    paths = [*(_ROOT / "abeyance" / "core").glob("*.py")]
    adding = {"publish": set[str]()}
    for path in paths:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name.strip("_") in _PUBLISHING:
                (call,) = calls_in(function, "publish")
                adding[function.name] = fields_of(call)
    assert len(adding) == 1 + len(_PUBLISHING)
    for name, added in adding.items():
        for call in (call for path in paths for call in calls_of(path, name)):
            type_ = call.args[0 if name == "publish" else 1]
            if name != "publish" or not isinstance(type_, ast.Name):
                fields = told.setdefault((ast.literal_eval(type_), "fact"), set())
                fields |= added | fields_of(call)
    return told


def of_visits_and_starts() -> Mapping[tuple[str, str], set[str]]:
    """What a reader makes of a history, but for the end of the run."""
    told: dict[tuple[str, str], set[str]] = {}
    for call in calls_of(_ROOT / "abeyance" / "history" / "entries.py", "Entry"):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        data = given.get("data")
        for type_ in types_in(given["type"]):
            told[type_, "history"] = set() if data is None else keys_in(data)
    return told


def types_in(node: ast.expr) -> list[str]:
    """The types that an expression stands for; what is filled in there says whose visit it is."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr) and "node_or_tool(" in ast.unparse(node):
        return [f"{what}{ast.literal_eval(node.values[1])}" for what in ("node", "tool")]
    return []


def of_ends() -> Mapping[tuple[str, str], set[str]]:
    """What a reader makes of the last event of a history."""
    told: dict[tuple[str, str], set[str]] = {}
    for type_ in views.TERMINAL_EVENTS:
        record: dict[str, Any] = {"outcome": type_.removeprefix("run.")}
        event = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED)
        (end,) = entries.run_ended(event, record, {})
        told[end.type, "history"] = {*end.data}
    return told


def test_the_table_names_exactly_what_can_be_told_with_its_source_and_its_data() -> None:
    assert len(_ROWS) == len(_TABLE), "a type stands there twice"
    assert {**facts(), **of_visits_and_starts(), **of_ends()} == _TABLE


def test_the_last_types_of_the_page_are_those_of_the_code() -> None:
    last = re.findall(r"^\| `([\w.]+)` \| history \| .* \| the last event: ", _PAGE, re.MULTILINE)

    assert {*last} == views.TERMINAL_EVENTS


def test_the_page_names_every_field_of_an_event() -> None:
    for field in views.Event.model_fields:
        assert f"`{field}`" in _PAGE, field


def test_a_rule_for_notifications_may_name_every_fact_but_its_own_and_every_end() -> None:
    types = {type_ for type_, source in _TABLE if source == "fact"}

    assert types - {*EVENTS} == {"notification.failed"}
    assert {*ENDS} == views.TERMINAL_EVENTS
