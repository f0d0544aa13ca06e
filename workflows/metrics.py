"""Metrics of a run. They do not affect the run.

The SDK's meter is silent during replay. Only a workflow task that is lost after it ran counts twice: the
server repeats it, and that is not a replay. So the new run counts a continue-as-new.

A gauge per run would need the run id as an attribute. So each gauge is the total of all runs of a graph
in the cache of this process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

from temporalio import workflow
from temporalio.common import MetricMeter

with workflow.unsafe.imports_passed_through():
    from abeyance import metrics, wire
    from abeyance.core import effects, events
    from abeyance.core.mailbox import Rejected
    from abeyance.core.policy import TIMEOUT
    from abeyance.core.state import RunState
    from abeyance.core.tables import ALL
    from abeyance.core.visit import BLOCKED
    from abeyance.workflows.worker_functions import UNMETERED

_MICROSECONDS: Final = 1_000_000
_OPERATIONS: Final[Mapping[type[events.Event], metrics.Operation]] = {
    events.Paused: "pause",
    events.Resumed: "resume",
    events.CancelRequested: "cancel",
    events.MessageSent: "message",
    events.MessagesCleared: "clear",
    events.Responded: "respond",
    events.ValuesEdited: "edit",
    events.DeadlineEdited: "edit",
    events.TakenBack: "take-back",
    events.Claimed: "claim",
    events.Released: "release",
    events.Reassigned: "reassign",
    events.Migrated: "migrate",
}
_cached: Final[WeakValueDictionary[tuple[str, str], MeteredRun]] = WeakValueDictionary()
"""The cached runs of this process, by task queue and run id."""
_cached_lock: Final = threading.Lock()


class MeteredRun:
    """Records the metrics of one run. `now` is the run's part of each gauge."""

    def __init__(self, start: wire.StartRun, graph: str, *, is_carried: bool) -> None:
        meter = (
            MetricMeter.noop
            if UNMETERED in workflow.extern_functions()
            else workflow.metric_meter()
        )
        self._run = workflow.info().task_queue, start.run_id
        self._graph = graph
        self.now: dict[metrics.Metric, int] = {metrics.QUEUE_DEPTH: 0, metrics.BLOCKED: 0}
        self._gauges = {gauge: meter.create_gauge(gauge.exposed, gauge.says) for gauge in self.now}
        self._operations = meter.create_counter(metrics.OPERATIONS.exposed, metrics.OPERATIONS.says)
        self._wait = meter.create_histogram_float(metrics.WAIT.exposed, metrics.WAIT.says)
        if is_carried:
            took = workflow.now().timestamp() - start.generation / _MICROSECONDS
            attributes: dict[str, metrics.Checkpoint] = {"kind": "hand-over"}
            meter.create_counter(metrics.CHECKPOINTS.exposed, metrics.CHECKPOINTS.says).add(
                1, {**attributes, "status": "success"}
            )
            meter.create_histogram_float(
                metrics.CHECKPOINT_LATENCY.exposed, metrics.CHECKPOINT_LATENCY.says
            ).record(max(0.0, took * 1000), attributes)

    def carried_out(
        self, event: events.Event, before: Sequence[Rejected], rejected: Sequence[Rejected]
    ) -> None:
        """Record an applied event. `rejected` are the messages that the run has rejected so far, and
        `before` those before the event.
        """
        match event, rejected:
            case events.MessageSent(message=message), (*_, note) if (
                rejected is not before and note.message_id == message.message_id
            ):
                # Signals have no response, so the mailbox notes a rejected message. The note disappears
                # when the same message is accepted later.
                self.refused(event, note.code)
            case events.SignalRefused(signal=name, code=code), _:
                self._count("message" if name == "steer" else name, "refused", code)
            case _ if (operation := _OPERATIONS.get(type(event))) is not None:
                self._count(operation, "success")
            case _:
                pass

    def refused(self, event: events.Event, code: str) -> None:
        """Record a refused signal."""
        if (operation := _OPERATIONS.get(type(event))) is not None:
            self._count(operation, "refused", code)

    def published(self, state: RunState, facts: Sequence[effects.Publish]) -> None:
        """Record the facts of a workflow task."""
        for fact in facts:
            settled = state.ledger.settled.get(str(fact.data.get("id")))
            if fact.type != "interrupt.answered" or fact.actor == TIMEOUT or settled is None:
                continue
            waited = (fact.time - settled.created_at).total_seconds()
            self._wait.record(waited, {"graph": self._graph, "kind": settled.kind})
        is_over = state.finished
        self._record(metrics.QUEUE_DEPTH, 0 if is_over else len(state.mailbox.queue))
        blocked = state.visits.count(BLOCKED, ALL)
        self._record(metrics.BLOCKED, 0 if is_over else blocked)

    def _record(self, gauge: metrics.Metric, value: int) -> None:
        was, self.now[gauge] = self.now[gauge], value
        with _cached_lock:
            _cached[self._run] = self
            # Adding up is slow with a thousand cached runs, most of which add nothing.
            if not (was or value):
                return
            total = sum(other.now[gauge] for other in _cached.values() if self._is_beside(other))
        self._gauges[gauge].set(total, {"graph": self._graph})

    def _is_beside(self, other: MeteredRun) -> bool:
        return (self._run[0], self._graph) == (other._run[0], other._graph)

    def _count(self, operation: metrics.Operation, status: metrics.Outcome, code: str = "") -> None:
        via: metrics.Via = "run"
        attributes = {"operation": operation, "status": status, "code": code, "via": via}
        self._operations.add(1, attributes)
