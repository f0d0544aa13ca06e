"""Agents of other frameworks: the framework takes the turns, and Abeyance makes the calls.

A framework is held at each call that its model makes: the call becomes a visit of its own, as a call of
an `Agent` does, and the framework continues with the results. So a foreign agent has the approvals,
edits, rejections, deadlines, addresses, hooks and transcripts of a native one, and a retry after a lost
worker repeats no earlier turn. The state of the framework is stored beside the transcript, outside the
history; the response of the turn refers to it, so a retry of the run continues from that turn.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from abeyance.agents import tool_results
from abeyance.agents.agent import Agent
from abeyance.agents.approvals import APPROVAL, approval_question, approved_arguments
from abeyance.agents.model_errors import foreign_failure
from abeyance.agents.model_request import unused_ids
from abeyance.agents.output import FINAL_RESULT
from abeyance.agents.prompts import Input
from abeyance.agents.tool import Tool, ToolContext
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_dispatch import MUST_ASK
from abeyance.agents.tool_gate import DIGEST
from abeyance.agents.tool_results import blobs_of
from abeyance.agents.tool_schema import Judge, SchemaArguments, judged_when_called
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.json import Json, why_not_json
from abeyance.errors import AgentFailed, FailureCode
from abeyance.schemas.json_schema import without_lookaround

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

_STATE: Final = "abeyance"
"""The key in a response's metadata whose value refers to the framework's state."""

Predicate: TypeAlias = Callable[[dict[str, Any]], bool | Awaitable[bool]]
_Made = TypeVar("_Made")
ToolRules: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Options as those of `@tool`, by the names of tools. `timeout` is the deadline of the approval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTool:
    """A tool that the model of a framework may call.

    `parameters` is the JSON Schema of its arguments, an object, which models and people see. `judge` is
    the framework's own validation of the arguments as the model writes them, and raises ValueError or
    TypeError; by default the framework judges them when the tool runs. `approve` is the framework's own
    way of asking: True, False, or a predicate of the arguments. `timeout` bounds one attempt, in seconds.
    With `is_question` the framework itself asks with this tool: the model does not know of it, and rules
    do not apply to it.
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    judge: Judge = judged_when_called
    approve: bool | Predicate = False
    timeout: float | None = None
    is_question: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCall:
    """A call that the model made, as the framework passes it on. `id` is the model's.

    With `approve`, the framework requires an approval of this call, whatever its tool says; a text is
    shown to the approver.
    """

    id: str
    tool: str
    arguments: Mapping[str, Json] | str
    approve: bool | str = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a call: `content`, as JSON. `ok` is False if it failed or was denied."""

    content: Json
    ok: bool = True


def _unheard(_: Callable[[], str]) -> None:
    """Do nothing, because nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTurn:
    """The input of a framework's next turn.

    `state` is what the last turn returned, None in the first. `results` are those of the last turn's
    calls, by id. `prompts` are the texts of people since then: the input first, then messages, each
    marked with its sender. `journal(name, function)` calls a function once, whatever happens to the
    worker, and returns its result, which is JSON; the same name again is another call. `speak(said)`
    shows watchers what the model says: `said()` is all of it so far, until the turn ends or speaks again.
    """

    state: Json
    results: Mapping[str, CallResult]
    prompts: Sequence[Input]
    journal: Callable[[str, Callable[[], Awaitable[Json]]], Awaitable[Json]]
    speak: Callable[[Callable[[], str]], None] = _unheard

    @property
    def text(self) -> str:
        """The prompts as one text. Raises AgentFailed if one of them holds media."""
        return "\n\n".join(map(_text_of, self.prompts))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTaken:
    """The outcome of a turn: `calls`, or the `output` if there are none.

    `state` is JSON: what the framework needs to continue. `text` is what the model said beside its calls.
    """

    state: Json
    calls: Sequence[ForeignCall] = ()
    text: str = ""
    output: Any = None
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0


@runtime_checkable
class Framework(Protocol):
    """An agent of another framework, as an adapter makes it: these four methods and a name."""

    @property
    def name(self) -> str:
        """The agent's name in addresses: 1 to 64 letters, digits, '_' and '-'."""

    def tools(self) -> Sequence[ForeignTool]:
        """Return the tools that the agent's model may call."""

    def output(self) -> Any:
        """Return the type of the agent's result; None for text."""

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        """Run the framework until its model makes calls, or has an output."""

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        """Run a tool, and return the result for the model. May raise NeedsApproval."""


@dataclass(frozen=True, kw_only=True)
class ForeignContext(ToolContext):
    """The context of a foreign tool's call. `approved` is True if a person has approved the call."""

    approved: bool = False


class NeedsApproval(Exception):
    """The code of a tool requires an approval before it does anything."""


