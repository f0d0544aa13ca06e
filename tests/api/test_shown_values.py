"""A value that is sent back as it was shown is not an edit: by every way to answer, for every kind of
question, and for every type of an answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from answer_samples import SENT
from command_line import called
from mcp_clients import connected
from pydantic import BaseModel, create_model
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from stack import Api, app_for, new_id, served
from talked import agui, chat, events_in
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Agent, Graph, tool, views
from abeyance.contrib.talk.posted import unrounded
from abeyance.core.json import Json
from abeyance.notifications.links import PersonalLink

LINK_KEY = b"k" * 40
FILE = """\
links: {base: "https://abeyance.example.com", key_env: LINK_KEY}
people:
  ada: {capabilities: ["*"]}
"""
RECORD = 1161888007138312193
MORE: Mapping[str, Any] = {
    "record": RECORD,
    "free": {"a": [1, 2.5, None, "1.0", 1e-7]},
    "text": "<b>{record}</b>",
}
TYPES = {f"f{number}": type_ for number, (type_, *_) in enumerate(SENT)}
SHOWN: dict[str, Json] = {f"f{number}": kept for number, (_, _, kept, _) in enumerate(SENT)}
SHOWN |= MORE
_FIELDS: dict[str, Any] = {name: (type_, ...) for name, type_ in TYPES.items()}
Whole: Any = create_model("Whole", **_FIELDS, record=(int, ...), free=(Any, ...), text=(str, ...))


class State(BaseModel):
    shown: Whole
    task: str = "?"
    it: Whole | None = None
    report: str | None = None


@tool(approve=True, decisions=["approve", "reject"])
async def use(it: Whole) -> str:
    """Use it."""
    return "used"


def play(messages: list[ModelMessage], info: Any) -> ModelResponse:
    """A model that calls the tool once."""
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return ModelResponse(parts=[TextPart(str(part.content))])
    return ModelResponse(parts=[ToolCallPart("use", {"it": SHOWN}, "c1")])


def showing() -> Graph:
    """A graph that asks a question of each kind, and shows the same value in each."""
    graph = Graph("showing", state=State, interrupt_before=["fail"])
    graph.interrupt("ask", prompt="Is it this?", reason={"it": "{shown}"}, answer_to="it")

    @graph.node(name="fail", retries=0, on_error="interrupt")
    async def fail(state: State) -> None:
        raise RuntimeError("no")

    graph.agent("work", Agent("clerk", model=play, tools=[use]), input="task", output="report")
    graph.edge(START, "ask")
    graph.edge("ask", "fail")
    graph.edge("fail", "work")
    return graph


class Bill(BaseModel):
    total: Decimal = Decimal(0)
    fee: Decimal | None = None


def billing() -> Graph:
    graph = Graph("billing", state=Bill)
    graph.interrupt("fee", prompt="Which fee?", answer_to="fee")
    graph.interrupt("done", prompt="Done?")
    graph.edge(START, "fee")
    graph.edge("fee", "done")
    return graph


@pytest_asyncio.fixture(scope="module")
async def api(
    temporal: TemporalClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Api]:
    graph = showing()
    graph.build(mcp=True)
    site = Site(temporal, graph, billing())
    file = tmp_path_factory.mktemp("people") / "notifications.yaml"
    file.write_text(FILE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINK_KEY", LINK_KEY.decode())
        async with site.worker(), served(app_for(site, notifications=file)) as api:
            yield api


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A question as one way to answer shows it. `name` identifies the question there."""

    kind: str
    reason: Json
    payload: Json
    name: Any


class Http:
    """Answers by HTTP: `GET` the question, and `POST` the answer."""

    def __init__(self, api: Api, run_id: str, thread: str) -> None:
        self.api, self.run_id, self.thread = api, run_id, thread

    async def seen(self) -> Seen:
        listed = (await self.api.http.get(f"/runs/{self.run_id}/interrupts")).json()
        return self.of(listed["items"])

    def of(self, listed: list[dict[str, Any]]) -> Seen:
        (shown,) = listed
        return Seen(
            kind=shown["kind"],
            reason=shown.get("reason"),
            payload=shown.get("payload"),
            name=shown,
        )

    async def answer(self, seen: Seen, answer: Json) -> None:
        id_, digest = seen.name["id"], seen.name["digest"]
        body = {"responses": {id_: answer}, "digests": {id_: digest}}
        done = await self.api.http.post(f"/runs/{self.run_id}/respond", json=body)
        assert done.status_code == 200, done.text


