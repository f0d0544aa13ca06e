"""kill -9 around the calls and turns of agents: an approved call is made once, or a person is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from killed_agents import teller
from temporal_site import ANYBODY, eventually

from abeyance import Graph, views
from abeyance.agents import transcript
from abeyance.agents.transcript_view import TranscriptItem, transcript_items
from abeyance.client import Client
from abeyance.storage.blobs import FolderBlobs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

_APP = "killed_agents:graphs"
_YES = {"approved": True}


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path_factory.mktemp("server")) as running:
        yield running


class Case:
    """A run whose workers die one after another, at the points that a file in its folder lists."""

    def __init__(
        self, server: KillableServer, folder: Path, *calls: str, dies_at: str = ""
    ) -> None:
        self.id = folder.name
        self._server = server
        self._folder = folder
        self._workers = 0
        (folder / "calls").write_text("\n".join(calls), encoding="utf-8")
        (folder / "dies_at").write_text(dies_at, encoding="utf-8")
        self.client: Client

    async def start(self, graph: Graph = teller) -> None:
        self.client = await self._server.client()
        await self.client.runs.start(graph, {"question": str(self._folder)}, run_id=self.id)

    def worker(self) -> Any:
        self._workers += 1
        log = self._folder / f"worker-{self._workers}.log"
        return worker_process(self._server, _APP, log, blobs=self._folder / "blobs")

    def lines(self, *beginnings: str) -> list[str]:
        """Return the lines of the journal that begin with one of these words."""
        file = self._folder / "journal"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(beginnings)]

    async def asked(self, name: str) -> views.InterruptView:
        """Wait for the question with this name, and return it."""

        async def found() -> views.InterruptView | None:
            view = await self.client.run(self.id).view()
            return next((entry for entry in view.interrupts if entry.name == name), None)

        entry: views.InterruptView = await eventually(found, seconds=90)
        return entry

    async def answer(self, name: str, answer: Any) -> views.InterruptView:
        """Wait for the question with this name, and answer it."""
        entry = await self.asked(name)
        await self.client.run(self.id).respond({entry.id: answer}, principal=ANYBODY)
        return entry

    async def dead(self, process: Any) -> None:
        """Wait until a worker has killed itself."""
        await eventually(lambda: process.poll() is not None, seconds=90)
        assert process.returncode == -9

    async def results(self) -> list[TranscriptItem]:
        """Return the results of tool calls in the transcript."""
        heads = (await self.client.run(self.id).result()).transcripts
        assert heads is not None
        (head,) = heads.values()
        messages = await transcript.read(FolderBlobs(self._folder / "blobs"), head)
        return [item for item in transcript_items(messages) if item.role == "tool"]

    async def ended(self) -> views.RunView:
        view = await self.client.run(self.id).wait(timeout=90)
        assert view.status == "completed", view.error or view
        return view


async def test_an_approved_call_whose_worker_is_lost_is_made_again_only_if_a_person_says_so(
    server: KillableServer, tmp_path: Path
) -> None:
    case = Case(server, tmp_path, "charge bob", dies_at="in")
    await case.start()
    with case.worker() as first:
        approval = await case.answer("approve", _YES)
        await case.dead(first)
        with case.worker():
            outcome = await case.asked("outcome")
            before = len(case.lines("bob"))
            await case.answer("outcome", {"action": "retry"})
            ended = await case.ended()

    assert (approval.kind, outcome.kind) == ("approval", "outcome")
    assert outcome.address == approval.address
    assert outcome.reason == approval.reason
    assert before == 1
    assert len(case.lines("bob")) == 2
    assert len(set(case.lines("bob"))) == 1, "the idempotency key is another one"
    assert ended.values["report"] == "charge: success: charged bob"
    (result,) = await case.results()
    assert (result.decision, result.answered_by) == (None, None)


async def test_a_call_without_an_approval_is_made_again_when_its_worker_is_lost(
    server: KillableServer, tmp_path: Path
) -> None:
    case = Case(server, tmp_path, "look bob", dies_at="in")
    await case.start()
    with case.worker() as first:
        await case.dead(first)
        with case.worker():
            ended = await case.ended()

    assert len(case.lines("bob")) == 2
    assert len(set(case.lines("bob"))) == 1
    assert ended.values["report"] == "look: success: charged bob"


async def test_a_call_that_has_ended_is_not_asked_about_when_its_worker_dies_before_it_reports(
    server: KillableServer, tmp_path: Path
) -> None:
    case = Case(server, tmp_path, "charge bob", dies_at="told")
    await case.start()
    with case.worker() as first:
        await case.answer("approve", _YES)
        await case.dead(first)
        with case.worker():
            ended = await case.ended()

    assert len(case.lines("bob")) == 1
    assert ended.values["report"] == "charge: success: charged bob"


async def test_a_call_that_has_not_begun_when_its_worker_dies_is_made_and_nobody_is_asked(
    server: KillableServer, tmp_path: Path
) -> None:
    case = Case(server, tmp_path, "charge watched", dies_at="hooked\nhooked")
    await case.start()
    with case.worker() as first:
        await case.answer("watch", "yes")
        await case.dead(first)
        with case.worker() as second:
            await case.dead(second)
            with case.worker():
                await case.answer("approve", _YES)
                ended = await case.ended()

    assert len(case.lines("watched")) == 1
    assert ended.values["report"] == "charge: success: charged watched"


async def test_a_turn_whose_worker_dies_is_taken_again_and_its_calls_are_made_once(
    server: KillableServer, tmp_path: Path
) -> None:
    case = Case(server, tmp_path, "look eve", dies_at="first turn\nsecond turn")
    await case.start()
    with case.worker() as first:
        await case.dead(first)
        with case.worker() as second:
            await case.dead(second)
            with case.worker():
                ended = await case.ended()

    assert len(case.lines("first turn")) == 2
    assert len(case.lines("second turn")) == 2
    assert len(case.lines("eve")) == 1
    assert ended.values["report"] == "look: success: charged eve"
    assert ended.metrics is not None
    # The agent's node, two turns and one call.
    assert ended.metrics.visits == 4
