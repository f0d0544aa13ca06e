"""`abeyance slack` and the doctor say what Slack lacks for the rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sample_graphs import gated
from slack_site import FakeSlack, fake_slack, in_slack
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.cli.doctor import examine
from abeyance.errors import SettingsError, Unavailable
from abeyance.settings import Settings


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with fake_slack() as made:
        yield made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"replies": {"auth.test": [{"ok": False, "error": "invalid_auth"}]}},
            "ABEYANCE_SLACK_BOT_TOKEN",
        ),
        (
            {"replies": {"apps.connections.open": [{"ok": False, "error": "invalid_auth"}]}},
            "ABEYANCE_SLACK_APP_TOKEN",
        ),
        ({"scopes": {"channels:read"}}, "the app lacks the scope chat:write"),
        ({"channels": {}}, "there is no channel #refunds"),
        ({"not_in": {"refunds"}}, "the app is not in #refunds: invite it"),
    ],
)
async def test_a_faulty_slack_setup_is_named_in_one_line(
    temporal: TemporalClient,
    slack: FakeSlack,
    tmp_path: Path,
    change: dict[str, Any],
    said: str,
) -> None:
    for name, value in change.items():
        setattr(slack, name, value)

    with pytest.raises(SettingsError) as raised:
        async with slack.desk(Site(temporal, gated()), in_slack(), tmp_path):
            pass

    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_limit_at_the_start_and_a_missing_history_are_said(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    site = Site(temporal, gated())
    slack.replies["auth.test"] = [429]
    with pytest.raises(Unavailable, match="Slack asks to wait 1 s"):
        async with slack.desk(site, in_slack(), tmp_path):
            pass
    slack.scopes -= {"channels:history", "im:history"}
    async with slack.desk(site, in_slack(), tmp_path) as announced:
        assert "a crash may post a question a second time" in announced[0]


async def test_doctor_says_whether_slack_can_be_used(
    temporal: TemporalClient, slack: FakeSlack, tmp_path: Path
) -> None:
    with slack.environment(Site(temporal, gated()), in_slack(), tmp_path):
        good = {each.check: each async for each in examine(Settings())}
        slack.scopes -= {"chat:write"}
        bad = {each.check: each async for each in examine(Settings())}

    assert (good["slack"].status, good["slack"].text) == ("ok", "the app may post (#refunds)")
    assert (bad["slack"].status, "chat:write" in bad["slack"].text) == ("fail", True)
