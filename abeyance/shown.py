"""What people and programs are shown of a run: views, the closing record, events."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from abeyance.core.ledger import Parent
from abeyance.core.mailbox import Rejected, Undelivered
from abeyance.core.state import Called
from abeyance.shapes import Record

UNSEEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but for the tab and the end of a line
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"  # what takes no room, or shows nothing
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of writing
    "\u2028\u2029"  # ends of lines that not everybody takes for one
    "\ud800-\udfff"  # halves of characters
    "]"
)
"""The characters by which a text is read as another one than it is. The inbox has the same table."""


def visible(text: str) -> str:
    """The text with what cannot be seen in it shown as code points, such as `<U+202E>`."""
    return UNSEEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """JSON with the same written as escapes: it means what it meant before."""
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


class InterruptView(Record):
    """An interrupt as people and programs see it.

    `abridged`: so much is open beside it that its reason, payload and schema are left out, and the prompt
    is cut; read by its id it is whole. `degraded`: what is kept of it cannot be read here, so its prompt
    says why, and its deadline is the nearest of the run's.
    """

    id: str
    run_id: str
    graph: str
    name: str
    kind: str
    address: str
    prompt: str
    reason: Any = None
    payload: Any = None
    response_schema: Any = None
    requested_capability: str | None = None
    created_at: datetime
    deadline: datetime | None = None
    on_timeout: Any = None
    status: str
    parent: str | None = None
    parents: list[Parent] = Field(default_factory=list)
    is_root_cause: bool = True
    digest: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    answer_sha256: str | None = None
    answer: Any = None
    settled_at: datetime | None = None
    settled_reason: str | None = None
    abridged: bool = False
    degraded: bool = False


class Metrics(Record):
    """What is counted over a run's life."""

    messages_queued: int
    messages_delivered: int
    pause_count: int
    resume_count: int
    cancel_count: int
    max_queue_depth: int
    last_activity_at: datetime
    visits: int


class ErrorView(Record):
    """What failed, and where."""

    code: str
    message: str
    address: str | None = None


class PauseView(Record):
    """Why, by whom and for how long a run is paused."""

    since: datetime
    actor: str
    reason: str | None
    mode: str
    deadline: datetime | None
    on_timeout: str


class AgentView(Record):
    """An agent at work: how many turns its model has taken, and what they took (`input_tokens`, ...)."""

    address: str
    turns: int
    usage: dict[str, int] = Field(default_factory=dict)


class RunView(Record):
    """A run as people and programs see it.

    `guarded_by` are the capabilities that its graph can ask for; to change its course takes them all.
    """

    run_id: str
    graph: str
    graph_version: str
    status: str
    outcome: str | None = None
    reason: str | None = None
    paused: bool = False
    pause: PauseView | None = None
    conversation_id: str | None = None
    session_type: str = "agent"
    labels: dict[str, str] = Field(default_factory=dict)
    started_by: str | None = None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    running: list[str] = Field(default_factory=list)
    agents: list[AgentView] = Field(default_factory=list)
    interrupts: list[InterruptView] = Field(default_factory=list)
    queue_depth: int = 0
    max_queue_size: int = 0
    todos: list[Any] = Field(default_factory=list)
    metrics: Metrics | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    version: int = 0
    result: dict[str, Any] | None = None
    undelivered: list[Undelivered] = Field(default_factory=list)
    rejected: list[Rejected] = Field(default_factory=list)
    blocked: list[dict[str, Any]] = Field(default_factory=list)
    guarded_by: list[str] = Field(default_factory=list)
    error: ErrorView | None = None
    beside: list[ErrorView] = Field(default_factory=list)
    cancelled_by: str | None = None
    degraded: bool = False


class ClosingRecord(Record):
    """What a run leaves behind: enough to read it, and to answer for it, without a worker.

    `transcripts` says where those of its agents are kept, by the agents' addresses; None
    where that was not written down. `keys` are the last calls that came under a key.
    """

    outcome: str
    reason: str | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    undelivered: list[Undelivered] = Field(default_factory=list)
    view: RunView
    interrupts: list[InterruptView] = Field(default_factory=list)
    transcripts: dict[str, str] | None = None
    keys: dict[str, Called] = Field(default_factory=dict)


class Event(Record):
    """Something that happened in a run, as its feed tells it; never values, never an answer.

    `id` is the cursor right after it: opaque, and larger as text than those of earlier events.
    """

    id: str
    time: datetime
    type: str
    run_id: str
    address: str | None = None
    actor: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


TERMINAL_EVENTS = frozenset({"run.completed", "run.failed", "run.cancelled", "run.halted"})
"""The types of the last event of a run."""
