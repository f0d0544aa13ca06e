from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, JsonValue, PlainSerializer, TypeAdapter, computed_field
from pydantic_ai.messages import (
    FinishReason,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)

from abeyance.agents.model_errors import ModelRefused
from abeyance.agents.output import FINAL_RESULT, TOO_EARLY, Calls, Correction, Output, OutputType


class Report(BaseModel):
    """What was found."""

    title: str = Field(min_length=3)
    day: date


GOOD = {"title": "All is well", "day": "2026-03-02"}
BAD = {"title": "Hm", "day": "soon"}


def final(args: Any, call_id: str = "f1") -> ToolCallPart:
    return ToolCallPart(FINAL_RESULT, args, call_id)


def responded(*parts: ModelResponsePart, finish: FinishReason | None = None) -> ModelResponse:
    return ModelResponse(parts=list(parts), finish_reason=finish, model_name="m")


@pytest.mark.parametrize("declared", [None, str])
def test_the_output_of_an_agent_that_declares_none_is_text(declared: Any) -> None:
    kind = OutputType(declared)

    assert kind.tool is None
    assert kind.read(responded(TextPart("Hello"))) == Output(value="Hello")


def test_the_model_is_offered_a_tool_whose_arguments_are_the_output() -> None:
    tool = OutputType(Report).tool

    assert tool is not None
    assert tool.name == "final_result"
    assert tool.description.endswith("What was found.")
    assert tool.parameters["required"] == ["title", "day"]


@pytest.mark.parametrize("args", [GOOD, TypeAdapter(Any).dump_json(GOOD).decode()])
def test_the_result_is_validated_and_becomes_json(args: Any) -> None:
    reading = OutputType(Report).read(responded(TextPart("Here:"), final(args)))

    assert reading == Output(value={"title": "All is well", "day": "2026-03-02"})


@pytest.mark.parametrize(
    ("declared", "given", "value"),
    [
        (list[int], [1, 2], [1, 2]),
        (Literal["yes", "no"], "no", "no"),
        (bool, False, False),
        (Report | None, None, None),
        (list[Report], [GOOD], [GOOD]),
        (JsonValue, {"a": 1}, {"a": 1}),
    ],
)
def test_an_output_that_is_not_an_object_is_wrapped_in_one(
    declared: Any, given: Any, value: Any
) -> None:
    kind = OutputType(declared)

    assert kind.tool is not None
    assert kind.tool.parameters["type"] == "object"
    assert kind.read(responded(final({"result": given}))) == Output(value=value)


class Tree(BaseModel):
    children: list[Tree] = []


def test_an_output_may_hold_its_own_kind() -> None:
    kind = OutputType(Tree)
    value: JsonValue = {"children": [{"children": []}]}

    assert kind.tool is not None
    assert kind.tool.parameters["type"] == "object"
    assert "Tree" in kind.tool.parameters["$defs"]
    assert kind.read(responded(final({"result": value}))) == Output(value=value)


class Strict(BaseModel, extra="forbid"):
    kind: str = Field(alias="class")
    tags: set[int] = set()

    @computed_field
    def length(self) -> int:
        return len(self.kind)


def test_an_output_is_what_its_type_reads_again() -> None:
    kind = OutputType(Strict)

    reading = kind.read(responded(final({"class": "high", "tags": [8, 0]})))
    assert reading == Output(value={"class": "high", "tags": [0, 8]})
    assert Strict.model_validate(reading.value)


def test_an_output_that_its_type_cannot_write_is_corrected() -> None:
    def refuse(value: int) -> int:
        raise ValueError(f"{value} is not written")

    kind = OutputType(Annotated[int, PlainSerializer(refuse)])
    reading = kind.read(responded(final({"result": 1})))
    assert isinstance(reading, Correction)
    assert "1 is not written" in reading.faults[0]


def test_a_number_that_no_json_knows_is_corrected() -> None:
    reading = OutputType(float).read(responded(final('{"result": NaN}')))

    assert isinstance(reading, Correction)


def test_a_dict_of_anything_is_an_object_already() -> None:
    assert OutputType(dict[str, int]).read(responded(final({"a": 1}))) == Output(value={"a": 1})


