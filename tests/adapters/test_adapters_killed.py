"""kill -9 around turns and calls of other frameworks' agents: nothing that ended runs again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from foreign_office import FRAMEWORKS, Office, desk
from killable import KillableServer, killable_server, worker_process
from temporal_site import ANYBODY, eventually

from abeyance import views

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path_factory.mktemp("server")) as running:
        yield running


# For each framework tests/adapters/test_adapters.py repeats turns and calls, without a process.
_FRAMEWORK = "pydantic_ai"


@pytest.mark.parametrize("dies_at", ["turn 2", "pay 3"])
async def test_finished_turns_and_calls_do_not_run_again_after_a_kill(
    server: KillableServer, tmp_path: Path, dies_at: str
) -> None:
    # The worker asks the model again, because nothing has seen its response. An approved call is
    # attempted once: a person says what came of it.
    in_call = dies_at == "pay 3"
    again, kinds = ([], ["approval", "outcome"]) if in_call else ([dies_at], ["approval"])
    file = tmp_path / "lines"
    run_id = tmp_path.name
    client = await server.client()
    graph = desk(FRAMEWORKS[_FRAMEWORK](Office("Never.")))
    await client.runs.start(graph, {}, run_id=run_id)
    variables = {
        "OFFICE_FILE": str(file),
        "OFFICE_FRAMEWORK": _FRAMEWORK,
        "OFFICE_DIES_AT": dies_at,
    }

    def worker(number: int) -> Any:
        return worker_process(
            server,
            "killed_foreign:graphs",
            tmp_path / f"worker-{number}.log",
            blobs=tmp_path / "blobs",
            variables=variables,
        )

    async def open_question() -> views.InterruptView | None:
        view = await client.run(run_id).view()
        return next(iter(view.interrupts), None)

    answers = {"approval": {"approved": True}, "outcome": {"action": "done", "result": "paid"}}
    asked: list[str] = []

    async def answer_all() -> None:
        for _ in kinds[len(asked) :]:
            question = await eventually(open_question, seconds=120)
            asked.append(question.kind)
            receipt = {question.id: answers[question.kind]}
            await client.run(run_id).respond(receipt, principal=ANYBODY)
            if question.kind == "approval":
                break

    with worker(1) as first:
        if in_call:
            await answer_all()
        await eventually(lambda: first.poll() is not None, seconds=120)
        with worker(2):
            await answer_all()
            ended = await client.run(run_id).wait(timeout=120)

    assert ended.status == "completed", ended
    assert asked == kinds
    once = ["turn 1", "look 1", "turn 2", "look 2", "pay 3", "turn 3"]
    lines = file.read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == sorted([*once, *again])
