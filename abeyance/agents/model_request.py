"""Media that a message names by a url: passed on to a provider that takes urls, never fetched by us.

The model library fetches what a provider does not take by url, and has no switch against it: its
`force_download` False means "where it is needed". What it does have is one place where every download
begins, by asking whether a url asks for local addresses too. `_Never` sits in that field: as a flag it is
false, so that a url is passed on wherever that is possible, and asked that question, it refuses.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from abeyance.agents.model_errors import ModelRefused, ModelUnusable, failure_of, unprepared
from abeyance.authoring.callables import call
from abeyance.core.json import Json

if TYPE_CHECKING:
    from pydantic_ai.messages import FileUrl, ModelMessage, ModelRequestPart
if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.models.function import AgentInfo
    from pydantic_ai.tools import ToolDefinition


_QUESTION: Final = "allow-local"


class _Never(int):
    """False, and an error where a download begins."""

    refusal: ModelRefused

    def __eq__(self, other: object) -> bool:
        if other == _QUESTION:
            raise self.refusal
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def without_downloads(model: str, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, with every url in them such that using it other than by passing it on is refused.

    The given messages stay as they are.

    Args:
        model: The name of the model, for the text of the refusal.
        messages: The conversation.
    """
    from pydantic_ai.messages import ModelRequest

    return [
        replace(message, parts=[_part(model, part) for part in message.parts])
        if isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def _part(model: str, part: ModelRequestPart) -> ModelRequestPart:
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    if not isinstance(part, UserPromptPart | ToolReturnPart):
        return part
    content = _guarded(model, part.content)
    return part if content is part.content else replace(part, content=content)


def _guarded(model: str, content: Any) -> Any:
    from pydantic_ai.messages import FileUrl

    match content:
        case FileUrl():
            guarded = copy.copy(content)
            never = _Never(0)
            never.refusal = _refusal(model, content)
            guarded.force_download = never  # type: ignore[assignment]
            return guarded
        case list() | tuple():
            return [_guarded(model, item) for item in content]
        case dict():
            return {key: _guarded(model, item) for key, item in content.items()}
        case _:
            return content


def _refusal(model: str, media: FileUrl) -> ModelRefused:
    kind = type(media).__name__.removesuffix("Url").lower()
    where, _, _ = media.url.partition("?")
    return ModelRefused(
        model,
        f"the model {model!r} does not take this {kind} by url, and a url is never fetched on its behalf"
        f" ({where}): send the data itself",
    )


ModelLike: TypeAlias = "str | Model | Callable[..., Any]"
"""A name such as `openai:gpt-5` or `test`; an instance of the model library's `Model`; or a function
`(messages, info) -> ModelResponse`, sync or async, or one that yields pieces of text."""

Part = TypeVar("Part", bound="ModelResponsePart")

_LONGEST_ID: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a model is told about a tool.

    `parameters` is the JSON Schema of its arguments, an object. `strict` asks a provider that can to hold
    the model to the schema; None leaves it to the provider.
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    strict: bool | None = None


def name_of(model: ModelLike) -> str:
    """How a model is named in texts, events and traces."""
    if isinstance(model, str):
        return model
    system, name = getattr(model, "system", None), getattr(model, "model_name", None)
    if isinstance(system, str) and isinstance(name, str):
        return f"{system}:{name}"
    return f"function:{getattr(model, '__qualname__', type(model).__qualname__)}"


async def request(
    model: ModelLike,
    messages: Sequence[ModelMessage],
    *,
    before: Sequence[ModelMessage] = (),
    tools: Sequence[ToolSpec] = (),
    output: ToolSpec | None = None,
    instructions: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_partial: Callable[[ModelResponse], None] | None = None,
) -> ModelResponse:
    """Ask a model once.

    Cancelling the task stops the request at once. What text had come by then is given to `on_partial`,
    marked as interrupted, before the cancellation goes on. Calls and thoughts are left out of it: nobody
    would answer the ones, and providers refuse the others without what was to follow.

    Args:
        model: Which model.
        messages: The conversation so far; the last one is what the model answers.
        before: What belongs to the conversation too, and need not be sent.
        tools: What the model may call.
        output: The tool by which it has to give its result; None means that its text is the result.
        instructions: What it is told above everything else.
        settings: Of the model library, such as `max_tokens` or `temperature`.
        on_partial: Called at most once, when the task is cancelled.

    Returns:
        What the model answered. Each call in it has an id that no other call of the conversation has, of
        1 to 128 characters.

    Raises:
        ModelDown, ModelUnusable, ModelRefused: See `modelfailure`.
    """
    name = name_of(model)
    ready = _prepared(name, model)
    try:
        async with ready:
            response = await _answer(
                ready,
                without_downloads(name, messages),
                _parameters(tools, output, instructions),
                dict(settings or {}),
                on_partial,
            )
    except Exception as error:
        failure = failure_of(name, error)
        if failure is None or failure is error:
            raise
        raise failure from error
    if response.state == "suspended":
        raise ModelRefused(
            name,
            f"the model {name!r} put its answer off, to be asked for it later, which agents do not do:"
            " remove the setting that lets it answer in the background",
        )
    return _with_distinct_calls([*before, *messages], response)


def _prepared(name: str, model: ModelLike) -> Model:
    try:
        from pydantic_ai.models import Model, infer_model
        from pydantic_ai.models.function import FunctionModel
    except ImportError as error:
        raise ModelUnusable(
            name,
            f"this worker cannot use the model {name!r}: agents need a package that is not installed"
            f" ({error}). Run `pip install 'abeyance[agents]'` where the worker runs and start it again:"
            " the run goes on by itself.",
        ) from error
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        if inspect.isasyncgenfunction(model):
            return FunctionModel(stream_function=model, model_name=name)
        return FunctionModel(_demanding_a_response(name, model), model_name=name)
    try:
        return infer_model(model)
    except Exception as error:
        failure = unprepared(name, error)
        if failure is None:
            raise
        raise failure from error


def _demanding_a_response(
    name: str, function: Callable[..., Any]
) -> Callable[..., Awaitable[ModelResponse]]:
    from pydantic_ai.messages import ModelResponse

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = await call(function, messages, info)
        if not isinstance(returned, ModelResponse):
            raise ModelRefused(
                name,
                f"the function {name!r}, which is the model, returned {str(returned)[:200]!r}, a "
                f"{type(returned).__name__}; it has to return a ModelResponse of pydantic_ai.messages",
            )
        # Already here: the library counts what is in it.
        return replace(returned, parts=[*map(_sendable, returned.parts)])

    return model


async def _answer(
    model: Model,
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters,
    settings: Mapping[str, Any],
    on_partial: Callable[[ModelResponse], None] | None,
) -> ModelResponse:
    from pydantic_ai import direct
    from pydantic_ai.settings import ModelSettings

    given = ModelSettings(**settings)  # type: ignore[typeddict-item]
    if not _can_stream(model):
        return await direct.model_request(
            model, messages, model_settings=given, model_request_parameters=parameters
        )
    async with direct.model_request_stream(
        model, messages, model_settings=given, model_request_parameters=parameters
    ) as stream:
        try:
            async for _ in stream:
                pass
        except asyncio.CancelledError:
            partial = _text_of(stream.get())
            if on_partial is not None and partial.parts:
                on_partial(partial)
            raise
        return stream.get()


def _parameters(
    tools: Sequence[ToolSpec], output: ToolSpec | None, instructions: str | None
) -> ModelRequestParameters:
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters

    return ModelRequestParameters(
        function_tools=[_definition(tool) for tool in tools],
        output_mode="text" if output is None else "tool",
        output_tools=[] if output is None else [_definition(output, kind="output")],
        allow_text_output=output is None,
        instruction_parts=[InstructionPart(content=instructions)] if instructions else None,
    )


def _definition(tool: ToolSpec, kind: Any = "function") -> ToolDefinition:
    from pydantic_ai.tools import ToolDefinition

    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=dict(tool.parameters),
        strict=tool.strict,
        kind=kind,
    )


