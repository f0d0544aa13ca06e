"""Deploys while code runs that cannot stop: a shutdown costs the code no attempt, a crash costs one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from killable import KillableServer, killable_server, worker_process
from lasting_graphs import RELEASE, attempts, graphs
from temporal_site import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_APP = "lasting_graphs:graphs"
_DEPLOYS = 4
_GRACE = {"ABEYANCE_SHUTDOWN_GRACE": "0.2"}


async def serving(
    stack: ExitStack, server: KillableServer, folder: Path, number: int
) -> subprocess.Popen[bytes]:
    """Start a worker, and wait until it serves."""
    log = folder / f"worker-{number}.log"
    process = stack.enter_context(worker_process(server, _APP, log, variables=_GRACE))
    await eventually(lambda: "serving" in log.read_text("utf-8"), seconds=90)
    return process


async def test_deploys_during_long_code_cost_it_no_attempt_and_no_two_attempts_run_at_once(
    tmp_path: Path,
) -> None:
    names = [graph.name for graph in graphs]

    def have_begun(times: int) -> bool:
        return all(len(attempts(tmp_path, name)) == times for name in names)

    async with killable_server(tmp_path) as server:
        client = await server.client()
        with ExitStack() as stack:
            worker = await serving(stack, server, tmp_path, 0)
            for graph in graphs:
                field = "question" if graph.name in ("calling", "thinking") else "folder"
                await client.runs.start(graph, {field: str(tmp_path)}, run_id=graph.name)
            for number in range(1, _DEPLOYS + 1):
                await eventually(partial(have_begun, number), seconds=90)
                following = await serving(stack, server, tmp_path, number)
                worker.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(worker.wait, 60) == 0
                worker = following
            await eventually(lambda: have_begun(_DEPLOYS + 1), seconds=90)
            (tmp_path / RELEASE).touch()
            ended = [await client.run(name).wait(timeout=90) for name in names]

    assert {view.run_id: view.status for view in ended} == dict.fromkeys(names, "completed")
    assert {name: attempts(tmp_path, name) for name in names} == dict.fromkeys(
        names, ["alone"] * (_DEPLOYS + 1)
    )


async def test_a_worker_that_is_killed_while_it_shuts_down_has_made_an_attempt(
    tmp_path: Path,
) -> None:
    (plain, *_) = graphs
    async with killable_server(tmp_path) as server:
        client = await server.client()
        with ExitStack() as stack:
            worker = await serving(stack, server, tmp_path, 0)
            await client.runs.start(plain, {"folder": str(tmp_path)}, run_id="killed")
            await eventually(lambda: attempts(tmp_path, "plain"), seconds=90)
            worker.send_signal(signal.SIGTERM)
            log = tmp_path / "worker-0.log"
            await eventually(lambda: "Beginning worker shutdown" in log.read_text("utf-8"))
            worker.kill()
            await serving(stack, server, tmp_path, 1)
            ended = await client.run("killed").wait(timeout=90)

    assert ended.status == "failed"
    assert ended.error is not None
    assert "1 attempt at 'work' was lost" in ended.error.message
    assert attempts(tmp_path, "plain") == ["alone"]
