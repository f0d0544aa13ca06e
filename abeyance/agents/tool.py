"""`Tool` and `ToolContext`: running the function of a tool and encoding its result for the model; and
`ToolServer`, a server of tools as an agent sees it. Only the server's own package knows its protocol.

A call without a result raises a `CallError`, whose text is for the model. Interrupts, `Fatal` and
cancellation pass through: the model cannot handle them.

A preview says what a call would do, and the approver sees it. A second preview is made right before the
call. If it fails or differs from the first, the call would not do what was approved, so the approver is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from abeyance.agents.approvals import Approve
from abeyance.agents.state import AgentState
from abeyance.agents.tool_errors import CallError, ResultError, ToolFailed, described
from abeyance.agents.tool_schema import Arguments
from abeyance.authoring.callables import call
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import suspended_by
from abeyance.core.bounds import RetryPolicy
from abeyance.core.json import Json, canonical, size
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import Remember
from abeyance.core.text import truncate
from abeyance.errors import Fatal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import ValuesError
from abeyance.wire import refuse_too_deep

OnUnknown: TypeAlias = Literal["ask", "retry", "fail"]

_MAX_PREVIEW_BYTES: Final = 64_000
_MAX_PREVIEW_ERROR_CHARS: Final = 1_000
_PREVIEW_SECONDS: Final = 60.0
"""The time limit of a preview whose tool has no timeout."""
_PREVIEW_KEYS: Final = ("summary", "diff", "table", "cost")
_PASSED_ON: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)


@dataclass(frozen=True, kw_only=True)
class ToolContext(Context):
    """The context of a tool call: that of a node, and the calling agent.

    `call_id` identifies the call in its agent. `agent_state` is a copy of the agent's state as of the
    model's turn; the changes of this call are merged into the agent's state.
    """

    tool: str
    call_id: str
    agent: str
    agent_state: AgentState

    @classmethod
    def of(
        cls, context: Context, *, tool: str, call_id: str, agent: str, agent_state: AgentState
    ) -> ToolContext:
        inherited = {field.name: getattr(context, field.name) for field in fields(Context)}
        return cls(**inherited, tool=tool, call_id=call_id, agent=agent, agent_state=agent_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The function that makes the previews of a tool, and its arguments: some or all of the tool's."""

    function: Callable[..., Any]
    arguments: Arguments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A function that a model may call. Calling the tool calls the function.

    Times are in seconds, `max_result` is in bytes. After an exception of `retry_on`, the function is
    retried by the policy `retry`. `preview` describes to an approver what a call would do. `question` is
    the part of the approval question that all calls share, `asks` are further capabilities that the code
    requests. `remember` says how far an approval may be remembered.
    """

    name: str
    description: str
    function: Callable[..., Any]
    arguments: Arguments
    approve: Approve
    prompt: str | None
    question: InterruptSpec
    asks: tuple[str, ...]
    timeout: float | None
    retry: RetryPolicy
    retry_on: tuple[type[BaseException], ...]
    heartbeat: float
    on_unknown: OnUnknown
    max_result: int
    preview: Preview | None = None
    remember: Remember | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that calls may request; the first one not used to escalate is the default."""
        own = self.question.requested_capability
        declared = self.asks if own is None else (own, *self.asks)
        return tuple(dict.fromkeys([*declared, *self.question.escalates_to]))

    @property
    def schema(self) -> Json:
        """The JSON Schema of the arguments, for the model."""
        return self.arguments.schema

    def read(self, arguments: str | Mapping[str, Json]) -> dict[str, Json]:
        """Validate the arguments of a call, and return them as JSON, with defaults filled in.

        Raises ArgumentsError with one sentence for each invalid argument.
        """
        return self.arguments.read(self.name, arguments)

    async def run(self, context: ToolContext, arguments: Mapping[str, Json]) -> Json:
        """Run a call: a coroutine function on the event loop, a plain one in a thread.

        Raises ArgumentsError, ResultError, and ToolFailed for an exception of the function. Fatal,
        interrupts and cancellation pass through.
        """
        bound = self.arguments.bound(self.function, self.name, arguments, context)
        try:
            returned = await call(self.function, *bound.args, **bound.keywords)
            # Raises if a nested change made the state too large or not JSON.
            context.agent_state.changes()
        except (Fatal, ValuesError, CallError, *_PASSED_ON):
            raise
        except BaseException as error:
            # Catch any BaseException: else the attempt would count as lost, and the call would run again.
            if suspended_by(error) is not None:
                raise
            raise ToolFailed(described(error)) from error
        return self.checked_result(returned)

    def checked_result(self, result: Any) -> Json:
        """Return a result as JSON for the model. Raises ResultError if it is not JSON or too large."""
        try:
            value = refuse_too_deep(to_json(result))
        except (ValueError, RecursionError) as error:
            raise ResultError(
                f"{self.name!r} has run, but its result, a {type(result).__name__}, is not JSON: {error}"
            ) from error
        if (bytes_ := size(value)) > self.max_result:
            raise ResultError(
                f"{self.name!r} has run, but its result takes {bytes_} bytes of at most "
                f"{self.max_result}: ask for less, or for a part of it"
            )
        return value