def _can_stream(model: Model) -> bool:
    from pydantic_ai.models import Model
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.wrapper import WrapperModel

    match model:
        case FunctionModel():
            return model.stream_function is not None
        case WrapperModel():
            return _can_stream(model.wrapped)
        case FallbackModel():
            return all(_can_stream(each) for each in model.models)
        case _:
            return type(model).request_stream is not Model.request_stream


def _text_of(response: ModelResponse) -> ModelResponse:
    from pydantic_ai.messages import TextPart

    parts = [
        _sendable(part) for part in response.parts if isinstance(part, TextPart) and part.content
    ]
    return replace(
        response,
        # A provider's own ids name what it kept itself, and it keeps nothing of what was cut short.
        parts=[TextPart(part.content) for part in parts],
        provider_response_id=None,
        state="interrupted",
    )


def _with_distinct_calls(
    messages: Sequence[ModelMessage], response: ModelResponse
) -> ModelResponse:
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    # Some servers count the calls of each response from nought. Here the id is what tells a call from all
    # others: in its address, its approval and its idempotency key.
    taken = {
        call.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse)
        for call in message.tool_calls
    }
    parts: list[ModelResponsePart] = []
    for part in map(_sendable, response.parts):
        if isinstance(part, ToolCallPart):
            call_id = _free(_short(part.tool_call_id), taken)
            taken.add(call_id)
            parts.append(replace(part, tool_call_id=call_id))
        else:
            parts.append(part)
    return replace(response, parts=parts)


def _sendable(part: Part) -> Part:
    """A part without the halves of characters, which JSON can hold and nobody can send on."""
    changes = {
        name: cleaned
        for name in ("content", "args", "tool_name")
        if (value := getattr(part, name, None)) is not None and (cleaned := _whole(value)) != value
    }
    return replace(part, **changes) if changes else part


def _whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_whole(key): _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case _:
            return value


def _short(call_id: str) -> str:
    """An id as it is, if it can stand in an address, in a query and in a key."""
    if 0 < len(call_id) <= _LONGEST_ID and call_id.isprintable():
        return call_id
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:16]


def _free(call_id: str, taken: Container[str]) -> str:
    numbered = (f"{call_id}-{number}" for number in count(2))
    return next(name for name in chain([call_id], numbered) if name not in taken)
