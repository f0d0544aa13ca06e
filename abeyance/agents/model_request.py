"""One request to a model, and the names, media and call ids in it.

A url of media is passed on to a provider that accepts urls, and never downloaded here. The model library
downloads what a provider does not accept by url, and cannot be told not to: `force_download=False` means
"if needed". But each of its downloads begins by comparing that field with `"allow-local"`.
`_RefuseDownload` is the value of the field: it is false, so a url is passed on where possible, and it
raises at that comparison.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from abeyance.agents.model_errors import ModelRefused, ModelUnusable, request_failure, setup_failure
from abeyance.authoring.callables import call
from abeyance.core.json import Json
from abeyance.core.text import truncate

if TYPE_CHECKING:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
    )
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.models.function import AgentInfo
    from pydantic_ai.tools import ToolDefinition


_ALLOW_LOCAL: Final = "allow-local"


class _RefuseDownload(int):
    """False as a flag; raises where the model library begins a download."""

    refusal: ModelRefused

    def __eq__(self, other: object) -> bool:
        if other == _ALLOW_LOCAL:
            raise self.refusal
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def without_downloads(model: str, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return copies of the messages in which downloading any url raises ModelRefused.

    `model` is the name of the model, for the error text.
    """
    from pydantic_ai.messages import ModelRequest

    return [
        replace(message, parts=[_guarded_part(model, part) for part in message.parts])
        if isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def _guarded_part(model: str, part: ModelRequestPart) -> ModelRequestPart:
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
            guard = _RefuseDownload(0)
            kind = type(content).__name__.removesuffix("Url").lower()
            guard.refusal = ModelRefused(
                model,
                f"the model {model!r} does not accept this {kind} by url, and Abeyance never downloads "
                f"it ({content.url.partition('?')[0]}): send the data itself",
            )
            guarded.force_download = guard  # type: ignore[assignment]
            return guarded
        case list() | tuple():
            return [_guarded(model, item) for item in content]
        case dict():
            return {key: _guarded(model, item) for key, item in content.items()}
        case _:
            return content


ModelLike: TypeAlias = "str | Model | Callable[..., Any]"
"""A name such as `openai:gpt-5` or `test`; an instance of the model library's `Model`; or a function
`(messages, info) -> ModelResponse`, sync or async, or one that yields pieces of text."""

Part = TypeVar("Part", bound="ModelResponsePart")

_MAX_ID_CHARS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool for a model; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Json]


def name_of(model: ModelLike) -> str:
    """Return the name of a model for texts, events and traces."""
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
    on_stream: Callable[[Callable[[], str]], None] | None = None,
) -> ModelResponse:
    """Send one request to a model.

    Cancelling the task stops the request at once. The text received so far is passed to `on_partial`,
    marked as interrupted, before the cancellation propagates. It holds no calls, which would stay without
    a result, and no thoughts, which providers reject without the rest of the response.

    Args:
        model: The model.
        messages: The messages to send; the model answers the last one.
        before: Messages of the conversation that are not sent, but whose call ids are in use.
        tools: The tools that the model may call.
        output: The tool whose arguments are the result; None makes the text of the response the result.
        instructions: The system instructions.
        settings: Settings of the model library, such as `max_tokens` or `temperature`.
        on_partial: Called at most once, when the task is cancelled.
        on_stream: Called at most once, when the model begins to respond, with a function that returns the
            text of the response so far. Not called for a model that cannot stream.

    Returns:
        The response. Each call in it has an id of 1 to 128 characters, unique in the conversation.

    Raises:
        ModelDown, ModelUnusable, ModelRefused: See `model_errors`.
    """
    name = name_of(model)
    resolved = resolve_model(name, model)
    try:
        async with resolved:
            response = await _answer(
                resolved,
                without_downloads(name, messages),
                _parameters(tools, output, instructions),
                dict(settings or {}),
                on_partial=on_partial,
                on_stream=on_stream,
            )
    except Exception as error:
        failure = request_failure(name, error)
        if failure is None or failure is error:
            raise
        raise failure from error
    if response.state == "suspended":
        raise ModelRefused(
            name,
            f"the model {name!r} deferred its answer, which agents do not support: remove the setting "
            "that lets it answer in the background",
        )
    return with_unique_call_ids([*before, *messages], response)


def resolve_model(name: str, model: ModelLike) -> Model:
    """Return a model by its name. Raise ModelUnusable if this worker cannot use it."""
    try:
        from pydantic_ai.models import Model, infer_model
        from pydantic_ai.models.function import FunctionModel
    except ImportError as error:
        raise ModelUnusable(
            name,
            f"this worker cannot use the model {name!r}: agents need a package that is not installed"
            f" ({error}). Run `pip install 'abeyance[agents]'` where the worker runs and restart it; the"
            " run then continues by itself.",
        ) from error
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        if inspect.isasyncgenfunction(model):
            return FunctionModel(stream_function=_never_empty(model), model_name=name)
        return FunctionModel(_checked_function(name, model), model_name=name)
    try:
        return infer_model(model)
    except Exception as error:
        failure = setup_failure(name, error)
        if failure is None:
            raise
        raise failure from error


