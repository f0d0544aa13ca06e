"""Requests to models: what they contain, how they are stopped, and what is never downloaded."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from model_server import ModelServer, chat_model, serving
from pydantic_ai.messages import (
    AudioUrl,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from abeyance.agents.model_errors import ModelRefused
from abeyance.agents.model_request import ToolSpec, request, without_downloads

QUESTION = [ModelRequest(parts=[UserPromptPart("How are you?")])]
ONCE = {"max_retries": 0}


def lookup(name: str = "lookup") -> ToolSpec:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return ToolSpec(name=name, description="Look a city up.", parameters=schema)


def well(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("Well.")])


async def very_well(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("Very well.")])


async def piece_by_piece(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for piece in ("As", " well", " as ever."):
        yield piece


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("test", "success (no tool calls)"),
        (TestModel(custom_output_text="Fine."), "Fine."),
        (WrapperModel(TestModel(custom_output_text="Fine.")), "Fine."),
        (well, "Well."),
        (very_well, "Very well."),
        (piece_by_piece, "As well as ever."),
        (WrapperModel(FunctionModel(well)), "Well."),
        (FallbackModel(FunctionModel(well), FunctionModel(very_well)), "Well."),
    ],
)
async def test_a_model_is_a_name_an_instance_or_a_function(model: Any, text: str) -> None:
    response = await request(model, QUESTION)

    assert response.text == text
    assert response.state == "complete"


async def test_a_model_gets_its_instructions_tools_output_and_settings() -> None:
    seen: list[AgentInfo] = []

    def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return ModelResponse(parts=[ToolCallPart("final_result", {"city": "Rome"})])

    await request(
        scripted,
        QUESTION,
        tools=[lookup()],
        output=lookup("final_result"),
        instructions="Be brief.",
        settings={"temperature": 0.1},
    )

    [info] = seen
    assert info.instructions == "Be brief."
    [tool] = info.function_tools
    assert (tool.name, tool.description) == ("lookup", "Look a city up.")
    assert tool.parameters_json_schema == lookup().parameters
    assert [tool.name for tool in info.output_tools] == ["final_result"]
    assert not info.allow_text_output
    assert info.model_settings == {"temperature": 0.1}


async def test_a_streamed_response_is_put_together() -> None:
    async with serving(ModelServer()) as server:
        model = chat_model(server.url)

        first = await request(model, QUESTION, instructions="Be brief.")
        again = await request(model, QUESTION)

    assert (first.text, again.text) == ("Hello there", "Hello there")
    assert (first.finish_reason, first.state) == ("stop", "complete")
    assert [message["role"] for message in server.asked[0]["messages"]] == ["system", "user"]


async def test_a_stream_of_nothing_is_an_empty_response() -> None:
    pieces: list[str] = []

    async def silent(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    assert (await request(silent, QUESTION)).text in ("", None)


@pytest.mark.parametrize("returned", ["hello", None, {"parts": []}])
async def test_a_model_function_without_a_response_is_refused(returned: Any) -> None:
    def odd(messages: list[ModelMessage], info: AgentInfo) -> Any:
        return returned

    with pytest.raises(ModelRefused) as refused:
        await request(odd, QUESTION)
    told = str(refused.value)
    assert f"returned {str(returned)!r}, a {type(returned).__name__}" in told
    assert "return a ModelResponse" in told


async def test_half_a_character_does_not_keep_a_response_from_being_sent_on() -> None:
    def odd(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(
            parts=[
                ThinkingPart("h\ud83dm"),
                TextPart("well\ud800"),
                ToolCallPart("look\ud800up", {"city": ["\ud800"]}, "c1"),
                ToolCallPart("lookup", '{"city": "\ud800"}', "c2"),
            ]
        )

    response = await request(odd, QUESTION, tools=[lookup()])

    written = ModelMessagesTypeAdapter.dump_json([response])
    assert ModelMessagesTypeAdapter.validate_json(written) == [response]
    assert response.text == "well?"
    assert [part.args for part in response.tool_calls] == [{"city": ["?"]}, '{"city": "?"}']


async def test_every_call_has_an_id_of_its_own_in_the_whole_conversation() -> None:
    def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = [ToolCallPart("lookup", {"city": city}, "call_0") for city in ("Rome", "Oslo")]
        return ModelResponse(parts=calls)

    first = await request(scripted, QUESTION, tools=[lookup()])
    second = await request(scripted, [*QUESTION, first], tools=[lookup()])

    ids = [call.tool_call_id for response in (first, second) for call in response.tool_calls]
    assert ids == ["call_0", "call_0-2", "call_0-3", "call_0-4"]


# ------------------------------------------------------------------------------------ stopping it


async def stopped(asked: Coroutine[Any, Any, ModelResponse], when: asyncio.Event) -> None:
    async with asyncio.timeout(30):
        asking = asyncio.create_task(asked)
        await when.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_stopped_request_keeps_its_partial_response() -> None:
    was_read = asyncio.Event()

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "The first "
        yield "and then"
        was_read.set()
        await asyncio.Event().wait()

    partials: list[ModelResponse] = []
    await stopped(request(slow, QUESTION, on_partial=partials.append), was_read)

    [partial] = partials
    assert partial.text == "The first and then"
    assert partial.state == "interrupted"


async def test_a_call_that_was_being_written_when_a_request_was_stopped_is_not_kept() -> None:
    was_read = asyncio.Event()

    async def slow(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[dict[int, DeltaToolCall]]:
        yield {0: DeltaToolCall(name="lookup", json_args='{"ci')}
        was_read.set()
        await asyncio.Event().wait()
        yield {}

    partials: list[ModelResponse] = []
    asked = request(slow, QUESTION, tools=[lookup()], on_partial=partials.append)
    await stopped(asked, was_read)

    assert partials == []


@pytest.mark.parametrize("pieces", [[], [{"content": "Hello"}]])
async def test_stopping_a_request_hangs_up_on_the_provider_at_once(pieces: list[Any]) -> None:
    async with serving(ModelServer(pieces=pieces, holds=True)) as server:
        await stopped(request(chat_model(server.url), QUESTION), server.spoken)

        async with asyncio.timeout(30):
            await server.abandoned.wait()


async def test_a_function_that_does_not_stream_can_be_stopped_too() -> None:
    began = asyncio.Event()

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        began.set()
        await asyncio.Event().wait()
        return ModelResponse(parts=[])

    await stopped(request(slow, QUESTION), began)


# ---------------------------------------------------------------------------------------------- media


@pytest.mark.parametrize(
    ("model", "media"),
    [
        ("openai-chat:gpt-5", AudioUrl("https://media.example/a.mp3")),
        ("openai-chat:gpt-5", DocumentUrl("https://media.example/a.pdf")),
        # The packages of these providers take seconds to import.
        pytest.param(
            *("google:gemini-3-pro", ImageUrl("https://media.example/a.png?key=1")),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("google:gemini-3-pro", VideoUrl("https://media.example/a.mp4")),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("anthropic:claude-sonnet-5", DocumentUrl("https://media.example/a.txt")),
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_media_that_a_provider_does_not_take_by_url_is_not_fetched(
    model: str, media: ImageUrl | VideoUrl | AudioUrl | DocumentUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("GOOGLE", "OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{provider}_API_KEY", "made-up")
        # Nobody listens at this address: a request that is sent by mistake goes nowhere.
        monkeypatch.setenv(f"{provider}_BASE_URL", "http://127.0.0.1:9")
    messages = [ModelRequest(parts=[UserPromptPart(["Look at this:", media])])]

    with pytest.raises(ModelRefused) as caught:
        await request(model, messages, settings=ONCE)

    assert str(caught.value) == (
        f"the model {model!r} does not accept this {media.kind.removesuffix('-url')} by url, and"
        f" Abeyance never downloads it ({media.url.partition('?')[0]}): send the data itself"
    )


@pytest.mark.parametrize("force", [False, True, "allow-local"])
async def test_a_url_is_passed_on_to_a_provider_that_takes_urls(force: Any) -> None:
    picture = ImageUrl("https://media.example/a.png", force_download=force)
    messages = [ModelRequest(parts=[UserPromptPart(["Look at this:", picture])])]
    async with serving(ModelServer()) as server:
        await request(chat_model(server.url), messages)

    [_, sent] = server.asked[0]["messages"][0]["content"]
    assert sent == {"type": "image_url", "image_url": {"url": "https://media.example/a.png"}}
    assert picture.force_download == force


@pytest.mark.parametrize("wrap", [list, lambda media: {"here": media[0]}])
def test_the_messages_that_are_sent_are_equal_to_those_that_were_given(wrap: Any) -> None:
    picture = ImageUrl("https://media.example/a.png")
    messages = [
        ModelRequest(parts=[UserPromptPart(["Look:", picture])]),
        ModelRequest(parts=[ToolReturnPart("draw", wrap([picture]), "c1")]),
    ]

    sent = without_downloads("m", messages)

    assert sent == messages
    assert sent[1].parts[0] is not messages[1].parts[0]


async def test_a_url_in_the_result_of_a_tool_is_not_fetched_either() -> None:
    sound = AudioUrl("https://media.example/a.mp3")
    messages: list[ModelMessage] = [
        *QUESTION,
        ModelResponse(parts=[ToolCallPart("listen", {}, "c1")]),
        ModelRequest(parts=[ToolReturnPart("listen", ["Here:", sound], "c1")]),
    ]
    async with serving(ModelServer()) as server:
        with pytest.raises(ModelRefused, match="send the data itself"):
            await request(chat_model(server.url), messages)

    assert server.asked == []


# --------------------------------------------------------------------------------------- installation

WITHOUT_THE_LIBRARY = """
import asyncio, sys
sys.modules["pydantic_ai"] = None
import abeyance.agents.transcript_view, abeyance.agents.prompts
import abeyance.agents.output, abeyance.agents.transcript
from abeyance.agents.model_request import without_downloads
from abeyance.agents.model_request import request
abeyance.agents.output.OutputType(list[int])
try:
    asyncio.run(request("openai:gpt-5", []))
except abeyance.agents.model_request.ModelUnusable as error:
    print(error)
"""


def test_a_request_without_the_extra_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_LIBRARY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "pip install 'abeyance[agents]'" in done.stdout