class CommandLine(Http):
    """Answers by `abeyance interrupts` and `abeyance respond`."""

    async def _called(self, *arguments: str) -> str:
        code, out, err = await called(*arguments, ABEYANCE_URL=self.api.url)
        assert code == 0, err
        return out

    async def seen(self) -> Seen:
        return self.of(json.loads(await self._called("interrupts", self.run_id, "--json"))["items"])

    async def answer(self, seen: Seen, answer: Json) -> None:
        match seen.kind, answer:
            case "approval", {"arguments": arguments}:
                given = ["--approve", "--arguments", json.dumps(arguments)]
            case _:
                given = [json.dumps(answer)]
        await self._called("respond", seen.name["id"], *given)


class Link(Http):
    """Answers by the page of a personal link."""

    def _at(self, shown: dict[str, Any]) -> str:
        made = PersonalLink.of(shown, "ada", now=datetime.now(UTC))
        return f"/links/{made.token(LINK_KEY)}"

    async def seen(self) -> Seen:
        found = await super().seen()
        path = f"/interrupts/{found.name['id']}/reassign"
        given = (await self.api.http.post(path, json={"to": ["ada"]})).json()
        page = (await self.api.http.get(self._at(given))).text
        embedded = page.partition('data-question="')[2].partition('"')[0]
        return self.of([{**found.name, **json.loads(unescape(embedded))}])

    async def answer(self, seen: Seen, answer: Json) -> None:
        done = await self.api.http.post(self._at(seen.name), json={"response": answer})
        assert done.status_code == 200, done.text


def from_a_browser(seen: Seen, answer: Json) -> Json:
    """Return an answer as JavaScript writes it, which rounds the integers that it was shown."""

    def rounded(value: Json) -> Json:
        match value:
            case bool():
                return value
            case int():
                return int(Decimal(repr(float(value))))
            case dict():
                return {name: rounded(each) for name, each in value.items()}
            case list():
                return [rounded(each) for each in value]
            case _:
                return value

    return rounded(answer) if seen.kind in {"approval", "static"} else answer


class Mcp(Http):
    """Answers by the tools `pending` and `answer` of the MCP server."""

    async def seen(self) -> Seen:
        async with connected(self.api, "2025") as client:
            result = await client.call("pending", run_id=self.run_id)
        assert result.structured_content is not None
        return self.of(result.structured_content["questions"])

    async def answer(self, seen: Seen, answer: Json) -> None:
        shown = {"interrupt_id": seen.name["interrupt_id"], "digest": seen.name["digest"]}
        async with connected(self.api, "2025") as client:
            result = await client.call("answer", **shown, answer=from_a_browser(seen, answer))
        assert not result.is_error, result


class AgUi(Http):
    """Answers by the interrupts of AG-UI, with `resume`."""

    async def seen(self) -> Seen:
        events = events_in((await agui(self.api, self.thread, graph="showing")).text)
        (shown,) = events[-1]["outcome"]["interrupts"]
        about = shown["metadata"]["abeyance"]
        return self.of([{**about, "id": shown["id"]}])

    async def answer(self, seen: Seen, answer: Json) -> None:
        answer = from_a_browser(seen, answer)
        if seen.kind == "approval":
            answer = {"approved": True, "editedArgs": answer["arguments"]}
        entry = {
            "interruptId": seen.name["id"],
            "status": "resolved",
            "payload": answer,
            "metadata": {"abeyance": {"digest": seen.name["digest"]}},
        }
        done = await agui(self.api, self.thread, graph="showing", resume=[entry])
        assert done.status_code == 200, done.text


