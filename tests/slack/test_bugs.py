"""`abeyance slack` says what it cannot handle, and goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sample_graphs import gated
from slack_site import ADA, FakeSlack, fake_slack, in_slack
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with fake_slack() as made:
        yield made


async def test_a_question_that_cannot_be_posted_does_not_stop_others(
    temporal: TemporalClient,
    slack: FakeSlack,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    site, file = Site(temporal, gated()), in_slack("#refunds", "#late")
    # Slack's reply has no name of the message.
    slack.replies["chat.postMessage"] = [{"ok": True}]
    async with site.worker():
        async with slack.desk(site, file, tmp_path):
            first = await site.start()
            (beside,) = await eventually(lambda: slack.posted)
            second = await site.start()
            await eventually(lambda: len(slack.posted) == 3)
        async with slack.desk(site, file, tmp_path):
            third = await site.start()
            await eventually(lambda: len(slack.posted) == 5)

    assert (beside.channel, first in beside.text) == ("C0LATE", True)
    for run_id in (second, third):
        assert {each.channel for each in slack.posted if run_id in each.text} == {
            "C0REFUNDS",
            "C0LATE",
        }
    (said,) = [each.getMessage() for each in caplog.records if each.exc_info]
    assert said.startswith("code=KeyError event=")
    assert f"interrupt={first}." in said
    assert "channel=C0REFUNDS skipped=1 |" in said


async def test_the_page_of_a_proxy_in_place_of_slack_is_waited_out(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, gated())
    slack.replies["chat.postMessage"] = ["page", "page"]
    async with site.worker(), slack.desk(site, in_slack(), tmp_path):
        await site.start()
        await slack.only_message()

    assert slack.count("chat.postMessage") == 3


async def test_a_press_that_cannot_be_handled_stops_no_other_and_is_said(
    temporal: TemporalClient,
    slack: FakeSlack,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(temporal, gated())
    file = in_slack(people={"ada": {**ADA, "slack": "ada@example.com", "capabilities": ["*"]}})
    async with site.worker(), slack.desk(site, file, tmp_path):
        run_id, message = await site.start(), await slack.only_message()
        press = slack.press(message, "Approve")
        (action,) = press["actions"]
        view = {"id": "V1", "callback_id": "abeyance:dance", "state": {"values": {}}}
        about = {**json.loads(action["value"]), "channel": message.channel}
        for odd in (
            {**press, "actions": [{**action, "value": "{}"}]},
            {"type": "view_submission", "user": press["user"], "view": view},
        ):
            assert await slack.tell(odd) is None
        told = slack.submission({**view, "private_metadata": json.dumps(about), "blocks": []}, {})
        assert await slack.tell(told) is None
        stale = await slack.until_told()
        slack.replies["users.info"] = [{"ok": True}]
        await slack.tell(slack.press(message, "Approve"))
        broken = await slack.until_told(2)
        await slack.tell(slack.press(message, "Approve"))
        ended = await site.ended(run_id)

    assert "the question has changed since" in stale[1]
    assert "because of a fault of this service" in broken[1]
    assert ended.status == "completed"
    assert "failed=3 | a press was not handled" in caplog.text
