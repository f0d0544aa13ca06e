"""Visibility: the memo, search attributes and current details that Temporal shows of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from operator import is_
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import names, projections, wire
    from abeyance.core import authority, effects
    from abeyance.core.effects import Publish
    from abeyance.core.json import Json, size
    from abeyance.core.ledger import DUE, NEAREST, Interrupt
    from abeyance.core.spec import FunctionNode, OnTimeout
    from abeyance.core.state import RunState, Status
    from abeyance.core.tables import ALL
    from abeyance.core.terms import PLAIN, Terms
    from abeyance.core.text import truncate
    from abeyance.core.visit import BLOCKED, Failure, Running
    from abeyance.errors import FailureCode
    from abeyance.projections import on_timeout_text, public
    from abeyance.workflows.details import details, nearest_first

_MEMO_BYTES = 48_000
_MEMO_ROWS = 50
_MEMO_BLOCKED: Final = 5
_FACTS_BYTES = 8_000
_SHOWN_BYTES: Final = 6_000
_ATTRIBUTE_BYTES = 1_500
_PROMPT_CHARS = 200
_FIELD_CHARS = 300
_CLOSING_MEMO_BYTES: Final = 12_000
_CLOSING_KEYS: Final = 20


def memo_rows(state: RunState) -> dict[str, Json]:
    """Return memo rows of open interrupts by key: nearest deadline first, within the budget."""
    rows: dict[str, Json] = {}
    spent = 0
    for entry in nearest_first(state, _MEMO_ROWS + 1):
        row = _row(entry)
        spent += size(row) + len(entry.id) + 100
        if len(rows) == _MEMO_ROWS or spent > _MEMO_BYTES:
            break
        rows[f"{names.MEMO_INTERRUPT}{entry.id}"] = row
    return rows


def memo_summary(state: RunState, rows: Mapping[str, Json]) -> dict[str, Json]:
    """Return the memo summary of a run, for lists that must not wake a worker."""
    ending = state.ending
    deadline = state.next_deadline()
    return {
        "status": str(state.status),
        "paused": state.pause is not None,
        "open": len(state.ledger.open),
        "more": len(state.ledger.open) - len(rows),
        "queue_depth": len(state.mailbox.queue),
        "blocked": [
            {**each.model_dump(mode="json"), "message": truncate(each.message, _FIELD_CHARS)}
            for each in projections.blocked_visits(state)[:_MEMO_BLOCKED]
        ],
        "deadline": deadline and deadline.isoformat(),
        "reason": ending and truncate(ending.reason or "", _FIELD_CHARS),
        "updated_at": state.updated_at.isoformat(),
    }


def fact_batches(facts: Sequence[Publish]) -> Iterator[list[Json]]:
    """Yield facts in batches that fit beside the rest of the memo, in order."""
    batch: list[Json] = []
    spent = 0
    for fact in facts:
        row: dict[str, Json] = {
            "n": fact.number,
            "time": fact.time.isoformat(),
            "type": fact.type,
            "address": fact.address,
            "actor": fact.actor,
            "data": fact.data,
        }
        if fact.shown is not None:
            row["shown"] = shown_within(fact.shown)
        spent += size(row)
        if batch and spent > _FACTS_BYTES:
            yield batch
            batch, spent = [], size(row)
        batch.append(row)
    if batch:
        yield batch


def shown_within(shown: Mapping[str, Json]) -> dict[str, Json]:
    """Return what was shown, within the budget: a prompt is truncated, and `omitted` names all that is
    not there in full. The digest covers it all the same.
    """
    within: dict[str, Json] = {}
    omitted: list[Json] = []
    room = _SHOWN_BYTES
    for name, value in shown.items():
        if size(value) <= room:
            within[name] = value
            room -= size(value)
            continue
        omitted.append(name)
        if name == "prompt":
            # A character takes up to six bytes.
            within[name] = truncate(value, room // 6)
            room = 0
    return {**within, "omitted": omitted} if omitted else within


def capabilities(state: RunState) -> list[str]:
    """Return the required capabilities of open interrupts; only `*` if they are too many."""
    return within_attribute(sorted(state.ledger.capabilities))


def within_attribute(values: list[str]) -> list[str]:
    """Return the values if they fit a search attribute, else `*`: read the view."""
    return values if sum(len(value.encode()) + 8 for value in values) <= _ATTRIBUTE_BYTES else ["*"]


def interrupt_deadline(state: RunState) -> datetime | None:
    """Return the nearest deadline of an open interrupt. None of a held one counts."""
    first = state.ledger.open.first(NEAREST, "awaited")
    return None if first is None else first.deadline


def timer_summary(state: RunState) -> str:
    """Return the summary of the deadline timer for Temporal's UI."""
    moment = state.next_deadline()
    entry = state.ledger.open.first(DUE, ALL)
    if entry is not None and entry.due == moment:
        then = _short(entry.on_timeout)
        what = f"deadline of {entry.name}: {then}"
        if entry.notice_at == moment:
            what = f"reminder or escalation of {entry.name}"
        return truncate(what if entry.held is None else f"hold of {entry.name}", 200)
    pause = state.first_pause()
    if pause is not None and pause[1] == moment:
        return truncate(f"next attempt at {pause[0]}", 200)
    return "grace of the ending" if state.ending is not None else "deadline of the pause"


