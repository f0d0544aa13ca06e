"""What a person is asked, and what is done when nobody answers, or when something fails.

A question here is as its author declared it. The ledger holds it as it was shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from abeyance.core.canonical import Json

Kind: TypeAlias = Literal[
    "question", "approval", "static", "error", "outcome", "rule", "elicitation"
]
"""What asks: code, a gated tool call, a look at the values, a failed visit, a call of which nobody knows
what became of it, a rule, an MCP server.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """When a deadline passes: the run ends `halted`."""

    kind: Literal["halt"] = "halt"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTo:
    """Run this node of the same scope with the values as they are, in place of what would follow."""

    kind: Literal["goto"] = "goto"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """When a deadline passes: this answer is given, by `timeout`."""

    kind: Literal["default"] = "default"
    answer: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """When a visit fails: the run fails."""

    kind: Literal["fail"] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRun:
    """When a pause's deadline passes: the run goes on."""

    kind: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOperator:
    """When a visit fails: a person says whether to try again, to skip it with a patch, or to fail."""

    kind: Literal["interrupt"] = "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class TellCaller:
    """When a visit for a tool call fails: the failure is its result, which the model sees."""

    kind: Literal["tell"] = "tell"


OnTimeout: TypeAlias = Halt | GoTo | Default
OnPauseTimeout: TypeAlias = ResumeRun | Halt | GoTo
OnError: TypeAlias = Fail | GoTo | AskOperator | TellCaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a person is asked, before it is filled with values and opened.

    `timeout` is in seconds; None waits for ever. `response_schema` None accepts any JSON value.
    """

    name: str
    prompt: str
    reason: Json = None
    payload: Json = None
    response_schema: Json = None
    requested_capability: str | None = None
    timeout: float | None = None
    on_timeout: OnTimeout = field(default_factory=Halt)