def setup_fault(model: ModelLike) -> ModelUnusable | None:
    """Return the error if this process cannot use a model (a key or a package is missing), else None.

    The model is not called.
    """
    try:
        resolve_model(name_of(model), model)
    except ModelUnusable as error:
        return error
    return None


def _checked_function(
    name: str, function: Callable[..., Any]
) -> Callable[..., Awaitable[ModelResponse]]:
    from pydantic_ai.messages import ModelResponse

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = await call(function, messages, info)
        if not isinstance(returned, ModelResponse):
            raise ModelRefused(
                name,
                f"the model function {name!r} returned {truncate(str(returned), 200)!r}, a "
                f"{type(returned).__name__}: return a ModelResponse of pydantic_ai.messages",
            )
        # Surrogates must be replaced before the library counts the tokens of the parts.
        return replace(returned, parts=[*map(_without_surrogates, returned.parts)])

    return model


def _never_empty(function: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
    """Return a model that streams at least an empty text: the library refuses an empty stream."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        is_empty = True
        async with aclosing(function(messages, info)) as pieces:
            async for piece in pieces:
                is_empty = False
                yield piece
        if is_empty:
            yield ""

    return stream


async def _answer(
    model: Model,
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters,
    settings: Mapping[str, Any],
    *,
    on_partial: Callable[[ModelResponse], None] | None,
    on_stream: Callable[[Callable[[], str]], None] | None,
) -> ModelResponse:
    from pydantic_ai import direct
    from pydantic_ai.settings import ModelSettings

    model_settings = ModelSettings(**settings)  # type: ignore[typeddict-item]
    if not can_stream(model):
        return await direct.model_request(
            model, messages, model_settings=model_settings, model_request_parameters=parameters
        )
    async with direct.model_request_stream(
        model, messages, model_settings=model_settings, model_request_parameters=parameters
    ) as stream:
        if on_stream is not None:
            on_stream(lambda: _clean(stream.get().text or ""))
        try:
            async for _ in stream:
                pass
        except asyncio.CancelledError:
            partial = _partial_text(stream.get())
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
        kind=kind,
    )


def can_stream(model: Model) -> bool:
    """Return whether a model can stream its response."""
    from pydantic_ai.models import Model
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.wrapper import WrapperModel

    match model:
        case FunctionModel():
            return model.stream_function is not None
        case WrapperModel():
            return can_stream(model.wrapped)
        case FallbackModel():
            return all(can_stream(member) for member in model.models)
        case _:
            return type(model).request_stream is not Model.request_stream


def _partial_text(response: ModelResponse) -> ModelResponse:
    from pydantic_ai.messages import TextPart

    parts = [
        _without_surrogates(part)
        for part in response.parts
        if isinstance(part, TextPart) and part.content
    ]
    return replace(
        response,
        # Provider ids refer to stored responses, and providers do not store an interrupted one.
        parts=[TextPart(part.content) for part in parts],
        provider_response_id=None,
        state="interrupted",
    )


def with_unique_call_ids(
    messages: Sequence[ModelMessage], response: ModelResponse
) -> ModelResponse:
    """Return a response whose calls have ids that are unique in the conversation."""
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    # Some servers number the calls of each response from zero. Here an id must be unique: it is part of
    # the call's address, approval and idempotency key.
    unused_id = unused_ids(
        call.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse)
        for call in message.tool_calls
    )
    parts: list[ModelResponsePart] = [
        replace(part, tool_call_id=unused_id(part.tool_call_id))
        if isinstance(part, ToolCallPart)
        else part
        for part in map(_without_surrogates, response.parts)
    ]
    return replace(response, parts=parts)


def _without_surrogates(part: Part) -> Part:
    """Return the part with lone surrogates replaced: JSON can hold them, UTF-8 cannot."""
    changes = {
        name: cleaned
        for name in ("content", "args", "tool_name")
        if (value := getattr(part, name, None)) is not None and (cleaned := _clean(value)) != value
    }
    return replace(part, **changes) if changes else part


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case list():
            return [_clean(item) for item in value]
        case _:
            return value


def unused_ids(used: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that makes the ids of calls for addresses and keys: valid, not in `used`, and not
    made before. Models may give two calls of one response the same id.
    """
    taken = set(used)

    def unused_id(call_id: str) -> str:
        if not (0 < len(call_id) <= _MAX_ID_CHARS and call_id.isprintable()):
            call_id = hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:16]
        numbered = (f"{call_id}-{number}" for number in count(2))
        unused = next(name for name in chain([call_id], numbered) if name not in taken)
        taken.add(unused)
        return unused

    return unused_id
