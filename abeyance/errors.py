"""The errors that Abeyance raises, and the codes of refusals and failures.

AbeyanceError
├── GraphError       the graph cannot be built; `faults` lists every error in it
├── SettingsError    a setting cannot be used; the message names it
├── Refusal          a request is not allowed now, and nothing has changed; `code` is the reason
├── Unavailable      Temporal or a worker cannot be reached; retry the same call later
│   ├── Unreadable   the data of a run exists, but this process cannot read it
│   └── RecordsUnavailable   the database of the records cannot be reached
├── StillPaused      a node waited for a paused run to resume, until its timeout
├── Blocked          a visit cannot run yet; it is retried until it can
└── NodeError        raised by the author of a node
    ├── AgentFailed  an agent failed
    └── Fatal        the visit failed and must not be retried

The codes are stable: a refusal's code is also the type of the error in Temporal, the `code` of the HTTP
problem and a row of docs/reference/refusals.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """The reason of a refusal."""

    MALFORMED_BODY = "malformed_body"
    UNAUTHENTICATED = "unauthenticated"
    LINK_EXPIRED = "link_expired"
    CAPABILITY_REQUIRED = "capability_required"
    OUTSIDE_READS = "outside_reads"
    NOT_ASSIGNED = "not_assigned"
    SEPARATION_OF_DUTIES = "separation_of_duties"
    FOREIGN_ORIGIN = "foreign_origin"
    UNKNOWN_RUN = "unknown_run"
    NOT_RUNNING = "not_running"
    UNKNOWN_GRAPH = "unknown_graph"
    UNKNOWN_INTERRUPT = "unknown_interrupt"
    UNKNOWN_NODE = "unknown_node"
    NOT_FOUND = "not_found"
    NO_ACTIVE_RUN = "no_active_run"
    RUN_EXISTS = "run_exists"
    RUN_FINISHED = "run_finished"
    ALREADY_ANSWERED = "already_answered"
    NOT_ROOT_CAUSE = "not_root_cause"
    WITHDRAWN = "withdrawn"
    STALE = "stale"
    NOTHING_OPEN = "nothing_open"
    AMBIGUOUS_INTERRUPT = "ambiguous_interrupt"
    AMBIGUOUS_DELEGATION = "ambiguous_delegation"
    CLAIMED = "claimed"
    NOT_CLAIMABLE = "not_claimable"
    AMBIGUOUS_RUN = "ambiguous_run"
    MESSAGE_CONFLICT = "message_conflict"
    CONVERSATION_BUSY = "conversation_busy"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    NOT_STOPPED = "not_stopped"
    NOT_FINISHED = "not_finished"
    NOT_HELD = "not_held"
    CANNOT_MIGRATE = "cannot_migrate"
    VERSIONS_DIFFER = "versions_differ"
    NATIVELY_PAUSED = "natively_paused"
    NOT_SEALED = "not_sealed"
    EXPIRED = "expired"
    GONE = "gone"
    CURSOR_EXPIRED = "cursor_expired"
    ERASED = "erased"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    INVALID_BODY = "invalid_body"
    INVALID_RUN_ID = "invalid_run_id"
    INVALID_INPUT = "invalid_input"
    READ_ONLY_FIELD = "read_only_field"
    INVALID_ANSWER = "invalid_answer"
    DECISION_NOT_ALLOWED = "decision_not_allowed"
    NOT_REMEMBERABLE = "not_rememberable"
    GRANT_TOO_WIDE = "grant_too_wide"
    INVALID_MESSAGE = "invalid_message"
    ACTION_NOT_ALLOWED = "action_not_allowed"
    QUEUE_FULL = "queue_full"
    TOO_MANY_RUNS = "too_many_runs"
    RECORDS_UNAVAILABLE = "records_unavailable"
    UNAVAILABLE = "unavailable"


class FailureCode(StrEnum):
    """The reason why a visit, and possibly its run, failed."""

    NODE_FAILED = "node_failed"
    INVALID_PATCH = "invalid_patch"
    NO_WAY_OUT = "no_way_out"
    JOIN_STARVED = "join_starved"
    MAX_VISITS = "max_visits"
    MAX_TURNS = "max_turns"
    BUDGET_EXHAUSTED = "budget_exhausted"
    VISIT_TOO_LARGE = "visit_too_large"
    UNKNOWN_NODE = "unknown_node"
    UNDECLARED_CAPABILITY = "undeclared_capability"
    UNKNOWN_QUESTION = "unknown_question"
    UNKNOWN_PERSON = "unknown_person"


class BlockedCode(StrEnum):
    """The reason why a visit, or a whole run, is blocked until a deploy or an operator fixes it."""

    CANNOT_REPLAY = "cannot_replay"
    CODE_MISSING = "code_missing"
    EXTRA_MISSING = "extra_missing"
    KEY_MISSING = "key_missing"
    MODEL_UNAVAILABLE = "model_unavailable"
    TOOLS_UNAVAILABLE = "tools_unavailable"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    PAYLOAD_UNREADABLE = "payload_unreadable"
    TARGET_UNKNOWN = "target_unknown"
    UNDECLARED_CAPABILITY = "undeclared_capability"
    VALUES_INCOMPATIBLE = "values_incompatible"


class AbeyanceError(Exception):
    """The base class of all errors of Abeyance."""


class GraphError(AbeyanceError):
    """A graph cannot be built. `faults` has one sentence for each error, with its line."""

    def __init__(self, graph: str, faults: Sequence[str]) -> None:
        self.graph = graph
        self.faults = tuple(faults)
        listed = "\n".join(f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1))
        count = "1 error" if len(self.faults) == 1 else f"{len(self.faults)} errors"
        super().__init__(f"the graph {graph!r} has {count}:\n{listed}")


class SettingsError(AbeyanceError):
    """A setting, or the file or address that it names, cannot be used. The message has the fix."""


class Refusal(AbeyanceError):
    """A request is not allowed now. Nothing has changed.

    `code` is the reason. `details` has further members for programs, such as `errors`, `open_interrupts`,
    `limit` or `actual`.
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
    """Temporal or a worker did not respond in time. Retry the call with the same ids.

    `retry_after` is the number of seconds to wait before the retry.
    """

    def __init__(self, message: str, *, retry_after: float = 2.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class Unreadable(Unavailable):
    """This process cannot read the data of a run: a key or the storage is missing, or it is damaged.

    `code` is `key_missing`, `storage_unavailable` or `payload_unreadable`.
    """

    def __init__(self, message: str, *, code: BlockedCode = BlockedCode.PAYLOAD_UNREADABLE) -> None:
        self.code = code
        super().__init__(message)


class RecordsUnavailable(Unavailable):
    """The database of the records cannot be reached, or cannot be used as it is. Runs go on."""

    code = Code.RECORDS_UNAVAILABLE


class StillPaused(AbeyanceError, TimeoutError):
    """Raised in a node that waited for a paused run to resume, until its timeout."""


class NodeError(AbeyanceError):
    """Raised by the author of a node: the visit failed, and may be retried."""


class Fatal(NodeError):
    """Raised by the author of a node: the visit failed and must not be retried."""


class AgentFailed(NodeError):
    """An agent failed. A calling agent gets the error as a tool result; any other graph fails."""

    def __init__(self, code: FailureCode, message: str) -> None:
        self.code = code
        super().__init__(message)


class Blocked(AbeyanceError):
    """A visit cannot run yet, for a reason outside its code. It is retried until it can.

    `code` is shown in the view of the run. `retry_after` is the number of seconds to wait, if known.
    """

    def __init__(
        self, message: str, *, code: BlockedCode, retry_after: float | None = None
    ) -> None:
        self.code = code
        self.retry_after = retry_after
        super().__init__(message)
