"""MCP over HTTP with the official client: calls, questions in rounds, tasks, and clients of 2025."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as protocol
import pytest
import pytest_asyncio
from agent_graphs import payments
from mcp_clients import connected, text_of, yes
from sample_graphs import Held, chain, gated, gates
from stack import Api, app_for, new_id, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph
from abeyance.api.app import create_app
from abeyance.errors import SettingsError
from abeyance.settings import Settings

FORM = "elicitation/create"


def broken() -> Graph:
    graph = Graph("broken")

    @graph.node(retries=0)
    def send() -> None:
        raise ValueError("the printer is on fire")

    graph.edge(START, "send")
    return graph


@pytest_asyncio.fixture(scope="module")
async def held() -> Held:
    return Held()


@pytest_asyncio.fixture(scope="module")
async def site(temporal: TemporalClient, held: Held) -> AsyncIterator[Site]:
    kept = Held(name="kept")
    published = [
        gated(),
        chain(1),
        payments(),
        gates(2),
        broken(),
        held.graph,
        kept.graph,
    ]
    published += [gated("guarded", capability="payments:approve"), gated("voted", quorum=2)]
    for graph in published:
        graph.build(mcp=True)
    site = Site(temporal, *published, gated("private"))
    async with site.worker():
        yield site
        held.release.set()
        kept.release.set()


@pytest_asyncio.fixture(scope="module")
async def api(site: Site) -> AsyncIterator[Api]:
    async with served(app_for(site)) as api:
        yield api


@pytest_asyncio.fixture(scope="module")
async def hasty(site: Site) -> AsyncIterator[Api]:
    """An API whose calls wait only a fifth of a second."""
    async with served(app_for(site, default_timeout=0.2)) as api:
        yield api


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def key_of(asked: Any) -> str:
    """Return the key of the only question that the server asks."""
    requests = asked["inputRequests"] if isinstance(asked, dict) else asked.input_requests
    (key,) = requests
    return str(key)


async def running(api: Api, graph: str) -> list[dict[str, Any]]:
    """Return the runs of a graph that have the status `running`."""
    query = {"graph": graph, "status": "running"}
    found: list[dict[str, Any]] = (await api.http.get("/runs", params=query)).json()["items"]
    return found


async def test_published_graphs_and_three_more_are_tools(api: Api) -> None:
    async with connected(api, "rounds") as client:
        tools = {tool.name: tool for tool in (await client.client.list_tools()).tools}

    assert [*tools][-3:] == ["ask_human", "pending", "answer"]
    assert "gated" in tools
    assert "private" not in tools
    assert tools["gated"].input_schema["properties"]["amount"]["type"] == "number"


async def test_a_run_that_asks_nobody_is_one_call(api: Api) -> None:
    async with connected(api, "rounds") as client:
        result = await client.call("chain")

    values = {"amount": 0, "log": ["n0"], "decision": None}
    assert (result.structured_content, result.is_error) == (values, False)
    assert '"log": ["n0"]' in text_of(result)


async def test_a_form_is_shown_and_answered_in_the_same_call(api: Api) -> None:
    shown: list[Any] = []

    def show(params: protocol.ElicitRequestParams) -> protocol.ElicitResult:
        shown.append(params)
        return yes(approved=True)

    async with connected(api, "rounds", show, {"X-Abeyance-Principal": "ada"}) as client:
        result = await client.call("gated", amount=5)
    run_id = (result.meta or {})["abeyance/run_id"]
    (answered,) = (await api.http.get(f"/runs/{run_id}/interrupts?status=all")).json()["items"]

    (form,) = shown
    assert form.message == "Pay 5?"
    assert form.requested_schema["properties"] == {
        "approved": {"type": "boolean", "title": "Approved"}
    }
    assert result.structured_content["decision"] == {"approved": True}
    assert answered["answered_by"] == "ada"


async def test_an_answer_that_does_not_fit_is_asked_for_again_with_the_reason(api: Api) -> None:
    async with connected(api, "rounds", lambda _: yes()) as client:
        asked = await client.once("gated")
        wrong = {key_of(asked): accepted(approved="perhaps")}
        again = await client.again(asked, "gated", wrong)
        right = {key_of(again): accepted(approved=True)}
        result = await client.again(again, "gated", right)

    ((_, request),) = again.input_requests.items()
    assert "The answer was refused" in request.params.message
    assert "boolean" in request.params.message
    assert key_of(again) == key_of(asked)
    assert result.structured_content["decision"] == {"approved": True}


async def test_a_question_that_is_not_flat_is_the_address_of_the_inbox(api: Api) -> None:
    shown: list[protocol.ElicitRequestURLParams] = []
    answering: list[asyncio.Task[Any]] = []

    def show(params: protocol.ElicitRequestParams) -> protocol.ElicitResult:
        assert isinstance(params, protocol.ElicitRequestURLParams)
        shown.append(params)
        path = f"/interrupts/{params.url.partition('#')[2]}/respond"
        answer = {"response": {"approved": True}}
        answering.append(asyncio.create_task(api.http.post(path, json=answer)))
        # The client's answer must not count: it was asked to open a page, not to answer.
        return yes(approved=False)

    async with connected(api, "rounds", show) as client:
        result = await client.call("payments", task="pay much")

    (link,) = shown
    assert link.url.startswith(f"{api.url}/inbox#mcp-")
    assert "5000" in link.message
    assert (await answering[0]).status_code == 200
    assert "sent 5000 to ada" in result.structured_content["report"]


async def test_a_question_that_the_caller_may_not_answer_is_the_address_of_the_inbox(
    api: Api,
) -> None:
    clerk = {"X-Abeyance-Capabilities": "runs:read,runs:start,runs:respond"}
    async with connected(api, "rounds", lambda _: yes(), clerk) as client:
        asked = await client.once("guarded")

    ((_, request),) = asked.input_requests.items()
    assert request.params.mode == "url"
    assert "payments:approve" in request.params.message


async def test_a_client_that_leaves_a_question_open_gets_the_waiting_questions(api: Api) -> None:
    left = protocol.ElicitResult(action="decline")
    for client_shows in (lambda _: left, None):
        async with connected(api, "rounds", client_shows) as client:
            told = await client.call("gated")

        (question,) = told.structured_content["questions"]
        assert (await api.interrupt(question["interrupt_id"]))["status"] == "open"
        assert question["interrupt_id"] in text_of(told)


async def test_while_a_run_works_the_call_is_sent_back_and_ends_before_the_client_gives_up(
    hasty: Api,
) -> None:
    async with connected(hasty, "rounds", lambda _: yes()) as client:
        working = await client.once("held")
        told = await client.call("held")

    assert (working.input_requests, bool(working.request_state)) == (None, True)
    assert told.structured_content["status"] == "running"
    assert "pending" in text_of(told)


async def test_a_user_who_opened_the_page_is_not_sent_there_again(hasty: Api) -> None:
    much = {"task": "pay much"}
    async with connected(hasty, "rounds", lambda _: yes()) as client:
        asked = await client.asked("payments", **much)
        opened = {key_of(asked): {"action": "accept"}}
        sent_back = await client.again(asked, "payments", opened, **much)
        again = await client.again(sent_back, "payments", {}, **much)

    assert (sent_back.input_requests, again.input_requests) == (None, None)


async def test_a_user_who_has_voted_is_not_asked_again(hasty: Api) -> None:
    async with connected(hasty, "rounds", lambda _: yes()) as client:
        asked = await client.asked("voted")
        sent_back = await client.again(asked, "voted", {key_of(asked): accepted(approved=True)})

    assert sent_back.input_requests is None


async def test_a_task_is_input_required_and_is_answered_in_part(api: Api) -> None:
    async with connected(api, "tasks", lambda _: yes()) as client:
        task = await client.once("gates")
        asked = await client.until(task.task_id, "input_required")
        last = max(asked["inputRequests"], key=lambda key: _message(asked, key))
        await client.tasks(
            "tasks/update", task.task_id, inputResponses={last: accepted(answer="b")}
        )
        left = await client.tasks("tasks/get", task.task_id)
        first = {key_of(left): accepted(answer="a")}
        await client.tasks("tasks/update", task.task_id, inputResponses=first)
        ended = await client.until(task.task_id, "completed")

    assert (task.status, asked["inputRequests"][last]["method"]) == ("working", FORM)
    assert {*asked} >= {"createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
    assert ended["resultType"] == "complete"
    assert sorted(_message(asked, key) for key in asked["inputRequests"]) == ["Gate 0?", "Gate 1?"]
    assert _message(left, key_of(left)) == "Gate 0?"
    assert sorted(ended["result"]["structuredContent"]["log"]) == ["done0 a", "done1 b"]


def _message(task: dict[str, Any], key: str) -> str:
    return str(task["inputRequests"][key]["params"]["message"])


async def test_a_run_that_fails_is_a_result_and_one_that_is_cancelled_a_cancelled_task(
    api: Api,
) -> None:
    async with connected(api, "tasks") as client:
        failed = await client.until((await client.once("broken")).task_id, "completed")
        task = await client.once("held")
        await client.tasks("tasks/cancel", task.task_id)
        cancelled = await client.until(task.task_id, "cancelled")
        again = await client.tasks("tasks/cancel", task.task_id)

    assert failed["result"]["isError"] is True
    assert failed["result"]["structuredContent"]["code"] == "node_failed"
    assert "on fire" in failed["result"]["content"][0]["text"]
    assert "result" not in cancelled
    assert again["resultType"] == "complete"


async def test_a_task_whose_client_shows_nothing_says_where_to_answer(api: Api) -> None:
    async with connected(api, "tasks") as client:
        task = await client.once("gated")
        await api.until(task.task_id, "awaiting-input")
        waiting = await client.tasks("tasks/get", task.task_id)

    assert (waiting["status"], "inputRequests" in waiting) == ("working", False)
    assert f"{api.url}/inbox#{task.task_id}." in waiting["statusMessage"]


async def test_a_listening_client_hears_of_its_tasks(api: Api) -> None:
    async with connected(api, "tasks", lambda _: yes()) as client:
        task = await client.once("gated")
        asked = await client.until(task.task_id, "input_required")
        listening = asyncio.create_task(client.listen(task.task_id, new_id("nobody")))
        await client.told_of(1)
        answer = {key_of(asked): accepted(approved=True)}
        await client.tasks("tasks/update", task.task_id, inputResponses=answer)
        async with asyncio.timeout(30):
            await listening

    assert client.acknowledged == [[task.task_id]]
    statuses = [each["status"] for each in client.told]
    assert (statuses[0], statuses[-1]) == ("input_required", "completed")
    assert client.told[0]["inputRequests"].keys() == asked["inputRequests"].keys()
    assert client.told[-1]["result"]["structuredContent"]["decision"] == {"approved": True}


async def test_a_client_of_2025_gets_the_waiting_questions_and_answers_by_tools(api: Api) -> None:
    async with connected(api, "2025", headers={"X-Abeyance-Principal": "ada"}) as client:
        told = (await client.call("gated", amount=5)).structured_content
        (question,) = told["questions"]
        listed = await client.call("pending")
        answer = {"interrupt_id": question["interrupt_id"], "answer": {"approved": True}}
        result = await client.call("answer", **answer, digest=question["digest"], note="fine")
        later = await client.call("pending", run_id=told["run_id"])
    answered = await api.interrupt(question["interrupt_id"])

    assert (question["prompt"], question["may_answer"]) == ("Pay 5?", True)
    assert question["response_schema"]["required"] == ["approved"]
    assert question["url"] == f"{api.url}/inbox#{question['interrupt_id']}"
    assert question["interrupt_id"] in text_of(listed)
    assert result.structured_content["decision"] == {"approved": True}
    assert later.structured_content == result.structured_content
    assert (answered["answered_by"], answered["note"]) == ("ada", "fine")


async def test_a_vote_by_a_tool_names_the_missing_votes(api: Api) -> None:
    async with connected(api, "2025") as client:
        (question,) = (await client.call("voted")).structured_content["questions"]
        answer = {"interrupt_id": question["interrupt_id"], "answer": {"approved": True}}
        told = await client.call("answer", **answer)

    assert "vote; 1 more" in text_of(told)


async def test_ask_human_asks_one_question(api: Api) -> None:
    asked = {"question": "Which {colour}?", "choices": ["red", "blue"], "assignees": ["ada"]}
    async with connected(api, "2025") as client:
        told = await client.call("ask_human", **asked, timeout="2d")
        (id_,) = [each["interrupt_id"] for each in told.structured_content["questions"]]
        question = await api.interrupt(id_)
        result = await client.call("answer", interrupt_id=id_, answer="red")
    async with connected(api, "rounds", lambda _: yes(answer="anything")) as client:
        text = await client.call("ask_human", question="What?")

    assert result.structured_content["answer"] == "red"
    assert text.structured_content["answer"] == "anything"
    assert (question["prompt"], question["assignees"]) == ("Which {colour}?", ["ada"])
    assert question["deadline"] is not None


async def test_a_client_that_leaves_in_the_middle_finds_its_run_again(
    api: Api,
) -> None:
    key = {"abeyance/idempotency-key": new_id("key")}
    async with connected(api, "rounds", lambda _: yes()) as client:
        calling = asyncio.create_task(client.once("kept", meta=key))
        (run,) = await eventually(lambda: running(api, "kept"))
        calling.cancel()
    async with connected(api, "tasks") as client:
        again = await client.once("kept", meta=key)
        task = await client.tasks("tasks/get", run["run_id"])
        await client.tasks("tasks/cancel", run["run_id"])

    assert again.task_id == run["run_id"]
    assert task["status"] == "working"


async def test_a_state_is_good_for_every_process_with_the_keys(site: Site) -> None:
    keys = f"k1:{'A' * 43}="
    async with (
        served(app_for(site, signin_keys=keys)) as one,
        served(app_for(site, signin_keys=keys)) as other,
        connected(one, "rounds", lambda _: yes()) as client,
        connected(other, "rounds", lambda _: yes()) as beside,
    ):
        asked = await client.once("gated")
        answer = {key_of(asked): accepted(approved=True)}
        result = await beside.again(asked, "gated", answer)

    assert result.structured_content["decision"] == {"approved": True}


async def test_a_process_that_stops_lets_no_call_wait(site: Site) -> None:
    async with served(app_for(site)) as api, connected(api, "2025") as client:
        calling = asyncio.create_task(client.call("held"))
        await eventually(lambda: running(api, "held"))
        api.app.state.backend.stopping.set()
        async with asyncio.timeout(20):
            told = await calling

    assert told.structured_content["status"] == "running"


def test_an_api_without_published_graphs_has_no_mcp_server() -> None:
    app = create_app(Settings(), {"gated": gated()})

    assert not hasattr(app.state, "mcp")


def test_a_graph_with_the_name_of_our_tool_cannot_be_published() -> None:
    graph = gated("pending")
    graph.build(mcp=True)

    with pytest.raises(SettingsError, match="'pending' cannot be a tool"):
        create_app(Settings(), {"pending": graph})


def test_publishing_a_graph_requires_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abeyance.contrib.mcp.find_spec", lambda name: None)

    with pytest.raises(SettingsError, match="pip install 'abeyance"):
        create_app(Settings(mcp="all"), {})
