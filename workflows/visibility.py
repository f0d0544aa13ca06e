"""Visibility: the status, the unread messages and the details that Temporal shows of a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import names, projections, wire
    from abeyance.core import policy
    from abeyance.core.effects import Effect, Publish
    from abeyance.core.json import Json, size
    from abeyance.core.ledger import DUE
    from abeyance.core.spec import FunctionNode, OnTimeout
    from abeyance.core.state import RunState, Status
    from abeyance.core.tables import ALL
    from abeyance.core.text import truncate
    from abeyance.core.visit import Failure, Running
    from abeyance.errors import FailureCode
    from abeyance.projections import on_timeout_text
    from abeyance.records.batch import Batch
    from abeyance.storage.converter import deflated
    from abeyance.workflows.details import details

_MEMO_BYTES: Final = 12_000
"""Deflated."""
_node_logger: Final = workflow.LoggerAdapter(logging.getLogger("abeyance.node"), None)
"""Logs nothing while a history is replayed."""
# So that its lines look like those of `activities.heartbeat`.
_node_logger.workflow_info_on_message = False
_STATUS: Final = SearchAttributeKey.for_keyword(names.STATUS)


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


def log_blocked(run_id: str, new_effects: Sequence[Effect]) -> None:
    """Log the visits that have just been blocked."""
    text = "run=%s address=%s code=%s | %s: %s"
    for effect in new_effects:
        if isinstance(effect, Publish) and effect.type == "node.blocked":
            where, why = (run_id, effect.address), effect.data
            _node_logger.warning(text, *where, why["code"], names.BLOCKED_LINE, why["message"])


def failure_message(failure: Failure | None) -> str:
    """Return the message of a failed run in Temporal, with its address."""
    if failure is None:
        return "the run failed"
    return f"{failure.address}: {failure.message}" if failure.address else failure.message


def _short(policy: OnTimeout) -> str:
    # A default is an answer, and answers are not shown.
    text = on_timeout_text(policy)
    return text if isinstance(text, str) else "default"


class VisibilityWriter:
    """Writes changes of a run to Temporal's search attribute, memo and details.

    The memo has the number of unread messages, so that code which polls for messages need not call the
    run each time.

    After a continue-as-new the status is written at once, even if it is known. The server drops a task
    that has only a rejected update. If that is the first task, the server may also lose a pending task,
    and a replay begins later than the run did (tested).
    """

    def __init__(self, start: wire.StartRun, carried: RunState | None) -> None:
        self._graph_version = start.graph_version
        # The client wrote the status of a run that begins.
        self._shown = Status.RUNNING if carried is None else None
        # The run inherits the memo of the execution before.
        self._unread = 0 if carried is None else len(carried.mailbox.queue)

    def write(self, state: RunState, start: wire.StartRun) -> None:
        """Write all changes since the last write."""
        workflow.set_current_details(details(state, start))
        self._write_memo(state, start)
        self._write_status(state)

    def _write_memo(self, state: RunState, start: wire.StartRun) -> None:
        changes: dict[str, Json] = {**self._migrated(state, start)}
        unread = len(state.mailbox.queue)
        if unread != self._unread:
            self._unread = changes[names.MEMO_UNREAD] = unread
        if changes:
            workflow.upsert_memo(changes)

    def _migrated(self, state: RunState, start: wire.StartRun) -> Mapping[str, Json]:
        """Return the part of the memo that only a migration changes; empty if there was none."""
        if start.graph_version == self._graph_version:
            return {}
        self._graph_version = start.graph_version
        changed = {
            "graph_version": start.graph_version,
            "guarded_by": projections.guards_for_memo(policy.guarded_by(state)),
        }
        return {names.MEMO_START: {**workflow.memo().get(names.MEMO_START, {}), **changed}}

    def _write_status(self, state: RunState) -> None:
        # A run that goes on after an answer keeps its status while it runs only quick code.
        is_brief = self._shown is Status.AWAITING_INPUT and runs_only_local(state)
        if state.status is not self._shown and not is_brief:
            self._shown = state.status
            workflow.upsert_search_attributes([_STATUS.value_set(str(state.status))])


def runs_only_local(state: RunState) -> bool:
    """Return whether nothing but local nodes runs: that is quick, and of no interest while it lasts."""
    if state.status is not Status.RUNNING or state.ledger.open:
        return False
    running = [*state.visits_in(Running)]
    nodes = [state.node_of(visit) for visit in running if visit.blocked is None]
    is_local = all(isinstance(node, FunctionNode) and node.local for node in nodes)
    return 0 < len(nodes) == len(running) and is_local


def result_of(state: RunState, left: Batch | None) -> dict[str, Json]:
    """Return the result of a finished run in Temporal. Raises to close it as failed or cancelled.

    `left` is its unrecorded batch: Temporal keeps it, if it has room, until the end is recorded. The memo
    says that there is a batch.
    """
    result: dict[str, Json] = {"outcome": str(state.status), "values": state.root.values}
    ending = state.ending
    is_native = ending is not None and ending.native
    if left is not None:
        unrecorded = left.model_dump(mode="json")
        note: Any = True
        if is_native:
            # A cancelled workflow has no result.
            payload = deflated(workflow.payload_converter().to_payload(unrecorded))
            if payload.ByteSize() <= _MEMO_BYTES:
                note = RawValue(payload)
        elif size(unrecorded) <= state.limits.visit_bytes:
            result["unrecorded"] = unrecorded
        workflow.upsert_memo({names.MEMO_UNRECORDED: note})
    if is_native:
        raise asyncio.CancelledError
    if ending is not None and ending.outcome == "failed":
        failure = ending.error
        raise ApplicationError(
            failure_message(failure),
            result,
            type=failure.code if failure else FailureCode.NODE_FAILED,
            non_retryable=True,
        )
    return result