def failure_message(failure: Failure | None) -> str:
    """Return the message of a failed run in Temporal, with its address."""
    if failure is None:
        return "the run failed"
    return f"{failure.address}: {failure.message}" if failure.address else failure.message


def _short(policy: OnTimeout) -> str:
    # Answers are not shown, and a default is one.
    text = on_timeout_text(policy)
    return text if isinstance(text, str) else "default"


def _row(entry: Interrupt) -> dict[str, Any]:
    shown = public(entry)
    return {
        **{name: shown[name] for name in names.MEMO_ROW},
        "name": truncate(entry.name, _FIELD_CHARS),
        "address": truncate(entry.address, _FIELD_CHARS),
        "prompt": truncate(entry.prompt, _PROMPT_CHARS),
        "created_at": entry.created_at.isoformat(),
        "deadline": shown["deadline"] and shown["deadline"].isoformat(),
        **_progress(shown),
        **_terms(entry.terms),
    }


def _progress(shown: Mapping[str, Any]) -> dict[str, Json]:
    """Return what has come of a question that needs more than one answer, or holds one."""
    until = shown["held_until"]
    progress: dict[str, Json] = {
        "status": None if until is None else shown["status"],
        "held_until": until and until.isoformat(),
        "answered_by": shown["answered_by"],
        "on_behalf_of": shown["on_behalf_of"],
        "missing": shown["missing"],
        "prompt_values": [
            [begin, min(end, _PROMPT_CHARS)]
            for begin, end in shown["prompt_values"]
            if begin < _PROMPT_CHARS
        ]
        or None,
        **_for_whom(shown),
    }
    return {name: value for name, value in progress.items() if value is not None}


def _terms(terms: Terms | None) -> dict[str, Any]:
    """Return the terms of a question that lists show, less those that are the defaults."""
    if terms is None:
        return {}
    shown = {name: getattr(terms, name) for name in names.MEMO_TERMS}
    named = {name: value for name, value in shown.items() if value != getattr(PLAIN, name)}
    if terms.quorum is not None:
        named["quorum"] = asdict(terms.quorum)
    return named


def _for_whom(shown: Mapping[str, Any]) -> dict[str, Json]:
    """Return who may answer a question, as far as it depends on what has come of it."""
    claim = shown["claim"]
    escalations = [each.model_dump(mode="json") for each in shown.get("escalations", ())]
    return {
        "escalations": escalations or None,
        "claim": None
        if claim is None
        else {**asdict(claim), "at": claim.at.isoformat(), "until": claim.until.isoformat()},
        "barred": dict(shown["barred"]) or None,
    }


