"""`abeyance slack` with a real Temporal server and a fake Slack."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import httpx
import pytest
from pydantic import BaseModel, Field
from scripted_agents import Script, told
from scripted_agents import desk as agent_graph
from slack_site import ADA, FakeSlack, Message, Reply, fake_slack, in_slack, signature
from sqlalchemy import select
from stack import PLAIN
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Agent, Graph, Principal, Remember, tool
from abeyance.contrib.slack import hearing, presses
from abeyance.records import slack_messages
from abeyance.records.documents import Transaction
from abeyance.records.tables import followers


class Refund(BaseModel):
    order: str = "A-7"
    amount: int = 480
    approved: bool | None = None


def refund(**terms: Any) -> Graph:
    graph = Graph("refund", state=Refund)
    graph.interrupt(
        "approve",
        prompt="Refund {amount} for {order}?",
        reason={"customer": "<!channel> & Söhne", "amount": "{amount}"},
        response=bool,
        answer_to="approved",
        requested_capability="refunds:approve",
        **terms,
    )
    graph.edge(START, "approve")
    return graph


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with fake_slack() as made:
        yield made


async def asked(site: Site, slack: FakeSlack) -> tuple[str, Message]:
    run_id = await site.start()
    return run_id, await slack.only_message()


async def test_a_question_is_posted_and_one_press_answers_it(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        shown = message.text
        await slack.tell(slack.press(message, "Approve"))
        view = await site.ended(run_id)
        await eventually(lambda: "Approved by" in message.text)

    assert message.channel == "C0REFUNDS"
    assert "Refund 480 for A-7?" in shown
    assert "customer\\n<!channel> & Söhne" in shown
    assert {"plain_text"} == {each["type"] for each in message.revisions[0]["blocks"][1]["fields"]}
    assert view.values["approved"] is True
    assert "Approved by <@U0ADA>" in message.text
    assert not message.buttons


async def test_a_question_is_in_slack_soon_after_it_is_asked(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        first = await site.start()
        await eventually(lambda: slack.posted)
        # Now everything is loaded that is loaded only once.
        second = await site.start()
        await eventually(lambda: len(slack.posted) == 2)
        (entry,) = await site.client.run(second).interrupts()
        await site.client.run(first).cancel()
        await site.client.run(second).cancel()

    took = slack.posted[1].posted_at - entry.created_at.timestamp()
    print(f"in Slack after {took:.2f} s")
    # An idle machine takes at most two seconds. Code that waits for a tick of some seconds would fail.
    assert took < 4


@tool(
    approve=True,
    requested_capability="refunds:approve",
    remember=Remember(most="7d", where=["run", "graph"], below={"amount": 200}),
)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def paying() -> Graph:
    return agent_graph(Agent("clerk", model=Script([("pay", {"amount": 5})], told), tools=[pay]))


@pytest.mark.usefixtures("patient")
async def test_a_form_has_the_next_calls_approved_too_for_a_day_at_most(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, paying())
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        await slack.tell(slack.press(message, "Approve, and the next ones…"))
        (view,) = await eventually(lambda: slack.modals)
        wrong = await slack.tell(slack.submission(view, {"field:uses": "0"}))
        entered = {"field:for": "1 day", "field:where": "in every run of this graph"}
        right = await slack.tell(slack.submission(view, {**entered, "field:uses": "2"}))
        await site.ended(run_id)
        await eventually(lambda: "Approved, and the next ones by" in message.text)
        second = await site.ended(await site.start())
        (grant,) = await site.client.grants.list(Principal(subject="ada"))

    assert [*wrong["errors"]] == ["field:for"]
    assert (right, slack.told) == (None, [])
    assert second.status == "completed"
    assert (grant.by, grant.uses, len(grant.used)) == ("ada", 2, 1)
    assert grant.until - grant.made_at <= timedelta(days=1)


async def test_a_person_bound_to_labels_cannot_remember_for_every_run(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, paying())
    bound = {"people": {"ada": {**ADA, "reads": {"team": "finance"}}}}
    async with site.worker(), slack.desk(site, {**in_slack(), **bound}, tmp_path):
        await site.start(labels={"team": "finance"})
        message = await slack.only_message()
        await slack.tell(slack.press(message, "Approve, and the next ones…"))
        (view,) = await eventually(lambda: slack.modals)
        entered = {"field:where": "in every run of this graph"}
        refused = await slack.tell(slack.submission(view, entered))

    assert "you see only some runs" in refused["errors"]["field:for"]


class Account(BaseModel):
    iban: Annotated[str, Field(min_length=2)]
    level: int
    kind: Literal["giro", "savings"]


class Answered(BaseModel):
    answer: dict[str, Any] | None = None


def account() -> Graph:
    graph = Graph("account", state=Answered)
    graph.interrupt("which", prompt="Which account?", response=Account, answer_to="answer")
    graph.edge(START, "which")
    return graph


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Slack wait for a form for longer than three seconds: the machine may be busy."""
    monkeypatch.setattr(presses, "_ACKNOWLEDGED_WITHIN", 15.0)
    monkeypatch.setattr(hearing, "_SECONDS", 18.0)