def test_a_wrong_result_is_answered_with_all_that_is_wrong_with_it() -> None:
    reading = OutputType(Report).read(responded(final(BAD)))

    assert isinstance(reading, Correction)
    [part] = reading.message.parts
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.tool_call_id, part.outcome) == (FINAL_RESULT, "f1", "retried")
    assert part.content == (
        "The arguments of final_result do not fit:\n"
        "- title: String should have at least 3 characters\n"
        "- day: Input should be a valid date or datetime, input is too short\n"
        "Correct them and call final_result again."
    )
    assert reading.faults[0] == "title: String should have at least 3 characters"


@pytest.mark.parametrize("declared", [Report, list[int]])
@pytest.mark.parametrize("args", ['{"title": ', "[1]", "", None, {}, {"other": 1}])
def test_arguments_of_another_shape_are_corrected(declared: Any, args: Any) -> None:
    reading = OutputType(declared).read(responded(final(args)))

    assert isinstance(reading, Correction)
    assert reading.faults


def test_a_correction_can_be_kept_and_read_again() -> None:
    kind = OutputType(Report)
    for response in (responded(final(BAD)), responded(), responded(TextPart("Hm"))):
        reading = kind.read(response)
        assert isinstance(reading, Correction)
        kept = ModelMessagesTypeAdapter.dump_json([reading.message])
        assert ModelMessagesTypeAdapter.validate_json(kept) == [reading.message]


def test_a_great_many_faults_are_cut() -> None:
    reading = OutputType(list[int]).read(responded(final({"result": ["x"] * 100})))

    assert isinstance(reading, Correction)
    assert len(reading.faults) == 21
    assert reading.faults[-1] == "and 80 more"


def test_the_first_valid_of_several_results_is_taken() -> None:
    other = {"title": "Another", "day": "2026-03-03"}

    reading = OutputType(Report).read(responded(final(BAD), final(GOOD, "f2"), final(other, "f3")))

    assert reading == Output(value=GOOD)


def test_if_none_of_several_results_fits_each_is_answered() -> None:
    reading = OutputType(Report).read(responded(final(BAD), final({}, "f2")))

    assert isinstance(reading, Correction)
    answered = [part for part in reading.message.parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in answered] == ["f1", "f2"]


def test_tools_come_before_a_result_that_did_not_know_what_they_would_say() -> None:
    lookup = ToolCallPart("lookup", {}, "c1")

    reading = OutputType(Report).read(responded(TextPart("Hm"), lookup, final(GOOD)))

    assert isinstance(reading, Calls)
    assert reading.calls == (lookup,)
    assert [call.tool_call_id for call in reading.early] == ["f1"]
    assert "call final_result alone" in TOO_EARLY


def test_text_beside_calls_is_not_the_output() -> None:
    lookup = ToolCallPart("lookup", {}, "c1")

    reading = OutputType(str).read(responded(TextPart("Let me see."), lookup))

    assert reading == Calls(calls=(lookup,))


@pytest.mark.parametrize("parts", [(), (TextPart(" \n"),), (ThinkingPart("Hm."),)])
@pytest.mark.parametrize("declared", [str, Report])
def test_an_empty_response_is_corrected(declared: Any, parts: tuple[Any, ...]) -> None:
    reading = OutputType(declared).read(responded(*parts))

    assert isinstance(reading, Correction)
    [part] = reading.message.parts
    assert isinstance(part, RetryFeedbackPart)


def test_text_where_a_result_is_wanted_is_corrected() -> None:
    reading = OutputType(Report).read(responded(TextPart("All is well.")))

    assert isinstance(reading, Correction)
    assert reading.faults == ("it was text, and final_result was not called",)


@pytest.mark.parametrize("declared", [str, Report])
def test_a_response_stopped_by_a_content_filter_is_an_error(declared: Any) -> None:
    with pytest.raises(ModelRefused, match="content filter of the model 'm'"):
        OutputType(declared).read(responded(TextPart("I"), finish="content_filter"))


@pytest.mark.parametrize("part", [TextPart("and so"), ToolCallPart("lookup", '{"city": "Ro')])
def test_a_response_that_was_cut_off_names_the_setting(part: ModelResponsePart) -> None:
    with pytest.raises(ModelRefused, match="raise the setting `max_tokens`"):
        OutputType(str).read(responded(part, finish="length"))


def test_calls_that_were_written_before_the_cut_are_used() -> None:
    assert OutputType(Report).read(responded(final(GOOD), finish="length")) == Output(value=GOOD)


def test_a_type_without_a_schema_cannot_be_an_output() -> None:
    class Thing:
        pass

    with pytest.raises(TypeError, match="is not a valid output"):
        OutputType(Thing)
