"""Orders by which people control a run, as they cross a process boundary.

What a caller may say is a body; what the run gets also tells by whom it was said, and under which key.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from abeyance.duration import OptionalSeconds
from abeyance.shapes import Keyed, Moment, Request


class ControlBody(Request):
    """What a caller may say with a control operation. `reason` is recorded with it."""

    reason: str | None = Field(default=None, max_length=2_000)


class PauseBody(ControlBody):
    """`timeout` as any duration; `on_timeout` is `resume`, `halt` or `goto:<node>`."""

    mode: Literal["after-node", "now"] = "after-node"
    timeout: OptionalSeconds = Field(default=None, gt=0)
    on_timeout: str = Field(default="resume", pattern=r"^(resume|halt|goto:.+)$")


class CancelBody(ControlBody):
    """`grace` as any duration; None takes the run's own."""

    mode: Literal["graceful", "now"] = "graceful"
    grace: OptionalSeconds = Field(default=None, ge=0)


class Control(ControlBody, Keyed):
    """A control operation as the run gets it: also by whom, as its sender claims."""

    actor: str = Field(default="temporal", max_length=256)


class Pause(PauseBody, Control):
    """Start no new work. `capabilities` are the actor's, for an end that leads to another node."""

    capabilities: tuple[str, ...] = ()


class Resume(Control):
    """Go on."""


class Cancel(CancelBody, Control):
    """End in good order."""


Order: TypeAlias = Pause | Resume | Cancel
"""What a run may get under a key as a signal."""


class Evict(Request):
    """Halt the run, with `inactive_since` only if it was not active after that."""

    inactive_since: Moment | None = None
    actor: str = Field(default="temporal", max_length=256)