class VisibilityWriter:
    """Writes changes of a run to Temporal's memo, search attributes and details.

    After a continue-as-new it writes at once, even without changes. The server drops a task that has only
    a rejected update. If that is the first task, the server may also lose a pending task, and a replay
    begins later than the run did (tested).
    """

    def __init__(self, start: wire.StartRun, carried: RunState | None) -> None:
        self._graph_version = start.graph_version
        self._must_write = carried is not None
        self._rows: Mapping[str, Json] = {} if carried is None else memo_rows(carried)
        self._nearest: Sequence[Interrupt] = []
        # The client wrote these when it started the run.
        self._status = Status.RUNNING if carried is None else carried.status
        self._attributes: Mapping[str, Any] = (
            {
                names.STATUS: str(Status.RUNNING),
                names.CAPABILITY: [],
                names.DEADLINE: None,
                names.BLOCKED: None,
            }
            if carried is None
            else _attributes(carried)
        )

    def write(
        self, state: RunState, facts: Sequence[effects.Publish], start: wire.StartRun
    ) -> None:
        """Write all changes since the last write."""
        workflow.set_current_details(details(state, start))
        self._write_memo(state, facts, start)
        self._write_attributes(state)

    def _write_memo(
        self, state: RunState, facts: Sequence[effects.Publish], start: wire.StartRun
    ) -> None:
        # Most tasks change no question of those that have rows.
        nearest = nearest_first(state, _MEMO_ROWS + 1)
        is_same = len(nearest) == len(self._nearest) and all(map(is_, nearest, self._nearest))
        rows = self._rows if is_same else memo_rows(state)
        changes: dict[str, Json] = {
            key: row for key, row in rows.items() if self._rows.get(key) != row
        }
        changes.update(dict.fromkeys(self._rows.keys() - rows.keys()))
        changes.update(self._migrated(state, start))
        has_new_status = state.status not in (self._status, Status.COMPLETED)
        has_changes = bool(changes or facts or has_new_status or self._must_write)
        self._must_write = False
        self._rows, self._nearest, self._status = rows, nearest, state.status
        if not has_changes:
            return
        changes[names.MEMO_SUMMARY] = memo_summary(state, rows)
        first, *more = [*fact_batches(facts)] or [[]]
        if first:
            changes[names.MEMO_FACTS] = first
        workflow.upsert_memo(changes)
        for batch in more:
            workflow.upsert_memo({names.MEMO_FACTS: batch})

    def _migrated(self, state: RunState, start: wire.StartRun) -> Mapping[str, Json]:
        """The part of the memo that only a migration changes, if there was one."""
        if start.graph_version == self._graph_version:
            return {}
        self._graph_version = start.graph_version
        changed = {
            "graph_version": start.graph_version,
            "guarded_by": projections.guards_for_memo(authority.guarded_by(state)),
        }
        return {names.MEMO_START: {**workflow.memo().get(names.MEMO_START, {}), **changed}}

    def _write_attributes(self, state: RunState) -> None:
        if runs_only_local(state):
            return
        attributes = _attributes(state)
        updates = [
            _update(name, value)
            for name, value in attributes.items()
            if self._attributes.get(name) != value
        ]
        self._attributes = attributes
        if updates:
            workflow.upsert_search_attributes(updates)


def runs_only_local(state: RunState) -> bool:
    """Return whether nothing but local nodes runs: that is quick, and of no interest while it lasts."""
    if state.status is not Status.RUNNING or state.ledger.open:
        return False
    running = [*state.visits_in(Running)]
    nodes = [state.node_of(visit) for visit in running if visit.blocked is None]
    is_local = all(isinstance(node, FunctionNode) and node.local for node in nodes)
    return 0 < len(nodes) == len(running) and is_local


def _attributes(state: RunState) -> Mapping[str, Any]:
    return {
        names.STATUS: str(state.status),
        names.CAPABILITY: capabilities(state),
        names.DEADLINE: interrupt_deadline(state),
        names.BLOCKED: bool(state.visits.count(BLOCKED, ALL)) or None,
    }


def _update(name: str, value: Any) -> SearchAttributeUpdate[Any]:
    match names.SEARCH_ATTRIBUTES[name]:
        case "Bool":
            key: SearchAttributeKey[Any] = SearchAttributeKey.for_bool(name)
        case "Keyword":
            key = SearchAttributeKey.for_keyword(name)
        case "KeywordList":
            key = SearchAttributeKey.for_keyword_list(name)
        case "Datetime":
            key = SearchAttributeKey.for_datetime(name)
    return key.value_unset() if value is None else key.value_set(value)


def record_of(state: RunState, start: wire.StartRun) -> RawValue:
    """Return the closing record of a finished run, encoded. Raises to close it as failed or cancelled."""
    record = projections.closing_record(state, start)
    payload = workflow.payload_converter().to_payload(record)
    if payload.ByteSize() > state.limits.visit_bytes:
        record = record.model_copy(update={"snapshot": None})
        payload = workflow.payload_converter().to_payload(record)
    ending = state.ending
    if ending is not None and ending.native:
        # A cancelled workflow has no result: put the record into the memo. A worker has the snapshot.
        whole = record.model_copy(update={"snapshot": None}).model_dump(mode="json")
        if size(whole) > _CLOSING_MEMO_BYTES:
            view = {**whole["view"], "degraded": True}
            keys = dict([*whole["keys"].items()][-_CLOSING_KEYS:])
            bare: dict[str, Any] = {
                "values": {},
                "interrupts": [],
                "transcripts": None,
                "keys": keys,
            }
            whole = {**whole, **bare, "keys": keys, "view": view}
        workflow.upsert_memo({names.MEMO_CLOSING: whole})
        raise asyncio.CancelledError
    if ending is not None and ending.outcome == "failed":
        failure = ending.error
        raise ApplicationError(
            failure_message(failure),
            record.model_dump(mode="json"),
            type=failure.code if failure else FailureCode.NODE_FAILED,
            non_retryable=True,
        )
    return RawValue(payload)