class AiSdk(Http):
    """Answers by the parts of a message of the AI SDK, whose approvals have no arguments."""

    async def seen(self) -> Seen:
        answer = await self.api.http.get(f"/chat/showing/{self.thread}/stream")
        chunks = events_in(answer.text)
        calls = [chunk for chunk in chunks if chunk["type"] == "tool-input-available"]
        if calls[-1]["toolName"] != "ask":
            asked = [chunk for chunk in chunks if chunk["type"] == "tool-approval-request"]
            reason = {"arguments": calls[-1]["input"]}
            return Seen(kind="approval", reason=reason, payload=None, name=asked[-1])
        shown = calls[-1]["input"]
        return Seen(
            kind=shown["kind"], reason=shown["reason"], payload=shown["payload"], name=calls[-1]
        )

    async def answer(self, seen: Seen, answer: Json) -> None:
        part: dict[str, Any] = {"toolCallId": seen.name["toolCallId"]}
        if seen.kind == "approval":
            approval = {"id": seen.name["approvalId"], "approved": True}
            part |= {"type": "tool-use", "state": "approval-responded", "approval": approval}
        else:
            output = from_a_browser(seen, answer)
            about = {"toolName": "ask", "state": "output-available", "output": output}
            part |= {"type": "dynamic-tool", **about}
        parts = [{"type": "step-start"}, part]
        message = {"id": "a1", "role": "assistant", "parts": parts}
        done = await chat(self.api, self.thread, message, graph="showing")
        assert done.status_code == 200, done.text


Way: TypeAlias = Callable[[Api, str, str], Http]
WAYS: list[Way] = [Http, CommandLine, Link, Mcp, AgUi, AiSdk]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_shown_value_sent_back_is_not_an_edit(api: Api, way: Way) -> None:
    thread = new_id("thread")
    run_id = await api.start("showing", {"shown": SHOWN}, conversation_id=thread)
    channel = way(api, run_id, thread)

    async def asked() -> Seen:
        await api.until(run_id, "awaiting-input")
        return await channel.seen()

    question = await asked()
    assert question.reason["it"] == SHOWN
    await channel.answer(question, question.reason["it"])

    stop = await asked()
    values = stop.payload["values"]
    assert (stop.kind, values["it"], values["shown"]) == ("static", SHOWN, SHOWN)
    await channel.answer(stop, {"values": values, "version": stop.payload["version"]})

    failure = await asked()
    assert failure.kind == "error"
    await channel.answer(failure, {"action": "skip", "patch": values})

    call = await asked()
    assert (call.kind, call.reason["arguments"]) == ("approval", {"it": SHOWN})
    await channel.answer(call, {"approved": True, "arguments": call.reason["arguments"]})

    ended = await api.until(run_id, "completed", "failed", "blocked")
    assert (ended["status"], ended["values"]) == ("completed", {**values, "report": "used"})
    events = (
        await api.http.get(f"/runs/{run_id}/events", headers={"Accept": "application/json"})
    ).text
    assert "run.values_edited" not in events


async def test_a_decimal_gets_all_the_digits_that_were_typed_in_a_terminal(api: Api) -> None:
    run_id = new_id()
    for arguments in (
        ["run", "billing", "--run-id", run_id, "--input", '{"total": 1234567890123456789.89}'],
        ["respond", run_id, "1234567890123456789.10"],
        ["edit", run_id, "total=-0.10000000000000000000001"],
    ):
        code, _, err = await called(*arguments, ABEYANCE_URL=api.url)
        assert code == 0, err
        view = await api.until(run_id, "awaiting-input")
        if arguments[0] == "run":
            assert view["values"]["total"] == "1234567890123456789.89"

    values = {"total": "-0.10000000000000000000001", "fee": "1234567890123456789.10"}
    assert view["values"] == values


@pytest.mark.parametrize(
    ("shown", "sent", "kept"),
    [
        (RECORD, 1161888007138312200, RECORD),
        (-RECORD, -1161888007138312200, -RECORD),
        (10**21 + 1, 1e21, 10**21 + 1),
        (
            [RECORD, RECORD + 1],
            [1161888007138312200] * 3,
            [RECORD, RECORD + 1, 1161888007138312200],
        ),
        (RECORD, RECORD + 1, RECORD + 1),
        (RECORD, "1161888007138312200", "1161888007138312200"),
        (10**400, 1e300, 1e300),
        (True, 1, 1),
        (1, True, True),
        (5, 5.0, 5.0),
        (None, [1161888007138312200], [1161888007138312200]),
    ],
)
def test_only_what_a_browser_makes_of_a_number_that_was_shown_is_taken_for_it(
    shown: Json, sent: Json, kept: Json
) -> None:
    about: dict[str, Any] = {"kind": "question", "reason": None, "payload": {"it": shown}}
    asked = views.InterruptView.model_construct(**about)

    found = unrounded({"it": sent, "more": sent}, asked)

    assert (repr(found["it"]), found["more"]) == (repr(kept), sent)
