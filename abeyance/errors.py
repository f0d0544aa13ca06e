"""Every error that Abeyance raises on purpose, named by what the reader should do next.

AbeyanceError
├── GraphError       the author wrote an impossible graph; `faults` lists all that is wrong with it
├── SettingsError    a setting has a value that cannot be used; the text names it
├── Refusal          a request is not allowed now; nothing has changed; `code` says why
├── Unavailable      Temporal or a worker cannot be reached; the same call may be repeated later
│   └── Unreadable   what is kept is there, and this process cannot read it
├── Blocked          a visit cannot run here and now; it is tried until it can
└── NodeError        raised by a node's author
    ├── AgentFailed  an agent cannot go on
    └── Fatal        this visit must not be tried again

A refusal's code is part of the contract: it is the type of the error in Temporal, the `code` of the
HTTP problem and a row of the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """Why a request was refused."""

    MALFORMED_BODY = "malformed_body"
    UNAUTHENTICATED = "unauthenticated"
    CAPABILITY_REQUIRED = "capability_required"
    FOREIGN_ORIGIN = "foreign_origin"
    UNKNOWN_RUN = "unknown_run"
    NOT_RUNNING = "not_running"
    UNKNOWN_GRAPH = "unknown_graph"
    UNKNOWN_INTERRUPT = "unknown_interrupt"
    UNKNOWN_NODE = "unknown_node"
    NO_ACTIVE_RUN = "no_active_run"
    RUN_EXISTS = "run_exists"
    RUN_FINISHED = "run_finished"
    ALREADY_ANSWERED = "already_answered"
    NOT_ROOT_CAUSE = "not_root_cause"
    WITHDRAWN = "withdrawn"
    STALE = "stale"
    AMBIGUOUS_INTERRUPT = "ambiguous_interrupt"
    AMBIGUOUS_RUN = "ambiguous_run"
    MESSAGE_CONFLICT = "message_conflict"
    CONVERSATION_BUSY = "conversation_busy"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    NOT_STOPPED = "not_stopped"
    NOT_FINISHED = "not_finished"
    NATIVELY_PAUSED = "natively_paused"
    NOT_SEALED = "not_sealed"
    EXPIRED = "expired"
    GONE = "gone"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    INVALID_BODY = "invalid_body"
    INVALID_RUN_ID = "invalid_run_id"
    INVALID_INPUT = "invalid_input"
    INVALID_ANSWER = "invalid_answer"
    INVALID_MESSAGE = "invalid_message"
    ACTION_NOT_ALLOWED = "action_not_allowed"
    QUEUE_FULL = "queue_full"
    TOO_MANY_RUNS = "too_many_runs"
    UNAVAILABLE = "unavailable"


class FailureCode(StrEnum):
    """Why a visit, and with it perhaps its run, failed."""

    NODE_FAILED = "node_failed"
    INVALID_PATCH = "invalid_patch"
    NO_WAY_OUT = "no_way_out"
    JOIN_STARVED = "join_starved"
    MAX_VISITS = "max_visits"
    MAX_TURNS = "max_turns"
    CODE_MISSING = "code_missing"
    MODEL_UNAVAILABLE = "model_unavailable"
    TOOLS_UNAVAILABLE = "tools_unavailable"
    PAYLOAD_UNREADABLE = "payload_unreadable"
    VISIT_TOO_LARGE = "visit_too_large"
    VALUES_INCOMPATIBLE = "values_incompatible"
    UNKNOWN_NODE = "unknown_node"
    UNDECLARED_CAPABILITY = "undeclared_capability"


class AbeyanceError(Exception):
    """Root of everything in this module."""


class GraphError(AbeyanceError):
    """A graph cannot be built. `faults` holds one sentence for each error in it."""

    def __init__(self, graph: str, faults: Sequence[str]) -> None:
        self.graph = graph
        self.faults = tuple(faults)
        listed = "\n".join(f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1))
        count = "1 error" if len(self.faults) == 1 else f"{len(self.faults)} errors"
        super().__init__(f"the graph {graph!r} has {count}:\n{listed}")


class SettingsError(AbeyanceError):
    """A setting, or what it points to, cannot be used; the text names the setting and the way out."""


class Refusal(AbeyanceError):
    """A request that is not allowed now. Nothing has changed.

    `code` is the machine-readable reason; `details` holds members for the reader's program, such
    as `errors`, `open_interrupts`, `limit` or `actual`.
    """

    def __init__(self, code: Code, message: str, **details: Any) -> None:
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details
        super().__init__(message)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Refusal)
            and (self.code, self.message) == (other.code, other.message)
            and self.details == other.details
        )

    __hash__ = None  # type: ignore[assignment]


class Unavailable(AbeyanceError):
    """Temporal or a worker did not answer in time. The call may be repeated with the same ids.

    `retry_after` is the number of seconds after which it is worth trying again.
    """

    def __init__(self, message: str, *, retry_after: float = 2.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class Unreadable(Unavailable):
    """This process cannot read what is kept of a run: for want of a key or storage, or it is damaged."""


class StillPaused(AbeyanceError, TimeoutError):
    """Raised in a node that waited for a paused run to go on, in vain."""


class NodeError(AbeyanceError):
    """Raised by a node's author to say that the visit failed."""


class Fatal(NodeError):
    """Raised by a node's author: the visit failed, and another attempt would be wrong."""


class AgentFailed(NodeError):
    """An agent cannot go on; an agent that called it as a tool is told so, any other graph fails."""

    def __init__(self, code: FailureCode, message: str) -> None:
        self.code = code
        super().__init__(message)


class Blocked(AbeyanceError):
    """A visit cannot run here and now, through no fault of its own: it is tried until it can.

    `code` is shown with it; `retry_after`, in seconds, is when it is worth trying again, where known.
    """

    def __init__(
        self, message: str, *, code: FailureCode, retry_after: float | None = None
    ) -> None:
        self.code = code
        self.retry_after = retry_after
        super().__init__(message)