@pytest.mark.usefixtures("patient")
async def test_a_form_asks_for_the_fields_of_an_answer_and_says_what_is_wrong(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, account())
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        await slack.tell(slack.press(message, "Answer"))
        (view,) = await eventually(lambda: slack.modals)
        wrong = await slack.tell(slack.submission(view, {"field:iban": "DE1", "field:level": "2"}))
        short = {"field:iban": "D", "field:level": "1", "field:kind": "giro"}
        refused = await slack.tell(slack.submission(view, short))
        entered = {"field:iban": "DE12", "field:level": "2", "note": "as agreed"}
        right = await slack.tell(slack.submission(view, {**entered, "field:kind": "giro"}))
        ended = await site.ended(run_id)
        await eventually(lambda: "Answered by" in message.text)

    assert [each["block_id"] for each in view["blocks"]] == [
        *("prompt", "field:iban", "field:level", "field:kind", "note")
    ]
    assert wrong == {"response_action": "errors", "errors": {"field:kind": "This is needed."}}
    # The form does not know the minimum length; the run does.
    assert "iban" in refused["errors"]["field:iban"]
    assert right is None
    assert ended.values["answer"] == {"iban": "DE12", "level": 2, "kind": "giro"}
    assert "as agreed" in message.text
    assert slack.told == []


