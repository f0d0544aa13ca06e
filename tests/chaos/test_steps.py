"""kill -9 at every point of a node with three steps and two questions: no finished step is repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from killed_graphs import stepping
from temporal_site import ANYBODY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

_APP = "killed_graphs:graphs"
# Nothing is written before a step begins: `answered one` is the point before the step `two` as well.
_POINTS = ["before one", "in one", "after one", "answered one", "answered two", "after three"]


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("point", _POINTS)
async def test_a_step_that_was_finished_is_never_done_again(
    server: KillableServer, tmp_path: Path, point: str
) -> None:
    journal, dies_at = tmp_path / "journal", tmp_path / "dies_at"
    dies_at.write_text(point, encoding="utf-8")
    client = await server.client()
    run_id = point.replace(" ", "-")
    files = {"journal": str(journal), "dies_at": str(dies_at)}
    await client.runs.start(stepping, files, run_id=run_id)

    async def answering() -> None:
        for name in ("one", "two"):
            while True:
                view = await client.run(run_id).wait(
                    until=frozenset({"awaiting-input"}), timeout=90
                )
                found = [e.id for e in view.interrupts if e.name == f"ask-{name}"]
                if found:
                    break
            await client.run(run_id).respond({found[0]: f"yes {name}"}, principal=ANYBODY)

    answers = asyncio.create_task(answering())
    with worker_process(server, _APP, tmp_path / "first.log") as first:
        await asyncio.to_thread(first.wait, 90)
        with worker_process(server, _APP, tmp_path / "second.log"):
            await answers
            ended = await client.run(run_id).wait(timeout=90)

    done = journal.read_text(encoding="utf-8").split()
    names = Counter(line.partition("=")[0] for line in done)
    in_flight = point.removeprefix("in ") if point.startswith("in ") else None
    assert ended.status == "completed", ended.error
    assert ended.values["log"] == ["one", "yes one", "two", "yes two", "three"]
    assert names == {name: 2 if name == in_flight else 1 for name in ("one", "two", "three")}
    assert len({line.partition("=")[2] for line in done}) == 1
