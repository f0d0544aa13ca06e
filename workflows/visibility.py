"""How an answer has to look, in one line: a JSON Schema as people read it.

The line is no JSON: words such as `boolean` stand without quotes where a value has to be put in, so
that nobody can send a form as if it were an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from abeyance import wire
from abeyance.core.effects import Publish
from abeyance.core.json import Json, size
from abeyance.core.ledger import Interrupt
from abeyance.core.spec import OnTimeout
from abeyance.core.state import Failure, RunState
from abeyance.projections import on_timeout_text, public
from abeyance.schemas.json_schema import resolved

_ANY: Final = "any JSON"
_DEEPEST: Final = 4
_MOST: Final = 8
"""Properties of one object, and alternatives of one value; a form that needs more is no line."""


def form(schema: Any) -> str:
    """The form of an answer, such as `{"approved": boolean, "note"?: string}`.

    `?` marks what may be left out. What a line cannot tell (formats, ranges, depth) is left out: the
    run judges an answer by the whole schema.
    """
    root = schema if isinstance(schema, Mapping) else {}
    return _form(schema, root, 0)


def _form(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = resolved(schema, root)
    is_deep = depth == _DEEPEST
    match schema:
        case {"const": value}:
            return _value(value)
        case {"enum": [_, *_] as values}:
            return _either([_value(value) for value in values])
        case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options} if not is_deep:
            return _either([_form(option, root, depth + 1) for option in options[: _MOST + 1]])
        case {"type": "object", "properties": Mapping() as properties} if (
            properties and not is_deep
        ):
            needed = schema.get("required", ())
            return _object(properties, needed, root, depth)
        case {"type": "array", "items": items} if not is_deep:
            return f"[{_form(items, root, depth + 1)}, ...]"
        case {"type": str(name)}:
            return name
        case {"type": [_, *_] as names}:
            return _either([str(name) for name in names])
        case _:
            return _ANY


def _object(properties: Mapping[str, Any], needed: Any, root: Mapping[str, Any], depth: int) -> str:
    parts = [
        f"{_value(name)}{'' if name in needed else '?'}: {_form(of, root, depth + 1)}"
        for name, of in list(properties.items())[:_MOST]
    ]
    return "{" + ", ".join([*parts, "..."] if len(properties) > _MOST else parts) + "}"


def _either(options: list[str]) -> str:
    return " or ".join([*options[:_MOST], "..."] if len(options) > _MOST else options)


def _value(value: Any) -> str:
    # In ASCII, and so without marks that turn the direction of writing.
    return json.dumps(value)


_MEMO_BYTES = 48_000
_MEMO_ROWS = 50
_FACTS_BYTES = 8_000
_ATTRIBUTE_BYTES = 1_500
_PROMPT_CHARS = 200
_FIELD_CHARS = 300
_FAR = "9999"


def memo_rows(state: RunState) -> dict[str, Json]:
    """The open interrupts for the memo, by key: the nearest deadlines first, within the budget."""
    rows: dict[str, Json] = {}
    spent = 0
    for entry in nearest_first(state):
        row = _row(entry)
        spent += size(row) + len(entry.id) + 100
        if len(rows) == _MEMO_ROWS or spent > _MEMO_BYTES:
            break
        rows[f"{wire.MEMO_INTERRUPT}{entry.id}"] = row
    return rows


def memo_summary(state: RunState, rows: Mapping[str, Json]) -> dict[str, Json]:
    """The run in a few words, for lists that must not wake a worker."""
    ending = state.ending
    deadline = state.next_deadline()
    return {
        "status": str(state.status),
        "paused": state.pause is not None,
        "open": len(state.ledger.open),
        "more": len(state.ledger.open) - len(rows),
        "queue_depth": len(state.mailbox.queue),
        "deadline": deadline and deadline.isoformat(),
        "reason": ending and cut(ending.reason or "", _FIELD_CHARS),
        "updated_at": state.updated_at.isoformat(),
    }


def fact_batches(facts: Sequence[Publish]) -> Iterator[list[Json]]:
    """The facts in batches that fit beside the rest of the memo, in order."""
    batch: list[Json] = []
    spent = 0
    for fact in facts:
        row = {
            "n": fact.number,
            "time": fact.time.isoformat(),
            "type": fact.type,
            "address": fact.address,
            "actor": fact.actor,
            "data": fact.data,
        }
        spent += size(row)
        if batch and spent > _FACTS_BYTES:
            yield batch
            batch, spent = [], size(row)
        batch.append(row)
    if batch:
        yield batch


def capabilities(state: RunState) -> list[str]:
    """The capabilities that open interrupts ask for; `*` alone if they are too many to list."""
    asked = {entry.requested_capability for entry in state.ledger.open.values()}
    return within_attribute(sorted(name for name in asked if name is not None))


def within_attribute(names: list[str]) -> list[str]:
    """A list that fits a search attribute: itself, or `*`, which says: look in the view."""
    return names if sum(len(name.encode()) + 8 for name in names) <= _ATTRIBUTE_BYTES else ["*"]


def interrupt_deadline(state: RunState) -> datetime | None:
    """The nearest deadline of an open interrupt."""
    due = [entry.deadline for entry in state.ledger.open.values() if entry.deadline is not None]
    return min(due, default=None)


def timer_summary(state: RunState) -> str:
    """What the deadline timer is for, as Temporal's UI shows it beside the timer."""
    moment = state.next_deadline()
    for entry in state.ledger.open.values():
        if entry.deadline == moment:
            return cut(f"deadline of {entry.name}: {_short(entry.on_timeout)}", 200)
    return "grace of the ending" if state.ending is not None else "deadline of the pause"


