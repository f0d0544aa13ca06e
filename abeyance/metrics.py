"""Metrics: names, units, attributes and buckets.

The API records requests and responses, a run its own operations, and an activity its checkpoints, under
the same names; see `docs/reference/metrics.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "histogram"]
Via: TypeAlias = Literal["api", "run"]
"""Source of a count: the API's response, or the run."""
Operation: TypeAlias = Literal[
    "start",
    "pause",
    "resume",
    "cancel",
    "message",
    "pause-and-send",
    "clear",
    "respond",
    "edit",
    "take-back",
    "claim",
    "release",
    "reassign",
    "delegate",
    "revoke",
    "batch",
    "evict",
    "erase",
    "migrate",
    "retry",
    "rewind",
    "talk",
]
Outcome: TypeAlias = Literal["success", "refused", "timeout", "error"]
Checkpoint: TypeAlias = Literal["journal", "hand-over"]

_UNITS: Final = {"ms": "_milliseconds", "s": "_seconds", "": ""}
_MINUTE: Final = 60.0
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `unit` is "ms", "s" or empty; `buckets` are upper bounds in that unit."""

    name: str
    kind: Kind
    says: str
    attributes: tuple[str, ...]
    unit: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """Return the Prometheus name: no dots, and units in full."""
        ending = "_total" if self.kind == "counter" else _UNITS[self.unit]
        return self.name.replace(".", "_") + ending


_QUICK: Final = (5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 3e5)
_FOR_PEOPLE: Final = (1.0, 10.0, _MINUTE, 5 * _MINUTE, 30 * _MINUTE, _HOUR, 4 * _HOUR)

QUEUE_DEPTH: Final = Metric(
    name="interrupt.queue_depth",
    kind="gauge",
    says="unread messages of the runs of a graph that this worker holds in memory",
    attributes=("graph",),
)
BLOCKED: Final = Metric(
    name="interrupt.blocked",
    kind="gauge",
    says="blocked visits of the runs of a graph that this worker holds in memory",
    attributes=("graph",),
)
OPERATIONS: Final = Metric(
    name="interrupt.operations",
    kind="counter",
    says="what people and programs asked of runs, and what became of it",
    attributes=("operation", "status", "code", "via"),
)
LATENCY: Final = Metric(
    name="interrupt.latency",
    kind="histogram",
    says="time from an operation's request to its answer",
    attributes=("operation", "status"),
    unit="ms",
    buckets=_QUICK,
)
WAIT: Final = Metric(
    name="interrupt.wait",
    kind="histogram",
    says="time from the opening of an interrupt to somebody's answer",
    attributes=("graph", "kind"),
    unit="s",
    buckets=(*_FOR_PEOPLE, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY, 30 * _DAY),
)
CHECKPOINTS: Final = Metric(
    name="checkpoint.operations",
    kind="counter",
    says="times that progress was made durable outside the ordinary history",
    attributes=("kind", "status"),
)
CHECKPOINT_LATENCY: Final = Metric(
    name="checkpoint.latency",
    kind="histogram",
    says="time that this took",
    attributes=("kind",),
    unit="ms",
    buckets=_QUICK,
)
NOTIFICATIONS: Final = Metric(
    name="notification.deliveries",
    kind="counter",
    says="attempts to reach a receiver of a notification, and receivers that were given up",
    attributes=("status",),
)

METRICS: Final = (
    *(QUEUE_DEPTH, BLOCKED, OPERATIONS, LATENCY, WAIT),
    *(CHECKPOINTS, CHECKPOINT_LATENCY, NOTIFICATIONS),
)