class ForeignAgent(Agent):
    """An agent whose turns a framework takes.

    `framework` is an adapter, `tools` are rules by tool name, as `ToolRules` says; `options` are those of
    `Agent`, such as `max_turns`, `hooks` and `memory`. Raises TypeError or ToolDeclarationError for rules
    that do not fit.
    """

    def __init__(
        self,
        framework: Framework,
        *,
        tools: ToolRules | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        # If the first turn imported it, the worker's event loop would block for longer than a heartbeat.
        importlib.import_module("pydantic_ai")
        self.framework = framework
        foreign = framework.tools()
        names = [entry.name for entry in foreign if not entry.is_question]
        rules = dict(tools or {})
        if unknown := sorted(rules.keys() - {*names}):
            raise TypeError(
                f"tools={unknown!r}: the agent {framework.name!r} has no such tool; it has "
                f"{', '.join(map(repr, names)) or 'none'}"
            )
        self._ruled = {name for name, rule in rules.items() if "approve" in rule}
        super().__init__(
            framework.name if name is None else name,
            model=self._never_asked,
            tools=[self._held(entry, rules.get(entry.name, {})) for entry in foreign],
            output=framework.output(),
            **options,
        )

    def _never_asked(self, messages: object, info: object) -> ModelResponse:
        message = f"{self.name!r}: its framework asks its model, about {messages!r}, {info!r}"
        raise AssertionError(message)

    def _held(self, foreign: ForeignTool, rule: Mapping[str, Any]) -> Tool:
        options = dict(rule)
        if "timeout" in options:
            if "approval_timeout" in options:
                message = f"tools={foreign.name!r}: set timeout or approval_timeout, not both"
                raise TypeError(message)
            options["approval_timeout"] = options.pop("timeout")
        options.setdefault("approve", foreign.approve)

        async def run(ctx: ToolContext, arguments: Mapping[str, Json]) -> Any:
            return await self._call(held, ctx, dict(arguments))

        held: Tool = tool(
            name=foreign.name,
            description=foreign.description,
            schema=SchemaArguments(
                schema=without_lookaround(dict(foreign.parameters)), judge=foreign.judge
            ),
            timeout=foreign.timeout,
            **options,
        )(run)
        return held

    async def _call(self, held: Tool, ctx: ToolContext, arguments: dict[str, Json]) -> Any:
        inherited = {name: getattr(ctx, name) for name in ToolContext.__dataclass_fields__}
        context = ForeignContext(**inherited, approved=DIGEST in ctx.item)
        try:
            return await self.framework.call(held.name, arguments, context)
        except NeedsApproval:
            if APPROVAL not in ctx.targets:
                raise Suspended([approval_question(held, arguments)]) from None
        approved = approved_arguments(held, ctx.targets[APPROVAL], arguments)
        return await self.framework.call(held.name, approved, replace(context, approved=True))

    async def request(
        self,
        ctx: Context,
        before: Sequence[ModelMessage],
        messages: Sequence[ModelMessage],
        on_partial: Callable[[ModelResponse], None] | None = None,
        on_stream: Callable[[Callable[[], str]], None] | None = None,
    ) -> ModelResponse:
        """Let the framework take a turn. Raise AgentFailed if its state cannot be stored."""
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.usage import RequestUsage
        from pydantic_core import PydanticSerializationError

        del on_partial
        kept = await self._kept(ctx, before)
        added = messages[len(before) :]
        turn = ForeignTurn(
            state=kept.state,
            results={kept.own(id_): result for id_, result in _results(added).items()},
            prompts=_prompts(added),
            journal=_Requests(ctx).journal,
            speak=on_stream or _unheard,
        )
        try:
            taken = await self.framework.turn(turn)
        except PydanticSerializationError as error:
            raise self._not_stored(str(error)) from error
        except Exception as error:
            failure = foreign_failure(self.framework.name, error)
            if failure is None or failure is error:
                raise
            raise failure from error
        parts: list[Any] = [TextPart(taken.text)] if taken.text else []
        ids = {}
        unused_id = unused_ids(
            call.tool_call_id for each in before for call in getattr(each, "tool_calls", ())
        )
        for call in taken.calls:
            id_ = unused_id(call.id)
            ids[id_] = call.id
            arguments = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
            asks = call.approve is not False and call.tool not in self._ruled
            details = {MUST_ASK: call.approve or True} if asks else None
            parts.append(ToolCallPart(call.tool, arguments, id_, provider_details=details))
        if not taken.calls:
            try:
                parts.append(self._output_part(taken.output, unused_id))
            except PydanticSerializationError as error:
                message = f"the output of the agent {self.name!r} is not JSON: {error}"
                raise AgentFailed(FailureCode.NODE_FAILED, message) from error
        if (fault := why_not_json(taken.state)) is not None:
            raise self._not_stored(fault)
        reference = await blobs_of(ctx).put(
            ctx.run_id, json.dumps({"state": taken.state, "ids": ids}).encode()
        )
        return ModelResponse(
            parts=parts,
            model_name=taken.model or type(self.framework).__name__,
            usage=RequestUsage(input_tokens=taken.input_tokens, output_tokens=taken.output_tokens),
            metadata={_STATE: reference},
        )

    def _not_stored(self, fault: str) -> AgentFailed:
        message = (
            f"the state of the agent {self.name!r} cannot be stored: {fault}. It lasts from turn to turn "
            "on any worker: keep in it what JSON can hold, and make such an object anew where it is used"
        )
        return AgentFailed(FailureCode.NODE_FAILED, message)

    async def _kept(self, ctx: Context, before: Sequence[ModelMessage]) -> _Kept:
        from pydantic_ai.messages import ModelResponse

        for message in reversed(before):
            if isinstance(message, ModelResponse) and _STATE in (message.metadata or {}):
                stored = await blobs_of(ctx).get((message.metadata or {})[_STATE])
                return _Kept(**json.loads(stored))
        return _Kept()

    def _output_part(self, output: Any, unused_id: Callable[[str], str]) -> Any:
        from pydantic_ai.messages import TextPart, ToolCallPart
        from pydantic_core import to_jsonable_python

        # Without computed fields: the value is read as its type.
        value = to_jsonable_python(output, round_trip=True)
        if self.output.tool is None:
            return TextPart(value if isinstance(value, str) else json.dumps(value))
        arguments = {"result": value} if self.output.is_wrapped else value
        return ToolCallPart(FINAL_RESULT, arguments, unused_id(FINAL_RESULT))


class _Requests:
    """The requests to models within a turn. Each is a step; large responses go to the storage."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._begun: Counter[str] = Counter()

    async def journal(self, name: str, function: Callable[[], Awaitable[Json]]) -> Json:
        async def request() -> dict[str, Json]:
            return await tool_results.store(self._ctx, tool_results.content(await function()))

        self._begun[name] += 1
        step = f"{name}, {self._begun[name]}"
        stored = await self._ctx.step(step, request)
        return (await tool_results.load(blobs_of(self._ctx), stored))["content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The state of a framework after a turn, and the framework's ids of the turn's calls."""

    state: Json = None
    ids: Mapping[str, str] = field(default_factory=dict)

    def own(self, call_id: str) -> str:
        return self.ids.get(call_id, call_id)


class Heard:
    """Messages of people while calls were open, for a framework that takes no input before their results.

    `texts` are the messages that a model has read, each with its place in the conversation; `new` are
    unread.
    """

    def __init__(self, texts: Sequence[list[Any]] = ()) -> None:
        self.texts = [*texts]
        self.new: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.texts or self.new)

    def placed(self, messages: Sequence[Any], said: Callable[[str], Any]) -> list[Any]:
        """Return the messages of a request with all texts in their places, the new ones at the end."""
        placed, length = [*messages], len(messages)
        self.texts += [[length, text] for text in self.new]
        self.new = []
        for place, text in reversed(self.texts):
            placed.insert(min(place, length), said(text))
        return placed


