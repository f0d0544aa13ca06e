"""A tool, and a call of it: who calls, how the function is run, and what the model is told.

A call that gives no result raises a `CallError`, whose text is for the model; asking a person, `Fatal`
and being stopped pass through, because they are not the model's to deal with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from abeyance.agents.approvals import Approve
from abeyance.agents.state import AgentState
from abeyance.agents.tool_errors import CallError, ResultError, ToolFailed, described
from abeyance.agents.tool_schema import Arguments
from abeyance.authoring.callables import call
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import suspended_by
from abeyance.core.json import Json, size
from abeyance.core.spec import Question
from abeyance.errors import Fatal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import ValuesError
from abeyance.wire import refuse_too_deep

OnUnknown: TypeAlias = Literal["ask", "retry", "fail"]

_PASSED_ON: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)


@dataclass(frozen=True, kw_only=True)
class ToolContext(Context):
    """What the code of a tool may know and do: all that the code of a node may, and who calls it.

    `call_id` tells the call from the others of its agent. `agent_state` is what the agent remembers
    between calls: as it was when the model asked for this call, and this call's to change.
    """

    tool: str
    call_id: str
    agent: str
    agent_state: AgentState

    @classmethod
    def of(
        cls, context: Context, *, tool: str, call_id: str, agent: str, agent_state: AgentState
    ) -> ToolContext:
        """The context of a visit, as that of a call."""
        known = {each.name: getattr(context, each.name) for each in fields(Context)}
        return cls(**known, tool=tool, call_id=call_id, agent=agent, agent_state=agent_state)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A function that a model may call. It may also be called as the function that it is.

    Times are in seconds, `max_result` is in bytes; `retries` counts the attempts after the first.
    `question` is what the approvals of all its calls have in common, `asks` are further capabilities
    that its code asks for.
    """

    name: str
    description: str
    function: Callable[..., Any]
    arguments: Arguments
    approve: Approve
    prompt: str | None
    question: Question
    asks: tuple[str, ...]
    timeout: float | None
    retries: int
    heartbeat: float
    on_unknown: OnUnknown
    max_result: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Every capability that a call of it may ask for; first the one of what names none."""
        own = self.question.requested_capability
        return self.asks if own is None else tuple(dict.fromkeys([own, *self.asks]))

    @property
    def schema(self) -> Json:
        """The JSON Schema of the arguments, for the model."""
        return self.arguments.schema

    def read(self, arguments: str | Mapping[str, Json]) -> dict[str, Json]:
        """What a model sent for a call, as JSON: with defaults, and in the form of the types.

        Raises ArgumentsError, which says for each argument what is wrong with it.
        """
        return self.arguments.read(self.name, arguments)

    async def run(self, context: ToolContext, arguments: Mapping[str, Json]) -> Json:
        """Run a call: a coroutine function on the event loop, a plain one in a thread.

        Raises ArgumentsError, ResultError, and ToolFailed for what the function raises; but Fatal,
        what asks people and a cancellation come as they are.
        """
        work = self.arguments.bound(self.function, self.name, arguments, context)
        try:
            returned = await call(self.function, *work.args, **work.keywords)
            # Something may have been put deep into it that could not be written back.
            context.agent_state.changes()
        except (Fatal, ValuesError, CallError, *_PASSED_ON):
            raise
        except BaseException as error:
            # Also what is no Exception, or the attempt would count as lost and the call be made again.
            if suspended_by(error) is not None:
                raise
            raise ToolFailed(described(error)) from error
        return self.told(returned)

    def told(self, result: Any) -> Json:
        """A result as the model is told it. Raises ResultError if it is no JSON, or too large."""
        try:
            found = refuse_too_deep(to_json(result))
        except (ValueError, RecursionError) as error:
            raise ResultError(
                f"{self.name!r} has run, but its result, a {type(result).__name__}, is no JSON: {error}"
            ) from error
        if (actual := size(found)) > self.max_result:
            raise ResultError(
                f"{self.name!r} has run, but its result takes {actual} bytes, and may take "
                f"{self.max_result}: ask for less, or for a part of it"
            )
        return found
