"""What an agent has to come up with, and how a model's response is read into it.

An output of type `str` is the model's text. Any other is given by calling one more tool, `final_result`,
whose arguments are the output: every provider knows tools, few know more. Three things can be read:

- `Calls`: the model called tools. Their results come first: what it says beside them is not the output,
  and a `final_result` beside them is answered with the wish to be called again, for it was written
  without knowing the results.
- `Output`: the result, validated.
- `Correction`: neither. It says what was wrong, and is what the model reads next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from abeyance.agents.model_errors import ModelRefused
from abeyance.agents.model_request import ToolSpec
from abeyance.core.json import Json, why_not_json

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

FINAL_RESULT: Final = "final_result"
"""The tool by which a model gives an output that is not text. No other tool may be named so."""

_WRAPPED: Final = "result"
_MOST_FAULTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The agent's result, as JSON."""

    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The response is no output. `message` is what the model reads next, `faults` tells people why."""

    message: ModelRequest
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The model called tools. `known` are results that are known without running anything."""

    calls: tuple[ToolCallPart, ...]
    known: tuple[ToolReturnPart, ...] = ()


Reading: TypeAlias = Output | Correction | Calls


class OutputType:
    """What an agent declared as its `output`.

    Args:
        declared: None or `str` for text, a pydantic model, or any type that pydantic can validate.

    Raises:
        TypeError: Pydantic can make no JSON Schema of it.
    """

    def __init__(self, declared: Any = None) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self._is_wrapped = False
        self.tool: ToolSpec | None = None
        """The tool that the model is offered for it; None where the output is text."""
        self.schema: Json = {"type": "string"}
        if declared is None or declared is str:
            return
        try:
            self._adapter = TypeAdapter(declared)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            message = (
                f"output={declared!r} cannot be an agent's output, because pydantic makes no JSON Schema"
                f" of it: {error.message}"
            )
            raise TypeError(message) from error
        self.schema = schema
        self._is_wrapped = schema.get("type") != "object"
        self.tool = ToolSpec(
            name=FINAL_RESULT,
            description=_description(schema),
            parameters=_wrapped(schema) if self._is_wrapped else schema,
        )

    def read(self, response: ModelResponse) -> Reading:
        """Read a complete response.

        Raises:
            ModelRefused: It was cut short, because it grew too long or a content filter stopped it.
        """
        _refuse_if_cut(response)
        calls = tuple(response.tool_calls)
        final = tuple(call for call in calls if call.tool_name == FINAL_RESULT and self.tool)
        others = tuple(call for call in calls if call not in final)
        if others:
            return Calls(calls=others, known=tuple(_too_early(call) for call in final))
        if self._adapter is None:
            return Output(value=text) if (text := response.text or "").strip() else _empty()
        if not final:
            return _not_final(response)
        return self._result(self._adapter, final)

    def _result(self, adapter: TypeAdapter[Any], calls: tuple[ToolCallPart, ...]) -> Reading:
        faults: dict[str, tuple[str, ...]] = {}
        for call in calls:
            try:
                value = self._value(adapter, call)
            except ValidationError as error:
                faults[call.tool_call_id] = tuple(_told(error))
                continue
            # Pydantic takes NaN and infinities, which nobody else who reads JSON does.
            if (fault := why_not_json(value)) is None:
                return Output(value=value)
            faults[call.tool_call_id] = (fault,)
        return _wrong(calls, faults)

    def _value(self, adapter: TypeAdapter[Any], call: ToolCallPart) -> Json:
        text = call.args if isinstance(call.args, str) else to_json(call.args or {})
        if self._is_wrapped:
            given = _ARGUMENTS.validate_json(text or "{}")
            value = adapter.validate_json(to_json(given.get(_WRAPPED)))
        else:
            value = adapter.validate_json(text or "{}")
        return adapter.dump_python(value, mode="json")


_ARGUMENTS: Final = TypeAdapter(dict[str, Any])


def _description(schema: dict[str, Any]) -> str:
    told = (
        "Give the final result. Call this, alone, when the work is done: it ends the conversation."
    )
    described = schema.get("description")
    return f"{told}\n\n{described}" if described else told


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {_WRAPPED: inner},
        "required": [_WRAPPED],
        "additionalProperties": False,
    }
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _refuse_if_cut(response: ModelResponse) -> None:
    model = response.model_name or "unknown"
    if response.finish_reason == "content_filter":
        raise ModelRefused(
            model,
            f"the content filter of the model {model!r} stopped its response: ask it for something else",
        )
    if response.finish_reason == "length" and not _is_whole(response):
        raise ModelRefused(
            model,
            f"the response of the model {model!r} was cut off after"
            f" {response.usage.output_tokens} tokens: raise the setting `max_tokens`, or ask for less",
        )


def _is_whole(response: ModelResponse) -> bool:
    # What was written before the cut can be used if it is calls, and the last of them is complete.
    try:
        arguments = [call.args_as_dict(raise_if_invalid=True) for call in response.tool_calls]
    except (ValueError, AssertionError):
        return False
    return bool(arguments)


def _told(error: ValidationError) -> Iterator[str]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in errors[:_MOST_FAULTS]:
        place = "/".join(str(step) for step in fault["loc"])
        yield f"{place}: {fault['msg']}" if place else fault["msg"]
    if len(errors) > _MOST_FAULTS:
        yield f"and {len(errors) - _MOST_FAULTS} more"


def _answered(call: ToolCallPart, content: str, cause: Any) -> ToolReturnPart:
    from pydantic_ai.messages import RetryInfo, ToolReturnPart

    return ToolReturnPart(
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        content=content,
        outcome="retried",
        retry=RetryInfo(cause),
    )


def _too_early(call: ToolCallPart) -> ToolReturnPart:
    return _answered(
        call,
        f"Not taken: other tools were called beside {FINAL_RESULT}. Read their results, then call"
        f" {FINAL_RESULT} alone.",
        "unavailable_tool",
    )


def _wrong(calls: tuple[ToolCallPart, ...], faults: dict[str, tuple[str, ...]]) -> Correction:
    from pydantic_ai.messages import ModelRequest

    return Correction(
        message=ModelRequest(
            parts=[
                _answered(
                    call,
                    f"The arguments of {FINAL_RESULT} do not fit:\n"
                    + "\n".join(f"- {fault}" for fault in faults[call.tool_call_id])
                    + f"\nCorrect them and call {FINAL_RESULT} again.",
                    "validation_error",
                )
                for call in calls
            ]
        ),
        faults=faults[calls[0].tool_call_id],
    )


def _empty() -> Correction:
    return _said("Your response was empty. Answer in text, or call a tool.", "it was empty")


def _not_final(response: ModelResponse) -> Correction:
    fault = "it was text" if response.text else "it was empty"
    return _said(
        f"Your response called no tool. Give the result by calling {FINAL_RESULT}.",
        f"{fault}, and {FINAL_RESULT} was not called",
    )


def _said(text: str, fault: str) -> Correction:
    from pydantic_ai.messages import ModelRequest, RetryFeedbackPart, RetryInfo

    said = RetryFeedbackPart(text, retry=RetryInfo("no_output"))
    return Correction(message=ModelRequest(parts=[said]), faults=(fault,))