def as_agent(agent: Agent | Framework) -> Agent:
    """Wrap an adapter as an agent. Return anything else as it is: the compiler refuses a non-agent."""
    if isinstance(agent, Agent) or not isinstance(agent, Framework):
        return agent
    return ForeignAgent(agent)


def by_call(_: dict[str, Any]) -> bool:
    """Let the framework decide which calls of a tool need an approval: see `ForeignCall.approve`."""
    return False


def fresh(given: Any) -> Any:
    """Return the result of calling a function or a class; return anything else as it is."""
    return given() if inspect.isfunction(given) or inspect.isclass(given) else given


def made_by(given: Any, kind: type[_Made], words: str) -> _Made:
    """Return `given`, or the agent that it makes. Raises TypeError if that is not of the type `kind`."""
    made = given() if callable(given) and not isinstance(given, kind) else given
    if not isinstance(made, kind):
        raise TypeError(f"{made!r} is not {words}: pass one, or a function that makes one")
    return made


def warn_untested(package: str, lowest: str, below: str) -> None:
    """Warn if a framework's installed version is outside the range that its adapter was tested with."""
    installed = importlib.metadata.version(package)
    if not _numbers(lowest) <= _numbers(installed) < _numbers(below):
        warnings.warn(
            f"{package} {installed} is installed, and this adapter is tested with {lowest} up to, but "
            f"not including, {below}",
            stacklevel=3,
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _results(messages: Sequence[ModelMessage]) -> dict[str, CallResult]:
    from pydantic_ai.messages import ToolReturnPart

    return {
        part.tool_call_id: CallResult(content=part.content, ok=part.outcome == "success")
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }


def _prompts(messages: Sequence[ModelMessage]) -> list[Input]:
    from pydantic_ai.messages import RetryPromptPart, UserPromptPart

    prompts: list[Input] = []
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=content):
                    prompts.append(content)
                case RetryPromptPart():
                    prompts.append(part.model_response())
                case _:
                    pass
    return prompts


def _text_of(prompt: Input) -> str:
    if isinstance(prompt, str):
        return prompt
    texts = [part if isinstance(part, str) else getattr(part, "content", None) for part in prompt]
    if not all(isinstance(text, str) for text in texts):
        message = "this adapter passes texts to its framework, not media: send text"
        raise AgentFailed(FailureCode.NODE_FAILED, message)
    return "\n\n".join(texts)  # type: ignore[arg-type]