def failure_message(failure: Failure | None) -> str:
    """The message with which a failed run ends in Temporal: what failed, and where."""
    if failure is None:
        return "the run failed"
    return f"{failure.address}: {failure.message}" if failure.address else failure.message


def nearest_first(state: RunState) -> list[Interrupt]:
    """The open interrupts by deadline, those without one last."""
    return sorted(
        state.ledger.open.values(),
        key=lambda entry: (entry.deadline.isoformat() if entry.deadline else _FAR, entry.number),
    )


def _short(policy: OnTimeout) -> str:
    # A default answer is an answer, and those are shown to nobody.
    text = on_timeout_text(policy)
    return text if isinstance(text, str) else "default"


def _row(entry: Interrupt) -> dict[str, Any]:
    shown = public(entry)
    return {
        **{name: shown[name] for name in wire.MEMO_ROW},
        "name": cut(entry.name, _FIELD_CHARS),
        "address": cut(entry.address, _FIELD_CHARS),
        "prompt": cut(entry.prompt, _PROMPT_CHARS),
        "created_at": entry.created_at.isoformat(),
        "deadline": entry.deadline and entry.deadline.isoformat(),
    }


def cut(text: str, most: int) -> str:
    """The text, with dots at its end if it had more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core import effects
    from abeyance.core.json import Json
    from abeyance.core.spec import FunctionNode
    from abeyance.core.state import Phase, RunState, Status
    from abeyance.workflows.details import details

_ACTIVITY_EVERY: Final = timedelta(minutes=1)


class VisibilityWriter:
    """What Temporal has been told about a run, so that it need not be told again.

    After a hand-over it is told something at once, whether there is news or not. The server forgets a
    task that brought nothing but an update which was turned away. If that was the first task, it may
    also forget that the run waits for another, and a replay begins later than the run did (tried).
    """

    def __init__(self, carried: RunState | None, now: datetime) -> None:
        self._owes_word = carried is not None
        self._rows: Mapping[str, Json] = {} if carried is None else memo_rows(carried)
        # A new run has what its client wrote when it started it.
        self._status = Status.RUNNING if carried is None else carried.status
        self._attributes: Mapping[str, Any] = (
            {wire.STATUS: str(Status.RUNNING), wire.CAPABILITY: [], wire.DEADLINE: None}
            if carried is None
            else _attributes(carried)
        )
        self._activity_written = now

    def write(
        self, state: RunState, facts: Sequence[effects.Publish], start: wire.StartRun
    ) -> None:
        """Tell Temporal what changed since the last time."""
        workflow.set_current_details(details(state, start))
        self._write_memo(state, facts)
        self._write_attributes(state)

    def _write_memo(self, state: RunState, facts: Sequence[effects.Publish]) -> None:
        rows = memo_rows(state)
        changes: dict[str, Json] = {
            key: row for key, row in rows.items() if self._rows.get(key) != row
        }
        changes.update(dict.fromkeys(self._rows.keys() - rows.keys()))
        is_shown_otherwise = state.status not in (self._status, Status.COMPLETED)
        has_news = bool(changes or facts or is_shown_otherwise or self._owes_word)
        self._owes_word = False
        self._rows, self._status = rows, state.status
        if not has_news:
            return
        changes[wire.MEMO_SUMMARY] = memo_summary(state, rows)
        first, *more = [*fact_batches(facts)] or [[]]
        if first:
            changes[wire.MEMO_FACTS] = first
        workflow.upsert_memo(changes)
        for batch in more:
            workflow.upsert_memo({wire.MEMO_FACTS: batch})

    def _write_attributes(self, state: RunState) -> None:
        if _is_for_a_moment(state):
            return
        attributes = _attributes(state)
        updates = [
            _update(name, value)
            for name, value in attributes.items()
            if self._attributes.get(name) != value
        ]
        self._attributes = attributes
        # The run's own time: that of a task is another in a replay, after a local activity.
        if state.last_activity_at - self._activity_written >= _ACTIVITY_EVERY:
            self._activity_written = state.last_activity_at
            updates.append(_update(wire.ACTIVITY, state.last_activity_at))
        if updates:
            workflow.upsert_search_attributes(updates)


def _is_for_a_moment(state: RunState) -> bool:
    if state.status is not Status.RUNNING or state.ledger.open:
        return False
    nodes = [state.node_of(visit) for visit in state.in_phase(Phase.RUNNING)]
    return bool(nodes) and all(isinstance(node, FunctionNode) and node.local for node in nodes)


def _attributes(state: RunState) -> Mapping[str, Any]:
    return {
        wire.STATUS: str(state.status),
        wire.CAPABILITY: capabilities(state),
        wire.DEADLINE: interrupt_deadline(state),
    }


def _update(name: str, value: Any) -> SearchAttributeUpdate[Any]:
    match wire.SEARCH_ATTRIBUTES[name]:
        case "Keyword":
            key: SearchAttributeKey[Any] = SearchAttributeKey.for_keyword(name)
        case "KeywordList":
            key = SearchAttributeKey.for_keyword_list(name)
        case "Datetime":
            key = SearchAttributeKey.for_datetime(name)
    return key.value_unset() if value is None else key.value_set(value)
