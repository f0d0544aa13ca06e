"""The process of `abeyance slack` is killed; people press buttons while Temporal is away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from killable import killable_server
from sample_graphs import gated
from slack_site import ADA, fake_slack, in_slack
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@contextmanager
def slack_process(variables: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "abeyance", "slack"],
            env={**os.environ, **variables},
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_process_that_is_killed_before_it_has_noted_a_message_posts_no_second_one(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site, log = Site(temporal, gated()), tmp_path / "slack.log"
    async with fake_slack() as slack, site.worker():
        slack.replies["chat.postMessage"] = ["held"]
        with slack.environment(site, in_slack(), tmp_path) as variables:
            with slack_process(variables, log) as process:
                await eventually(lambda: "is up" in log.read_text(), seconds=60)
                run_id = await site.start()
                message = await slack.only_message()
                process.kill()
                await asyncio.to_thread(process.wait)
            with slack_process(variables, log) as process:
                await eventually(lambda: slack.count("conversations.history"), seconds=60)
                await site.client.run(run_id).respond(
                    response={"approved": True}, principal=ANYBODY
                )
                await eventually(lambda: "Approved by" in message.text, seconds=60)
                process.terminate()
                code = await asyncio.to_thread(process.wait, 30)

    assert len(slack.posted) == 1
    assert code == 0


async def test_a_press_while_temporal_is_away_is_answered_and_counts_once_it_is_back(
    tmp_path: Path,
) -> None:
    file = in_slack(people={"ada": {**ADA, "capabilities": ["*"]}})
    async with killable_server(tmp_path) as server, fake_slack() as slack:
        site = Site((await server.client()).temporal, gated())
        async with site.worker(), slack.desk(site, file, tmp_path):
            run_id = await site.start()
            message = await slack.only_message()
            server.kill()
            press = slack.press(message, "Approve")
            await slack.tell(press)
            who, text = await slack.until_told()
            server.start()
            await eventually(server.client, seconds=60)
            await slack.tell(slack.press(message, "Approve"))
            await slack.tell(press)
            await eventually(lambda: "Approved by" in message.text, seconds=90)
            answered = await site.events(run_id, "interrupt.answered")

    assert who == "U0ADA"
    assert "Press again in a moment" in text
    assert len(answered) == 1
    assert len(slack.posted) == 1