async def preview_of(tool: Tool, context: ToolContext, arguments: Mapping[str, Json]) -> Json:
    """Return the preview of a call, or `{error}` if the preview's function raised, took too long, or did
    not return a preview.
    """
    try:
        async with asyncio.timeout(tool.timeout or _PREVIEW_SECONDS):
            return await _preview(tool, context, arguments)
    except _PASSED_ON:
        raise
    except TimeoutError:
        return {"error": f"the preview took longer than {tool.timeout or _PREVIEW_SECONDS:g} s"}
    except CallError as error:
        return {"error": truncate(error.text, _MAX_PREVIEW_ERROR_CHARS)}
    except BaseException as error:  # noqa: BLE001 anything that the author's code may raise
        why = "it asks, which a preview cannot" if suspended_by(error) else described(error)
        return {"error": truncate(f"the preview failed: {why}", _MAX_PREVIEW_ERROR_CHARS)}


def differs(shown: Json, now: Json) -> bool:
    """Return whether the preview `now` voids the approval of `shown`. A failed preview does."""
    return "error" in now or canonical(shown) != canonical(now)


async def _preview(tool: Tool, context: ToolContext, arguments: Mapping[str, Json]) -> Json:
    preview = tool.preview
    assert preview is not None  # noqa: S101 only such a tool has previews
    known = preview.arguments.schema.get("properties")
    own = arguments if known is None else {k: v for k, v in arguments.items() if k in known}
    bound = preview.arguments.bound(preview.function, tool.name, own, context)
    made = refuse_too_deep(to_json(await call(preview.function, *bound.args, **bound.keywords)))
    if (fault := _preview_fault(made)) is not None:
        return {"error": f"the preview {fault}"}
    return made


def _preview_fault(made: Json) -> str | None:
    if not isinstance(made, Mapping) or not isinstance(made.get("summary"), str):
        return "is not a mapping with a text under 'summary'"
    if unknown := sorted(made.keys() - {*_PREVIEW_KEYS}):
        return f"has {', '.join(map(repr, unknown))}: it may have {', '.join(_PREVIEW_KEYS)}"
    if not isinstance(made.get("diff"), str | None):
        return "has a diff that is not text"
    if not isinstance(made.get("table"), list | None):
        return "has a table that is not a list of rows"
    if (bytes_ := size(made)) > _MAX_PREVIEW_BYTES:
        return f"takes {bytes_} bytes, and may take {_MAX_PREVIEW_BYTES}: show a part of it"
    return None


@runtime_checkable
class ToolServer(Protocol):
    """A server whose tools are listed before each request to the model, and called as any other tool.

    People and models know the server by its `title`; `description` describes the node of its calls. Calls
    may request `requested_capability`, and are retried by the policy `retry`. `library` is the module
    that the server requires.
    """

    @property
    def title(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def requested_capability(self) -> str | None: ...

    @property
    def retry(self) -> RetryPolicy: ...

    @property
    def library(self) -> str: ...

    async def available_tools(self) -> Mapping[str, Tool]:
        """Return the server's current tools by name. Raises Blocked while it is unavailable."""


_closings: Final[set[Callable[[], Awaitable[None]]]] = set()


def close_with_worker(close: Callable[[], Awaitable[None]]) -> None:
    """Let each worker await `close` at its shutdown, to end the connections of its event loop."""
    _closings.add(close)


async def close_servers() -> None:
    """End this event loop's connections to servers of tools. A worker calls it at shutdown."""
    for close in tuple(_closings):
        await close()
