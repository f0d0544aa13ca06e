"""Writing down what changed, once for each workflow task: the memo and the search attributes.

The memo is the run's event log and its row in every list: a key for each open interrupt, a summary,
and the new facts. An upsert merges keys and null removes one, so only what changed is written. It is
an event of the history, so it is written only if an interrupt opened or closed, the shown status
changed, or there are facts. That a run has completed its last event says, and the memo need not.

The search attributes wait while nothing but local nodes runs and nobody is asked: these are over in a
moment, mostly before the server would hear of the change at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core import effects
    from abeyance.core.canonical import Json
    from abeyance.core.model import FunctionNode
    from abeyance.core.state import Phase, RunState, Status
    from abeyance.workflows import surface
    from abeyance.workflows.details import details

_ACTIVITY_EVERY: Final = timedelta(minutes=1)


class Notice:
    """What Temporal has been told about a run, so that it need not be told again.

    After a hand-over it is told something at once, whether there is news or not. The server forgets a
    task that brought nothing but an update which was turned away. If that was the first task, it may
    also forget that the run waits for another, and a replay begins later than the run did (tried).
    """

    def __init__(self, carried: RunState | None, now: datetime) -> None:
        self._owes_word = carried is not None
        self._rows: Mapping[str, Json] = {} if carried is None else surface.memo_rows(carried)
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
        rows = surface.memo_rows(state)
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
        changes[wire.MEMO_SUMMARY] = surface.memo_summary(state, rows)
        first, *more = [*surface.fact_batches(facts)] or [[]]
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
        wire.CAPABILITY: surface.capabilities(state),
        wire.DEADLINE: surface.interrupt_deadline(state),
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
