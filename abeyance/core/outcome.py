"""What the code of a visit came to: a closed union, returned by its activity, carried by `VisitEnded`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from abeyance.core.json import Json
from abeyance.core.spec import Kind, Question

ToolStatus: TypeAlias = Literal["success", "failed", "denied", "interrupted"]
"""How the call of a tool ended."""


def key_of(kind: Kind, key: str) -> str:
    """The key of an answer in its visit: those that code did not ask for are told apart by kind.

    No key of code's begins with a slash: neither a name nor a process has one in it.
    """
    return key if kind == "question" else f"/{kind}/{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that code asks. `process` is the part of the visit that asks it, if it has parts.

    `deadline` is a moment, in place of the question's `timeout`. A name is unique in its process.
    """

    question: Question
    process: str | None = None
    deadline: datetime | None = None
    kind: Kind = "question"

    @property
    def key(self) -> str:
        """What tells it from the other questions of its visit, and finds its answer again."""
        name = self.question.name
        return key_of(self.kind, name if self.process is None else f"{self.process}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """That a visit is the call of a tool. `id` is the call's, unique among those of its agent.

    What is `asked` has to be answered before its code runs for the first time. `once`: nobody may stop
    the code to run it again, and what became of it when its worker died a person has to say.
    """

    tool: str
    id: str
    asked: tuple[Asked, ...] = ()
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One item of a fan-out: a visit of `node` that reads `item`."""

    node: str
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

    `patch` is what it changes; `goto` or `sends` replace its edges (no sends at all is None, and an
    empty fan-out is one without items); `routed` are the targets that route functions chose, `fired` the
    ids of the rules with CLIPS text that fired. `read` counts the messages that it was given when it
    asked for them; None is all that the visit has taken. `unread`: those that it was handed at its start
    were not read. `uncounted`: it only handed work on, so it is no round of a loop.

    `result` is that of a tool call, which `ended` so; `turn` tells of a turn of a model. Followers of the
    run see `ended`, `turn` and what the code `emitted`; no rule of the run depends on them.
    """

    kind: Literal["finished"] = "finished"
    patch: Mapping[str, Json] = field(default_factory=dict)
    goto: str | None = None
    routed: tuple[str, ...] = ()
    sends: tuple[Send, ...] | None = None
    fired: tuple[str, ...] = ()
    read: int | None = None
    result: Json = None
    unread: bool = False
    uncounted: bool = False
    ended: ToolStatus | None = None
    turn: Mapping[str, Json] | None = None
    emitted: tuple[Emitted, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether the code itself chose where to go, in place of its node's edges and route functions."""
        return self.goto is not None or self.sends is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The code asks people, and has ended until they answer.

    `composite`: it runs several processes, so every answer re-enters it, not only the last. `reason`
    is then what it says of itself. `saved` is the visit's private state. `read` is as in `Finished`.
    `patch` is what it had done by then: it counts only if the visit ends without its code.
    """

    kind: Literal["interrupted"] = "interrupted"
    asked: tuple[Asked, ...]
    journal: Json = None
    saved: Json = None
    composite: bool = False
    reason: Json = None
    read: int | None = None
    patch: Mapping[str, Json] = field(default_factory=dict)
    emitted: tuple[Emitted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The code was stopped, because of a pause, a rotation or an ending.

    `patch` is what it had done by then: it counts only if the visit does not begin again. `begun` False:
    no worker had the code in hand, be it for the first time or to be tried again.
    """

    kind: Literal["stopped"] = "stopped"
    journal: Json = None
    patch: Mapping[str, Json] = field(default_factory=dict)
    begun: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The code failed for good: its retries are used up, or it said (`fatal`) that none would help.

    `patch` is what it had done by then: it counts only if nobody has it done again.
    """

    kind: Literal["failed"] = "failed"
    code: str
    message: str
    journal: Json = None
    fatal: bool = False
    patch: Mapping[str, Json] = field(default_factory=dict)


VisitOutcome: TypeAlias = Finished | Interrupted | Stopped | Failed
