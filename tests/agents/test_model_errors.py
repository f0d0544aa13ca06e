"""Failures of requests to a model, sorted by what the worker has to do next."""

import sys
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from model_server import ModelServer, chat_model, serving
from pydantic_ai import exceptions as library
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from abeyance.agents.model_errors import (
    ModelDown,
    ModelFailure,
    ModelRefused,
    ModelUnusable,
    foreign_failure,
)
from abeyance.agents.model_request import name_of, request

QUESTION = [ModelRequest(parts=[UserPromptPart("How are you?")])]
ONCE = {"max_retries": 0}


def well(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("Well.")])


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (408, {}, ModelDown, "tries again"),
        (409, {}, ModelDown, "tries again"),
        (425, {}, ModelDown, "tries again"),
        (429, {}, ModelDown, "tries again"),
        (500, {}, ModelDown, "tries again"),
        (
            401,
            {"error": {"message": "Incorrect API key provided."}},
            ModelUnusable,
            r"rejected its key \(it says: Incorrect API key provided\.\)\. Fix this",
        ),
        (403, {}, ModelUnusable, "rejected its key"),
        (404, {"error": {"code": "model_not_found"}}, ModelUnusable, "has no such model"),
        (429, {"error": {"code": "insufficient_quota"}}, ModelUnusable, "quota or credit"),
        (400, {"error": {"message": "Bad thing."}}, ModelRefused, "Bad thing"),
        (400, {"error": {"code": "context_length_exceeded"}}, ModelRefused, "larger context"),
        (413, {}, ModelRefused, "too large"),
        (422, {}, ModelRefused, "would refuse it again"),
    ],
)
async def test_a_providers_status_decides_whether_to_retry_or_to_fail(
    status: int, body: dict[str, Any], kind: type[Exception], text: str
) -> None:
    async with serving(ModelServer(status=status, body=body)) as server:
        with pytest.raises(kind, match=text) as caught:
            await request(chat_model(server.url), QUESTION, settings=ONCE)

    assert "'openai:m'" in str(caught.value)


async def test_a_provider_that_says_when_to_come_back_is_believed() -> None:
    busy = ModelServer(status=429, headers={"retry-after": "7"})
    async with serving(busy) as server:
        with pytest.raises(ModelDown) as caught:
            await request(chat_model(server.url), QUESTION, settings=ONCE)

    assert caught.value.retry_after == 7


async def test_a_provider_that_is_not_there_is_down() -> None:
    async with serving(ModelServer()) as server:
        pass

    with pytest.raises(ModelDown, match="'openai:m' cannot be reached now"):
        await request(chat_model(server.url), QUESTION, settings=ONCE)


async def test_a_provider_that_takes_too_long_is_down() -> None:
    async with serving(ModelServer(pieces=[], holds=True)) as server:
        with pytest.raises(ModelDown, match=r"timed out after 0\.05 seconds"):
            await request(chat_model(server.url), QUESTION, settings={"request_timeout": 0.05})


async def test_a_missing_key_of_a_model_names_the_variable_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelUnusable) as caught:
        await request("openai:gpt-5", QUESTION)
    assert str(caught.value) == (
        "this worker cannot use the model 'openai:gpt-5': set OPENAI_API_KEY in its environment. Fix"
        " this and restart the worker; the run then continues by itself."
    )


# These import the packages of providers, each of which takes seconds.
def ask_anthropic() -> None:
    import anthropic

    with anthropic.Anthropic() as client:
        client.messages.create(model="m", max_tokens=1, messages=[])


def ask_google() -> None:
    from google import genai

    genai.Client()


