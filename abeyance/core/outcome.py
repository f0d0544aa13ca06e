"""Outcome of a visit's code: a closed union, returned by the activity, carried by `VisitEnded`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from abeyance.core.address import TargetNode
from abeyance.core.bounds import Attempts, RetryPolicy
from abeyance.core.json import Json, Spans
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import Kind, Remember
from abeyance.errors import FailureCode

ToolStatus: TypeAlias = Literal["success", "failed", "denied", "interrupted"]
"""Status of a finished tool call."""


def key_of(kind: Kind, key: str) -> str:
    """Return the key of an answer in its visit; keys of questions that code did not ask have a prefix.

    Keys of questions from code never begin with a slash: neither a name nor a process contains one.
    """
    return key if kind == "question" else f"/{kind}/{key}"


CALL_STARTED: Final = "/begun"
"""The step in the journal of a call that may run only once which counts the starts of its code."""
CALL_GRANTED: Final = "/granted"
"""The step in the journal of a call that runs unasked which names its grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that code asks. `process` names the part of the visit that asks, if it has parts.

    `deadline` is a point in time and replaces the question's `timeout`. `prompt_values` is where the
    prompt has values: they are text there, whatever its author writes around them. A name is unique in
    its process. `misfit` is why the answer that was given cannot be read: the question is asked again.
    `remember` is what may be remembered of an approval.
    """

    question: InterruptSpec
    process: str | None = None
    deadline: datetime | None = None
    kind: Kind = "question"
    prompt_values: Spans = ()
    misfit: str | None = None
    remember: Remember | None = None

    @property
    def key(self) -> str:
        """Identifies the question, and its answer, among those of its visit."""
        name = self.question.name
        return key_of(self.kind, name if self.process is None else f"{self.process}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Marks a visit as the call of a tool. `id` is unique among the calls of its agent.

    `interrupts` have to be answered before its code first runs. `once`: the code is never stopped to
    run again, and if its worker dies a person decides what became of it.
    """

    tool: str
    id: str
    interrupts: tuple[Asked, ...] = ()
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One item of a fan-out: a visit of `node` that reads `item`."""

    node: TargetNode
    item: Json = None
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """An event of the author's own. Its type is `user.<name>`."""

    name: str
    data: Json = None
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The code returned.

    `patch` is what it changes. `goto` or `sends` replace its edges (None for no sends; an empty tuple
    is a fan-out without items). `route_targets` are the targets that route functions chose,
    `fired_rules` the ids of the CLIPS rules that fired. `messages_read` counts the messages that the
    code received when it asked for them; None means all that the visit has taken. `unpinned` are
    the chosen targets that today's code declares and the run's own graph does not: the run cannot go
    there yet.

    `result` and `tool_status` are those of a tool call, and `granted` is the grant under which it ran
    unasked; `turn` describes a turn of a model, and its
    `usage` counts towards budgets. `tool_status` and `emitted` are for readers of the events; no rule of
    the run depends on them. `journal` counts only if the run refuses the outcome and the code runs again:
    values may have changed since it began, so that the patch does not fit any more.
    """

    kind: Literal["finished"] = "finished"
    patch: Mapping[str, Json] = field(default_factory=dict)
    goto: TargetNode | None = None
    route_targets: tuple[TargetNode, ...] = ()
    sends: tuple[Send, ...] | None = None
    fired_rules: tuple[str, ...] = ()
    messages_read: int | None = None
    result: Json = None
    unpinned: tuple[str, ...] = ()
    tool_status: ToolStatus | None = None
    granted: Mapping[str, Json] | None = None
    turn: Mapping[str, Json] | None = None
    emitted: tuple[Emitted, ...] = ()
    journal: Json = None

    @property
    def is_decided(self) -> bool:
        """Return whether the code itself chose the next node, in place of edges and route functions."""
        return self.goto is not None or self.sends is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The code asks people, and has ended until they answer.

    `composite`: it has several processes, so every answer starts it again, not only the last; `reason`
    is then its own description. `user_state` is the visit's private state. `messages_read` is as in
    `Finished`. `patch` is what it had changed so far: it counts only if the visit ends without running
    its code again.
    """

    kind: Literal["interrupted"] = "interrupted"
    interrupts: tuple[Asked, ...]
    journal: Json = None
    user_state: Json = None
    composite: bool = False
    reason: Json = None
    messages_read: int | None = None
    patch: Mapping[str, Json] = field(default_factory=dict)
    emitted: tuple[Emitted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The code was stopped, because of a pause, continue-as-new or an ending.

    `patch` is what it had changed so far: it counts only if the visit does not run again. `begun`
    False: no worker had started this attempt. `attempts`: None if they are as they were.
    """

    kind: Literal["stopped"] = "stopped"
    journal: Json = None
    patch: Mapping[str, Json] = field(default_factory=dict)
    begun: bool = True
    attempts: Attempts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The code failed, and runs again after `pause` seconds. `attempts` include this one.

    `patch` is what it had changed so far: it counts only if the visit does not run again.
    """

    kind: Literal["attempt_failed"] = "attempt_failed"
    message: str
    attempts: Attempts
    pause: float
    journal: Json = None
    patch: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The code failed for good: its retries are used up, or `fatal` says that no retry would help.

    `patch` is what it had changed so far: it counts only if the visit does not run again.
    """

    kind: Literal["failed"] = "failed"
    code: str
    message: str
    journal: Json = None
    fatal: bool = False
    patch: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The code cannot run, or cannot go on, until a deploy or an operator fixes what `message` says.

    The visit is tried again, and keeps its journal. `patch` is as in `Stopped`.
    """

    kind: Literal["blocked"] = "blocked"
    code: str
    message: str
    journal: Json = None
    patch: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misread:
    """The code cannot read fields that answers have filled, because their types have become stricter.

    `faults` says why, by field. Nothing of the author's code was called.
    """

    kind: Literal["misread"] = "misread"
    faults: Mapping[str, str]


VisitOutcome: TypeAlias = (
    Finished | Interrupted | Stopped | AttemptFailed | Failed | Blocked | Misread
)


def has_begun(outcome: VisitOutcome) -> bool:
    """Return whether the author's code was called, as far as anybody knows."""
    match outcome:
        case Stopped(begun=begun):
            return begun
        case Blocked(journal=journal):
            return journal is not None
        case Misread():
            return False
        case _:
            return True


def lost_for_good(
    node: str, lost: int, retry: RetryPolicy, attempts: Attempts, *, journal: Json
) -> Failed | None:
    """Return the failure of a visit of `node` after `lost` attempts that were lost with their workers.

    None if `attempts`, which include them, leave a retry.
    """
    if not lost or retry.pause_after(attempts) is not None:
        return None
    which, were = ("attempts", "were") if lost > 1 else ("attempt", "was")
    return Failed(
        code=FailureCode.NODE_FAILED,
        message=f"{lost} {which} at {node!r} {were} lost, because the worker died or was silent. "
        f"{retry.why_none_left(attempts)}",
        journal=journal,
    )
