"""Refusals over MCP: the same as those of the API, in the protocol's own form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from agent_graphs import payments
from mcp.shared.exceptions import MCPError
from mcp_clients import connected, text_of, yes
from sample_graphs import gated
from scraped import Scraped
from stack import Api, app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.contrib.mcp.routes import without_details
from abeyance.token_file import add_token

ADA, BOB = ({"X-Abeyance-Principal": name} for name in ("ada", "bob"))
CHAT = "https://chat.example"


@pytest_asyncio.fixture(scope="module")
async def site(temporal: TemporalClient) -> AsyncIterator[Site]:
    site = Site(temporal, gated(), payments(), gated("guarded", capability="payments:approve"))
    async with site.worker():
        yield site


@pytest_asyncio.fixture(scope="module")
async def api(site: Site) -> AsyncIterator[Api]:
    async with served(app_for(site, mcp="all")) as api:
        yield api


def only(*capabilities: str) -> dict[str, str]:
    return {"X-Abeyance-Capabilities": ",".join(capabilities)}


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def status_of(api: Api, key: str) -> str:
    return str((await api.interrupt(key.partition("#")[0]))["status"])


async def test_invalid_arguments_start_nothing_and_are_explained(api: Api) -> None:
    async with connected(api, "rounds") as client:
        wrong = await client.call("gated", amount="much")
        unknown = await client.call("ask_human", question="Why?", urgency=5)
        late = await client.call("ask_human", question="Why?", timeout="soon")
        twice = await client.call("ask_human", question="Why?", choices=["a", "b", "a"])
    runs = (await api.http.get("/runs", params={"graph": "ask_human"})).json()["items"]

    assert (wrong.is_error, wrong.structured_content["code"]) == (True, "invalid_input")
    assert wrong.structured_content["errors"][0]["pointer"] == "/amount"
    assert text_of(wrong).startswith("invalid_input: ")
    assert unknown.structured_content["errors"][0]["pointer"] == "/urgency"
    assert late.structured_content["code"] == "invalid_body"
    assert "soon" in text_of(late)
    assert twice.structured_content["errors"][0]["pointer"] == "/choices"
    assert "two of the choices are equal" in text_of(twice)
    assert runs == []


async def test_a_tool_that_nobody_offers_is_an_error_of_the_protocol(api: Api) -> None:
    async with connected(api, "rounds") as client:
        with pytest.raises(MCPError) as unknown:
            await client.call("gate")

    assert unknown.value.error.code == -32602
    assert "'gate'" in unknown.value.error.message


async def test_a_start_and_an_answer_take_what_they_take_of_the_api(api: Api) -> None:
    async with connected(api, "2025") as client:
        (question,) = (await client.call("guarded")).structured_content["questions"]
    answer = {"interrupt_id": question["interrupt_id"], "answer": {"approved": True}}
    async with connected(api, "2025", headers=only("runs:read")) as reader:
        start = await reader.call("gated")
        ask = await reader.call("ask_human", question="Why?")
        respond = await reader.call("answer", **answer)
    async with connected(api, "2025", headers=only("runs:read", "runs:respond")) as clerk:
        beyond = await clerk.call("answer", **answer)
        made_up = await clerk.call("answer", interrupt_id="none", answer=1)

    missing = [each.structured_content["capability"] for each in (start, ask, respond, beyond)]
    assert missing == ["runs:start", "runs:start", "runs:respond", "payments:approve"]
    assert made_up.structured_content["code"] == "unknown_interrupt"
    assert await status_of(api, question["interrupt_id"]) == "open"


async def test_an_answer_by_a_digest_that_is_not_the_one_shown_counts_for_nothing(
    api: Api,
) -> None:
    async with connected(api, "rounds", lambda _: yes()) as client:
        asked = await client.asked("gated")
        (key,) = asked.input_requests or {}
        id_ = key.partition("#")[0]
        again = await client.again(asked, "gated", {f"{id_}#sha256:old": accepted(approved=True)})
        stale = await client.call(
            "answer", interrupt_id=id_, answer={"approved": True}, digest="sha256:old"
        )

    assert [*again.input_requests] == [key]
    assert (stale.is_error, stale.structured_content["code"]) == (True, "stale")
    assert await status_of(api, key) == "open"


async def test_an_answer_to_a_question_that_was_never_asked_is_ignored(api: Api) -> None:
    async with connected(api, "rounds", lambda _: yes()) as client:
        other = await client.asked("gated")
        (foreign,) = other.input_requests or {}
        asked = await client.asked("gated", amount=1)
        answers = {foreign: accepted(approved=True), "made up": accepted(approved=True)}
        again = await client.again(asked, "gated", answers, amount=1)
    async with connected(api, "tasks", lambda _: yes()) as client:
        task = await client.once("gated")
        await client.until(task.task_id, "input_required")
        await client.tasks("tasks/update", task.task_id, inputResponses=answers)
        left = await client.tasks("tasks/get", task.task_id)

    assert [*again.input_requests] == [*(asked.input_requests or {})]
    assert left["status"] == "input_required"
    assert await status_of(api, foreign) == "open"


async def test_answers_with_the_first_call_are_none(api: Api) -> None:
    async with connected(api, "rounds", lambda _: yes()) as client:
        asked = await client.client.session.call_tool(
            "gated",
            {},
            input_responses={"approve": yes(approved=True)},
            allow_input_required=True,
        )

    assert asked.result_type == "input_required"


async def test_an_update_with_one_answer_that_does_not_fit_changes_nothing(api: Api) -> None:
    async with connected(api, "tasks", lambda _: yes()) as client:
        task = await client.once("gated")
        asked = await client.until(task.task_id, "input_required")
        (key,) = asked["inputRequests"]
        answer = {key: accepted(approved="perhaps")}
        with pytest.raises(MCPError) as wrong:
            await client.tasks("tasks/update", task.task_id, inputResponses=answer)
        with pytest.raises(MCPError) as shapeless:
            await client.tasks("tasks/update", task.task_id, inputResponses={key: {"yes": 1}})
        left = await client.tasks("tasks/get", task.task_id)

    assert (wrong.value.error.code, wrong.value.error.data["code"]) == (-32602, "invalid_answer")
    assert shapeless.value.error.data["code"] == "invalid_body"
    assert left["inputRequests"] == asked["inputRequests"]


async def test_an_approval_is_never_given_by_a_client_that_was_to_open_a_page(api: Api) -> None:
    async with connected(api, "tasks", lambda _: yes()) as client:
        task = await client.once("payments", task="pay much")
        asked = await client.until(task.task_id, "input_required")
        ((key, request),) = asked["inputRequests"].items()
        answer = {key: accepted(approved=True)}
        await client.tasks("tasks/update", task.task_id, inputResponses=answer)

    assert request["params"]["mode"] == "url"
    assert await status_of(api, key) == "open"


async def test_the_task_of_somebody_else_does_not_exist(api: Api) -> None:
    async with connected(api, "tasks", lambda _: yes(), ADA) as ada:
        task = await ada.once("gated")
        asked = await ada.until(task.task_id, "input_required")
    (key,) = asked["inputRequests"]
    answers = {key: accepted(approved=True)}
    async with connected(api, "tasks", lambda _: yes(), BOB) as bob:
        for task_id in (task.task_id, "nobody", "no/run"):
            for method, params in (
                ("tasks/get", {}),
                ("tasks/update", {"inputResponses": answers}),
                ("tasks/cancel", {}),
            ):
                with pytest.raises(MCPError) as unknown:
                    await bob.tasks(method, task_id, **params)
                error = unknown.value.error
                assert (error.code, error.data["code"]) == (-32602, "unknown_run")
        await bob.listen(task.task_id)

    assert bob.acknowledged == [[]]
    assert await status_of(api, key) == "open"


async def test_the_state_of_a_call_is_good_for_its_caller_and_its_call_only(
    api: Api, site: Site
) -> None:
    async with connected(api, "rounds", lambda _: yes(), ADA) as ada:
        asked = await ada.asked("gated")
        cut = asked.model_copy(update={"request_state": str(asked.request_state)[:-4]})
        for call in (
            ada.again(asked, "guarded", {}),
            ada.again(asked, "gated", {}, amount=5),
            ada.again(cut, "gated", {}),
        ):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await call
    async with connected(api, "rounds", lambda _: yes(), BOB) as bob:
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await bob.again(asked, "gated", {})
    async with (
        served(app_for(site, mcp="all")) as other,
        connected(other, "rounds", lambda _: yes(), ADA) as ada,
    ):
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await ada.again(asked, "gated", {})


async def test_tasks_are_for_clients_that_know_them(api: Api) -> None:
    for how, code in (("rounds", -32021), ("2025", -32601)):
        async with connected(api, how) as client:  # type: ignore[arg-type]  # one of the two
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError) as refused:
                    await client.tasks(method, "run-1", inputResponses={})
                assert refused.value.error.code == code
    async with connected(api, "rounds") as client:
        with pytest.raises(MCPError) as refused:
            await client.listen("run-1")
    required = refused.value.error.data["requiredCapabilities"]
    assert required == {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def test_a_key_with_other_arguments_is_a_conflict(api: Api) -> None:
    key = {"abeyance/idempotency-key": "k1"}
    async with connected(api, "tasks") as client:
        first = await client.once("gated", meta=key)
        again = await client.once("gated", meta=key)
        other = await client.once("gated", meta=key, amount=5)
        unusable = await client.once("gated", meta={"abeyance/idempotency-key": ["k"]})

    assert first.task_id == again.task_id
    assert other.structured_content["code"] == "idempotency_conflict"
    assert unusable.structured_content["code"] == "invalid_body"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def of_team(tokens: Path) -> dict[str, dict[str, str]]:
    """The headers of two callers, each of whom sees the runs of one team only, by the team."""
    return {
        team: {"Authorization": f"Bearer {add_token(tokens, name, ['*'], reads={'team': [team]})}"}
        for team, name in (("support", "ada"), ("sales", "eve"))
    }


@pytest_asyncio.fixture(scope="module")
async def locked(site: Site, tokens: Path, of_team: Any) -> AsyncIterator[Api]:
    async with served(app_for(site, mcp="all", tokens_file=tokens, allowed_origins=(CHAT,))) as api:
        yield api


async def test_read_rights_bound_what_a_caller_starts_finds_and_answers(
    locked: Api, of_team: dict[str, dict[str, str]]
) -> None:
    async with connected(locked, "2025", headers=of_team["support"]) as ada:
        told = (await ada.call("gated")).structured_content
    (question,) = told["questions"]
    run = (await locked.http.get(f"/runs/{told['run_id']}", headers=of_team["support"])).json()
    answer = {"interrupt_id": question["interrupt_id"], "answer": {"approved": True}}
    async with connected(locked, "2025", headers=of_team["sales"]) as eve:
        listed = await eve.call("pending")
        read = await eve.call("pending", run_id=told["run_id"])
        refused = await eve.call("answer", **answer)

    assert (run["labels"], run["started_by"]) == ({"team": "support"}, "ada")
    assert listed.structured_content["questions"] == []
    assert read.structured_content["code"] == "unknown_run"
    assert refused.structured_content["code"] == "unknown_interrupt"


async def test_pages_of_named_origins_may_send_the_headers_of_mcp(locked: Api) -> None:
    page = {"Origin": CHAT, "Sec-Fetch-Site": "cross-site"}
    asked = await locked.http.options("/mcp", headers=page)

    allowed = asked.headers["access-control-allow-headers"]
    assert {"mcp-protocol-version", "mcp-method", "mcp-name"} <= {*allowed.split(", ")}


async def test_calls_are_counted_as_the_operations_that_they_are(site: Site) -> None:
    async with served(app_for(site, mcp="all")) as api:
        async with connected(api, "2025") as client:
            await client.call("gated", amount="much")
            (question,) = (await client.call("gated")).structured_content["questions"]
            await client.call("pending")
            answer = {"interrupt_id": question["interrupt_id"], "answer": {"approved": True}}
            await client.call("answer", **answer)
        async with connected(api, "tasks") as client:
            with pytest.raises(MCPError):
                await client.tasks("tasks/cancel", "nobody")
        scraped = Scraped((await api.http.get("/metrics")).text)

    def count(operation: str, status: str, code: str = "") -> float:
        labels = {"operation": operation, "status": status, "code": code, "via": "api"}
        return scraped.total("interrupt_operations_total", **labels)

    assert count("start", "success") == 1
    assert count("start", "refused", "invalid_input") == 1
    assert count("respond", "success") == 1
    assert count("cancel", "refused", "unknown_run") == 1
    assert scraped.total("interrupt_operations_total") == 4


async def test_the_text_of_an_unexpected_error_stays_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_context: Any) -> None:
        raise ValueError("secret-in-an-error")

    context: Any = SimpleNamespace(method="tools/call")
    with pytest.raises(MCPError) as raised:
        await without_details(context, fail)

    assert "secret" not in str(raised.value.error)
    assert "secret-in-an-error" in caplog.text
