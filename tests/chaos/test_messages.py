"""kill -9 while a node reads its messages: one visit takes each message, and its retry gets it again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from killed_graphs import reading

from abeyance import commands

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

_APP = "killed_graphs:graphs"
_IDS = ["m0", "m1", "m2", "m3"]


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path_factory.mktemp("server")) as running:
        yield running


async def test_the_next_attempt_gets_the_messages_of_a_killed_visit(
    server: KillableServer, tmp_path: Path
) -> None:
    journal, dies_at = tmp_path / "journal", tmp_path / "dies_at"
    dies_at.write_text("after m2", encoding="utf-8")
    client = await server.client()
    run_id = "r"
    await client.runs.start(
        reading, {"journal": str(journal), "dies_at": str(dies_at)}, run_id=run_id
    )
    for id_ in _IDS:
        text = "enough" if id_ == _IDS[-1] else "hello"
        message = commands.SteerMessage(message_id=id_, text=text)
        # No worker is up yet that could confirm the message, so a signal sends it.
        await client.temporal.get_workflow_handle(run_id).signal("steer", message)
    with worker_process(server, _APP, tmp_path / "first.log") as first:
        await asyncio.to_thread(first.wait, 90)
        with worker_process(server, _APP, tmp_path / "second.log"):
            ended = await client.run(run_id).wait(timeout=90)

    seen: dict[str, list[str]] = defaultdict(list)
    for line in journal.read_text(encoding="utf-8").split():
        attempt, _, id_ = line.partition("=")
        seen[attempt].append(id_)
    assert ended.status == "completed", ended.error
    assert ended.values["log"] == _IDS
    assert seen == {"1": ["m0", "m1", "m2"], "2": _IDS}
    assert ended.undelivered == []
    assert ended.metrics is not None
    assert ended.metrics.messages_delivered == len(_IDS)
