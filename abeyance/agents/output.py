"""The output type of an agent, and reading a model's response as one.

An output of type `str` is the text of the response. Any other output is the arguments of one more tool,
`final_result`: every provider supports tools. A response is read as one of:

- `Calls`: the model called tools. Text beside the calls is not the output, and a `final_result` beside
  them is rejected, because the model wrote it without their results.
- `Output`: the validated result.
- `Correction`: neither. Its message tells the model what to correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from abeyance.agents.model_errors import ModelRefused
from abeyance.agents.model_request import ToolSpec
from abeyance.core.json import Json
from abeyance.schemas.answer_types import dumped, new_adapter
from abeyance.schemas.state_model import ValuesError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart

FINAL_RESULT: Final = "final_result"
"""The tool whose arguments are an output that is not text; reserved as a tool name."""

TOO_EARLY: Final = (
    f"Not taken: other tools were called beside {FINAL_RESULT}. Read their results, then call"
    f" {FINAL_RESULT} alone."
)
"""The model's result of a call of `final_result` beside other calls."""

_RESULT_FIELD: Final = "result"
_MAX_FAULTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The agent's result, as JSON."""

    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The response is not an output. `message` is for the model, `faults` are for people."""

    message: ModelRequest
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The model called tools. `early` are the calls of `final_result` beside them."""

    calls: tuple[ToolCallPart, ...]
    early: tuple[ToolCallPart, ...] = ()


Reading: TypeAlias = Output | Correction | Calls
Write: TypeAlias = Callable[[Json], Json]
"""Returns a result as the field writes it that takes it. Raises ValuesError if it does not fit there."""


def as_it_is(value: Json) -> Json:
    """Return a result that no field of a known type takes."""
    return value


class OutputType:
    """The declared `output` of an agent: None or `str` for text, or any type that pydantic can validate.

    Raises TypeError if pydantic cannot make a JSON Schema of it.
    """

    def __init__(self, declared: Any = None) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self.is_wrapped = False
        """Whether the arguments of the `final_result` tool hold the output in the field `result`."""
        self.tool: ToolSpec | None = None
        """The `final_result` tool; None if the output is text."""
        self.schema: Json = {"type": "string"}
        if declared is None or declared is str:
            return
        try:
            self._adapter = new_adapter(declared)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise TypeError(
                f"output={declared!r} is not a valid output: pydantic cannot make a JSON Schema of it: "
                f"{error.message}"
            ) from error
        self.schema = schema
        self.is_wrapped = schema.get("type") != "object"
        self.tool = ToolSpec(
            name=FINAL_RESULT,
            description=_description(schema),
            parameters=_in_object(schema) if self.is_wrapped else schema,
        )

    def read(self, response: ModelResponse, write: Write = as_it_is) -> Reading:
        """Read a response. `write` returns the result as the field writes it that takes it.

        Raises ModelRefused if a length limit or a content filter cut it short.
        """
        _refuse_if_cut(response)
        calls = tuple(response.tool_calls)
        final = tuple(call for call in calls if call.tool_name == FINAL_RESULT and self.tool)
        others = tuple(call for call in calls if call not in final)
        if others:
            return Calls(calls=others, early=final)
        if self._adapter is None:
            if (text := response.text or "").strip():
                return _written_text(text, write)
            return _correction(
                "Your response was empty. Answer in text, or call a tool.", "it was empty"
            )
        if not final:
            return _correction(
                f"Your response called no tool. Give the result by calling {FINAL_RESULT}.",
                f"it was {'text' if response.text else 'empty'}, and {FINAL_RESULT} was not called",
            )
        return self._result(self._adapter, final, write)

    def _result(
        self, adapter: TypeAdapter[Any], calls: tuple[ToolCallPart, ...], write: Write
    ) -> Reading:
        faults: dict[str, tuple[str, ...]] = {}
        for call in calls:
            try:
                return Output(value=write(self._value(adapter, call)))
            except ValidationError as error:
                faults[call.tool_call_id] = tuple(_validation_faults(error))
            except (ValueError, ValuesError) as error:
                # Pydantic accepts NaN and infinities, which are not JSON.
                faults[call.tool_call_id] = (str(error),)
        return _invalid_result(calls, faults)

    def _value(self, adapter: TypeAdapter[Any], call: ToolCallPart) -> Json:
        text = call.args if isinstance(call.args, str) else to_json(call.args or {})
        if self.is_wrapped:
            arguments = _ARGUMENTS.validate_json(text or "{}")
            value = adapter.validate_json(to_json(arguments.get(_RESULT_FIELD)))
        else:
            value = adapter.validate_json(text or "{}")
        return dumped(adapter, value)


_ARGUMENTS: Final = TypeAdapter(dict[str, Any])


def _written_text(text: str, write: Write) -> Output | Correction:
    try:
        return Output(value=write(text))
    except ValuesError as error:
        return _correction(f"Your response does not fit. {error}", str(error))


def _description(schema: dict[str, Any]) -> str:
    text = (
        "Give the final result. Call this, alone, when the work is done: it ends the conversation."
    )
    own = schema.get("description")
    return f"{text}\n\n{own}" if own else text


def _in_object(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {_RESULT_FIELD: inner},
        "required": [_RESULT_FIELD],
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
    if response.finish_reason == "length" and not _has_complete_calls(response):
        raise ModelRefused(
            model,
            f"the response of the model {model!r} was cut off after"
            f" {response.usage.output_tokens} tokens: raise the setting `max_tokens`, or ask for less",
        )


def _has_complete_calls(response: ModelResponse) -> bool:
    # A response that was cut off is usable if it holds calls and the last one is complete.
    try:
        arguments = [call.args_as_dict(raise_if_invalid=True) for call in response.tool_calls]
    except (ValueError, AssertionError):
        return False
    return bool(arguments)


def _validation_faults(error: ValidationError) -> Iterator[str]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in errors[:_MAX_FAULTS]:
        place = "/".join(str(step) for step in fault["loc"])
        yield f"{place}: {fault['msg']}" if place else fault["msg"]
    if len(errors) > _MAX_FAULTS:
        yield f"and {len(errors) - _MAX_FAULTS} more"


def _invalid_result(
    calls: tuple[ToolCallPart, ...], faults: dict[str, tuple[str, ...]]
) -> Correction:
    from pydantic_ai.messages import ModelRequest, RetryInfo, ToolReturnPart

    parts = [
        ToolReturnPart(
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
            content=f"The arguments of {FINAL_RESULT} do not fit:\n"
            + "\n".join(f"- {fault}" for fault in faults[call.tool_call_id])
            + f"\nCorrect them and call {FINAL_RESULT} again.",
            outcome="retried",
            retry=RetryInfo("validation_error"),
        )
        for call in calls
    ]
    return Correction(message=ModelRequest(parts=parts), faults=faults[calls[0].tool_call_id])


def _correction(text: str, fault: str) -> Correction:
    from pydantic_ai.messages import ModelRequest, RetryFeedbackPart, RetryInfo

    part = RetryFeedbackPart(text, retry=RetryInfo("no_output"))
    return Correction(message=ModelRequest(parts=[part]), faults=(fault,))