def ask_openai() -> None:
    import openai

    openai.OpenAI()


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        pytest.param(
            *(ask_anthropic, "authentication method. Expected one of api_key"),
            marks=pytest.mark.slow,
        ),
        pytest.param(ask_google, "No API key was provided", marks=pytest.mark.slow),
        (ask_openai, "set OPENAI_API_KEY in its environment"),
    ],
)
def test_a_provider_that_another_framework_asks_without_a_key_cannot_be_used(
    ask: Callable[[], None], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("ANTHROPIC", "GEMINI", "GOOGLE", "OPENAI"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
    with pytest.raises(Exception) as caught:  # noqa: PT011 each provider has its own
        ask()

    failure = foreign_failure("clerk", caught.value)
    assert isinstance(failure, ModelUnusable)
    assert text in str(failure)


def test_failures_of_models_in_other_frameworks_are_classified() -> None:
    import openai
    from google.genai import errors

    class GoneError(openai.APITimeoutError):
        """Stands for the class that LangChain derives from a provider's exception."""

    kinds = {
        GoneError(httpx2.Request("POST", "http://localhost")): ModelDown,
        errors.ServerError(503, {}): ModelDown,
        errors.ClientError(429, {}): ModelDown,
        errors.ClientError(403, {}): ModelUnusable,
        errors.ClientError(400, {}): ModelRefused,
    }

    assert {error: type(foreign_failure("clerk", error)) for error in kinds} == kinds


@pytest.mark.parametrize("model", ["nobody:big", "opnai:gpt-5", "gpt-5", ""])
async def test_a_model_that_nobody_provides_cannot_be_used(model: str) -> None:
    with pytest.raises(ModelUnusable, match=f"{model!r}: Unknown model") as caught:
        await request(model, QUESTION)
    assert "?." not in str(caught.value)


async def test_a_provider_whose_package_is_not_installed_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)

    with pytest.raises(ModelUnusable, match=r"not installed: Please install the `groq` package"):
        await request("groq:big", QUESTION)


def failing(error: Exception) -> FunctionModel:
    def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise error

    return FunctionModel(scripted, model_name="scripted")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError("gone"), ModelDown),
        (TimeoutError(), ModelDown),
        (library.ModelAPIError("m", "what?"), ModelDown),
        (library.UnexpectedModelBehavior("no JSON"), ModelDown),
        (library.ConcurrencyLimitExceeded("too many"), ModelDown),
        (library.ContentFilterError("not that"), ModelRefused),
        (library.UserError("no such tool choice"), ModelRefused),
        (NotImplementedError("AudioUrl is not supported"), ModelRefused),
        (library.ModelHTTPError(418, "m"), ModelRefused),
        (library.ModelHTTPError(402, "m"), ModelUnusable),
    ],
)
async def test_failures_of_the_model_library_are_classified(
    error: Exception, kind: type[ModelFailure]
) -> None:
    with pytest.raises(kind, match="'function:scripted'") as caught:
        await request(failing(error), QUESTION)

    assert caught.value.__cause__ is error


async def test_a_bug_in_a_scripted_model_stays_what_it_is() -> None:
    with pytest.raises(KeyError, match="city"):
        await request(failing(KeyError("city")), QUESTION)


async def test_a_fallback_model_that_is_down_keeps_the_request_retried() -> None:
    refused = failing(library.ModelHTTPError(400, "m"))
    down = failing(library.ModelHTTPError(503, "m", headers={"retry-after": "3"}))

    with pytest.raises(ModelDown) as caught:
        await request(FallbackModel(refused, down), QUESTION)
    with pytest.raises(ModelRefused):
        await request(FallbackModel(refused, refused), QUESTION)

    assert caught.value.retry_after == 3


async def test_an_answer_that_was_put_off_is_refused() -> None:
    def later(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[], state="suspended")

    with pytest.raises(ModelRefused, match="in the background"):
        await request(later, QUESTION)


def test_a_function_is_named_by_what_it_is_called_in_code() -> None:
    assert name_of(well) == "function:well"
    assert name_of("openai:gpt-5") == "openai:gpt-5"
    assert name_of(TestModel()) == "test:test"