async def test_a_rejection_takes_a_note(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        await slack.tell(slack.press(message, "Reject"))
        (view,) = await eventually(lambda: slack.modals)
        await slack.tell(slack.submission(view, {"note": "too <much>"}))
        ended = await site.ended(run_id)
        await eventually(lambda: "Rejected by <@U0ADA>" in message.text)

    assert ended.values["approved"] is False
    assert "too &lt;much&gt;" in message.text


async def test_an_old_message_answers_nothing(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    graph = refund()
    site = Site(temporal, graph)
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        old = slack.press(message, "Approve"), slack.press(message, "Reject")
        run = site.client.run(run_id, graph)
        version = (await run.view()).version
        await run.edit_values({"amount": 90}, version=version, principal=ANYBODY)
        await eventually(lambda: "Refund 90 for A-7?" in message.text)
        for number, press in enumerate(old, 1):
            await slack.tell(press)
            await slack.until_told(number)
        still = (await run.view()).status
        (noted,) = await eventually(lambda: slack.thread(message))
        await slack.tell(slack.press(message, "Approve"))
        ended = await site.ended(run_id)

    assert {who for who, _ in slack.told} == {"U0ADA"}
    assert all("the question has changed since" in text for _, text in slack.told)
    assert slack.modals == []
    assert still == "awaiting-input"
    assert noted.startswith("Asked again: ")
    assert (ended.values["approved"], ended.values["amount"]) == (True, 90)


async def test_an_unknown_member_is_refused(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    people = {
        "ada": {**ADA, "slack": "Ada@example.com"},
        "bob": {"slack": "U0BOB"},
        "carol": {"slack": "U0CAROL", "capabilities": ["*"], "reads": {"team": "other"}},
    }
    presses = {
        "U0MALLORY": "this service does not know who you are",
        # U0EVE has Ada's mail address, but in another workspace.
        "U0EVE": "this service does not know who you are",
        "U0BOB": "refunds:approve",
        "U0CAROL": "this question is not asked any more",
    }
    async with site.worker(), slack.desk(site, in_slack(people=people), tmp_path):
        run_id, message = await asked(site, slack)
        for number, member in enumerate(presses, 1):
            await slack.tell(slack.press(message, "Approve", by=member))
            assert (await slack.until_told(number))[0] == member
        view = await site.client.run(run_id).view()
        await slack.tell(slack.press(message, "Approve"))
        await site.ended(run_id)

    assert view.status == "awaiting-input"
    for (_, text), said in zip(slack.told, presses.values(), strict=True):
        assert said in text
    assert {who for who, _ in slack.told} == {*presses}


async def test_a_press_that_comes_twice_counts_once(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund(quorum=2))
    file = in_slack(people={"ada": ADA, "bob": {**ADA, "slack": "U0BOB"}})
    async with site.worker(), slack.desk(site, file, tmp_path):
        run_id, message = await asked(site, slack)
        press = slack.press(message, "Approve")
        await slack.tell(press)
        await eventually(lambda: "1 more needed" in message.text)
        await slack.tell(press)
        await slack.tell(slack.press(message, "Approve"))
        await slack.tell(slack.press(message, "Approve", by="U0BOB"))
        await site.ended(run_id)
        await eventually(lambda: "*Approved by <@U0BOB>*" in message.text)
        voted = await site.events(run_id, "interrupt.voted")

    # One vote is Ada's, the other one Bob's.
    assert len(voted) == 2
    assert "Approved by <@U0ADA>; Approved by <@U0BOB>" in message.text


async def test_actions_outside_slack_are_shown_with_their_actor(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund(hold="1h"))
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        run = site.client.run(run_id)
        (entry,) = await run.interrupts()
        await run.respond(response=True, principal=ANYBODY)
        await eventually(lambda: "Approved by <@U0ADA>*. It can be taken back" in message.text)
        held = {*message.buttons}
        await run.take_back(entry.id, principal=ANYBODY)
        await eventually(lambda: "Approve" in message.buttons)
        await run.cancel()
        await site.ended(run_id)
        await eventually(lambda: "Withdrawn" in message.text)

    assert held == {"Open"}
    assert message.buttons == {}
    assert len(slack.posted) == 1


async def test_asked_people_get_a_message_and_reminders_in_its_thread(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund(assignees=["group:finance"], remind="1s", timeout="1h"))
    people = {
        "ada": ADA,
        "bob": {"slack": "bob@example.com", "groups": ["finance"]},
        "eve": {"slack": "U0EVE", "groups": ["finance"], "reads": {"team": "other"}},
    }
    file = in_slack("assignees", people=people)
    async with site.worker(), slack.desk(site, file, tmp_path):
        run_id = await site.start()
        await eventually(lambda: len(slack.posted) == 2)
        await eventually(lambda: all(slack.thread(each) for each in slack.posted))
        await slack.tell(slack.press(slack.posted[0], "Approve"))
        await site.ended(run_id)
        await eventually(lambda: all("Approved by" in each.text for each in slack.posted))

    assert {each.channel for each in slack.posted} == {"DU0ADA", "DU0BOB"}
    for each in slack.posted:
        (said,) = slack.thread(each)
        assert said.startswith("Reminder for group:finance: this waits for an answer until <!date^")


@pytest.mark.parametrize("reply", [429, pytest.param(503, marks=pytest.mark.slow), "cut"])
async def test_a_message_that_slack_does_not_take_at_once_is_posted_once(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path, reply: Reply
) -> None:
    site = Site(temporal, refund())
    slack.replies["chat.postMessage"] = [reply]
    slack.replies["chat.update"] = [reply]
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id, message = await asked(site, slack)
        await eventually(lambda: slack.count("chat.postMessage") == 2 or reply == "cut")
        await site.client.run(run_id).respond(response=True, principal=ANYBODY)
        await eventually(lambda: "Approved by" in message.text)

    assert len(slack.posted) == 1
    assert slack.count("conversations.history") == (0 if reply == 429 else 1)


async def test_the_second_process_posts_once_the_first_stops(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        async with slack.desk(site, in_slack(), tmp_path):
            run_id, message = await asked(site, slack)
        # The inner process has stopped now, whichever of the two posted the message.
        await site.client.run(run_id).respond(response=True, principal=ANYBODY)
        await eventually(lambda: "Approved by" in message.text)

    assert len(slack.posted) == 1


async def test_questions_asked_while_no_process_ran_are_posted_later(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    async with site.worker():
        before = await site.start()
        await site.until(before, "awaiting-input")
        async with slack.desk(site, in_slack(), tmp_path):
            await eventually(lambda: site.client.records.read(has_cursor))
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        async with slack.desk(site, in_slack(), tmp_path):
            message = await slack.only_message()
            await site.client.run(run_id).respond(response=True, principal=ANYBODY)
            await eventually(lambda: "Approved by" in message.text)

    assert run_id in message.text
    assert len(slack.posted) == 1


async def test_a_running_process_takes_over_from_one_that_died(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, refund())
    records, now = site.client.records, datetime.now(UTC)
    held = {"now": now, "until": now + timedelta(minutes=5)}
    await records.write(slack_messages.hold, "slack", "another", **held)
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        # The other process ends before it has read anything.
        await records.write(slack_messages.let_go, "slack", "another")
        message = await slack.only_message()

    assert run_id in message.text


def has_cursor(tx: Transaction) -> bool:
    found = select(followers.c.cursor).where(followers.c.deployment == tx.deployment)
    return bool(tx.connection.scalar(found))


async def test_signed_requests_do_what_the_socket_does_and_others_nothing(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, secret = Site(temporal, refund()), "s3cret"
    variables = {"ABEYANCE_SLACK_SIGNING_SECRET": secret}
    async with (
        site.worker(),
        slack.desk(site, in_slack(), tmp_path, socket=False, **variables) as announced,
        httpx.AsyncClient(verify=PLAIN, trust_env=False) as http,
    ):
        url = announced[-1].rpartition(" at ")[2]
        run_id, message = await asked(site, slack)
        body = urlencode({"payload": json.dumps(slack.press(message, "Approve"))})
        signed = signature(secret, body)
        stale = signature(secret, body, at=time.time() - 600)
        refused = [
            await http.post(url, content=body, headers=headers)
            for headers in (
                {},
                signature("other", body),
                stale,
                {**signed, "x-slack-request-timestamp": "x"},
            )
        ]
        view = await site.client.run(run_id).view()
        taken = await http.post(url, content=body, headers=signed)
        await site.ended(run_id)

    assert {each.status_code for each in refused} == {401}
    assert view.status == "awaiting-input"
    assert (taken.status_code, taken.content) == (200, b"")
