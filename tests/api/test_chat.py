"""The AI SDK over HTTP: chats of a graph that pays, their questions, and the refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agent_graphs import metered, payments, writers
from sample_graphs import gated
from stack import Api, app_for, new_id, problem, served
from talked import chat, events_in, wrote
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.api import dependencies

MUCH = wrote("pay much")


@pytest_asyncio.fixture(scope="module")
async def talks(temporal: TemporalClient) -> AsyncIterator[Api]:
    site = Site(temporal, payments(), metered(), writers(), gated())
    async with site.worker(), served(app_for(site)) as api:
        yield api


def types(chunks: list[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def one(chunks: list[dict[str, Any]], type_: str) -> dict[str, Any]:
    return [chunk for chunk in chunks if chunk["type"] == type_][-1]


def answered(request: dict[str, Any], **approval: Any) -> dict[str, Any]:
    """Return the assistant's message with the user's approval of a request."""
    forged = {"amount": 1, "to": "mallory"}
    part = {
        "type": "tool-transfer",
        "toolCallId": request["toolCallId"],
        "input": forged,
        "state": "approval-responded",
        "approval": {"id": request["approvalId"], **approval},
    }
    return {"id": "a1", "role": "assistant", "parts": [{"type": "step-start"}, part]}


def spoken(answer: httpx.Response) -> list[str]:
    """Return the texts that an agent says in a stream."""
    chunks = events_in(answer.text)
    return [chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta"]


async def asked(api: Api, id_: str) -> dict[str, Any]:
    return one(events_in((await chat(api, id_, MUCH)).text), "tool-approval-request")


async def test_a_chat_is_asked_and_goes_on_with_the_answer(talks: Api) -> None:
    id_ = new_id("chat")
    answer = await chat(talks, id_, MUCH)
    first = events_in(answer.text)
    request = one(first, "tool-approval-request")
    message = answered(request, approved=True)
    rest = await chat(talks, id_, MUCH, message)
    again = await chat(talks, id_, MUCH, message)

    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert types(first)[:7] == [
        *("start", "start-step", "text-start", "text-delta", "text-end"),
        *("tool-input-available", "tool-input-available"),
    ]
    assert types(first)[-2:] == ["finish-step", "finish"]
    assert types(first).index("tool-output-available") < types(first).index("finish")
    assert one(first, "start")["messageMetadata"]["abeyance"]["conversation_id"] == id_
    assert one(first, "finish")["finishReason"] == "tool-calls"
    assert one(events_in(rest.text), "tool-output-available")["output"] == "sent 5000 to ada"
    assert "messageId" not in one(events_in(rest.text), "start")
    assert one(events_in(rest.text), "finish")["finishReason"] == "stop"
    assert one(events_in(again.text), "finish")["finishReason"] == "stop"


async def test_a_caller_with_too_many_streams_starts_no_run(
    talks: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "MOST_STREAMS_OF_ONE", 0)
    id_ = new_id("chat")
    problem(await chat(talks, id_, MUCH), 429, "too_many_runs")
    runs = await talks.http.get("/runs", params={"conversation_id": id_})

    assert runs.json()["items"] == []


async def test_a_denied_call_is_not_made_and_its_reason_reaches_the_model(talks: Api) -> None:
    id_ = new_id("chat")
    no = answered(await asked(talks, id_), approved=False, reason="too much")
    chunks = events_in((await chat(talks, id_, MUCH, no)).text)

    assert "tool-output-denied" in types(chunks)
    assert "too much" in one(chunks, "text-delta")["delta"]


async def test_a_question_that_is_not_an_approval_is_a_tool_with_an_output(talks: Api) -> None:
    id_ = new_id("chat")
    first = events_in((await chat(talks, id_, wrote("cats"), graph="writers")).text)
    shown = one(first, "tool-input-available")
    part = {"type": "dynamic-tool", "toolName": "ask", "toolCallId": shown["toolCallId"]}
    parts = [{"type": "step-start"}, {**part, "state": "output-available", "output": "go"}]
    message = {"id": "a1", "role": "assistant", "parts": parts}
    rest = events_in((await chat(talks, id_, wrote("cats"), message, graph="writers")).text)

    assert (shown["toolName"], shown["dynamic"]) == ("ask", True)
    assert shown["input"]["message"].startswith("Print")
    assert one(rest, "finish")["finishReason"] == "stop"


async def test_answers_that_cannot_count_are_refused_as_by_the_api(talks: Api) -> None:
    id_ = new_id("chat")
    request = await asked(talks, id_)
    interrupt = request["approvalId"].partition("#")[0]

    for approval, status, code in (
        ({"id": f"{interrupt}#sha256:old", "approved": True}, 409, "stale"),
        ({"id": f"{interrupt[:-16]}{'0' * 16}", "approved": True}, 404, "unknown_interrupt"),
        ({"id": "none", "approved": True}, 404, "unknown_interrupt"),
        ({"id": request["approvalId"], "approved": "yes"}, 422, "invalid_body"),
    ):
        problem(await chat(talks, id_, MUCH, answered(request, **approval)), status, code)
    elsewhere = await chat(talks, new_id("chat"), MUCH, answered(request, approved=True))
    problem(elsewhere, 404, "unknown_interrupt")
    problem(await chat(talks, id_, MUCH, graph="gated"), 404, "unknown_graph")
    assert (await talks.interrupt(interrupt))["status"] == "open"


async def test_the_same_request_again_streams_its_reply_once_more(talks: Api) -> None:
    id_ = new_id("chat")
    request = await asked(talks, id_)
    open_again = events_in((await chat(talks, id_, MUCH)).text)
    note = wrote("quick", "m2")
    noted = events_in((await chat(talks, id_, MUCH, note)).text)
    answer = answered(request, approved=True)
    await chat(talks, id_, MUCH, answer)
    whole = spoken(await chat(talks, id_, MUCH))

    assert one(open_again, "tool-approval-request") == request
    assert one(noted, "tool-approval-request") == request
    assert json.dumps(one(noted, "tool-input-available")["input"]).count("5000") == 1
    assert spoken(await chat(talks, id_, MUCH, answer)) == whole[1:]
    assert spoken(await chat(talks, id_, MUCH, note)) == whole[1:]
    assert whole[0] == "Let me see what she has."
    assert "sent 5000 to ada" in whole[1]


async def test_a_message_is_not_regenerated(talks: Api) -> None:
    id_ = new_id("chat")
    body = {"id": id_, "messages": [MUCH], "trigger": "regenerate-message"}
    refused = await talks.http.post("/chat/payments", json=body)

    assert problem(refused, 422, "invalid_body")["errors"][0]["pointer"] == "/trigger"
    assert (await talks.http.get(f"/chat/payments/{id_}/stream")).status_code == 204


async def test_a_stream_is_taken_up_again_as_long_as_the_run_is_open(talks: Api) -> None:
    id_ = new_id("chat")
    path = f"/chat/payments/{id_}/stream"
    nothing = await talks.http.get(path)
    request = await asked(talks, id_)
    chunks = events_in((await talks.http.get(path)).text)

    assert nothing.status_code == 204
    assert one(chunks, "tool-approval-request") == request
    assert types(chunks).count("text-delta") == 1
