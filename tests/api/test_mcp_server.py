"""MCP over HTTP, with the official client: calls, questions in rounds, tasks, and clients of 2025."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import mcp_types as protocol
import pytest_asyncio
from agent_graphs import payments
from mcp_clients import connected, text_of, yes
from sample_graphs import chain, gated
from stack import Api, app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient


@pytest_asyncio.fixture(scope="module")
async def site(temporal: TemporalClient) -> AsyncIterator[Site]:
    published = gated(), chain(1), payments()
    for graph in published:
        graph.build(mcp=True)
    site = Site(temporal, *published, gated("private"))
    async with site.worker():
        yield site


@pytest_asyncio.fixture(scope="module")
async def api(site: Site) -> AsyncIterator[Api]:
    async with served(app_for(site)) as api:
        yield api


async def test_published_graphs_and_three_more_are_tools(api: Api) -> None:
    async with connected(api, "rounds") as client:
        listed = (await client.client.list_tools()).tools

    assert [tool.name for tool in listed] == [
        *("chain", "gated", "payments"),
        *("ask_human", "pending", "answer"),
    ]
    assert listed[1].input_schema["properties"]["amount"]["type"] == "number"


async def test_a_run_that_asks_nobody_is_one_call(api: Api) -> None:
    async with connected(api, "rounds") as client:
        result = await client.call("chain")

    assert result.structured_content["log"] == ["n0"]
    assert not result.is_error


async def test_a_form_is_shown_and_answered_in_the_same_call(api: Api) -> None:
    shown: list[Any] = []

    def show(params: protocol.ElicitRequestParams) -> protocol.ElicitResult:
        shown.append(params)
        return yes(approved=True)

    async with connected(api, "rounds", show) as client:
        result = await client.call("gated", amount=5)

    (form,) = shown
    assert form.message == "Pay 5?"
    assert form.requested_schema["properties"] == {
        "approved": {"type": "boolean", "title": "Approved"}
    }
    assert result.structured_content["decision"] == {"approved": True}


async def test_a_task_is_input_required_and_is_answered(api: Api) -> None:
    async with connected(api, "tasks", lambda _: yes()) as client:
        task = await client.once("gated", amount=5)
        asked = await client.until(task.task_id, "input_required")
        ((key, request),) = asked["inputRequests"].items()
        answer = {"action": "accept", "content": {"approved": True}}
        await client.tasks("tasks/update", task.task_id, inputResponses={key: answer})
        ended = await client.until(task.task_id, "completed")

    assert request["params"]["message"] == "Pay 5?"
    assert ended["result"]["structuredContent"]["decision"] == {"approved": True}


async def test_a_client_of_2025_is_told_what_waits_and_answers_by_tools(api: Api) -> None:
    async with connected(api, "2025") as client:
        told = (await client.call("gated", amount=5)).structured_content
        (question,) = told["questions"]
        listed = await client.call("pending")
        result = await client.call(
            "answer", interrupt_id=question["interrupt_id"], answer={"approved": True}
        )

    assert question["prompt"] == "Pay 5?"
    assert question["url"] == f"{api.url}/inbox#{question['interrupt_id']}"
    assert question["interrupt_id"] in text_of(listed)
    assert result.structured_content["decision"] == {"approved": True}


async def test_ask_human_asks_one_question(api: Api) -> None:
    async with connected(api, "rounds", lambda _: yes(answer="red")) as client:
        result = await client.call("ask_human", question="Which?", choices=["red", "blue"])

    assert result.structured_content == {"question": "Which?", "answer": "red"}
