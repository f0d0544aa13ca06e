"""What the code of an agent's own nodes returns, beyond what an author's may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from abeyance.core.canonical import Json
from abeyance.core.events import Send

Ended: TypeAlias = Literal["success", "failed", "denied", "interrupted"]
"""How the call of a tool ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A patch and where to go; `result` is that of a tool call, and `ended` how it ended; `turn` tells of
    a model's turn. `unread`: the messages that it was handed were not read; `uncounted`: it is no round
    of a loop.
    """

    patch: Mapping[str, Any] = field(default_factory=dict)
    goto: str | None = None
    sends: tuple[Send, ...] | None = None
    result: Json = None
    ended: Ended | None = None
    turn: Mapping[str, Json] | None = None
    unread: bool = False
    uncounted: bool = False
