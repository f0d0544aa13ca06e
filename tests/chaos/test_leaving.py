"""Nodes that would end their process, or raise a BaseException: they fail, and the worker goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from killable import killable_server, worker_process
from leaving_graphs import graphs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_APP = "leaving_graphs:graphs"
_FAILING = {
    "grouped": "the code called sys.exit(3)",
    "rude": "Rude: enough",
    "rude-in-a-thread": "Rude: enough",
    "interrupted": "KeyboardInterrupt",
    "cancelling": "the node cancelled its own task",
}


async def test_a_node_that_would_end_its_worker_fails_and_the_worker_serves_all_others(
    tmp_path: Path,
) -> None:
    by_name = {graph.name: graph for graph in graphs}
    release = tmp_path / "release"
    async with killable_server(tmp_path) as server:
        client = await server.client()
        with worker_process(server, _APP, tmp_path / "worker.log") as worker:
            await client.runs.start(by_name["waiting"], {"release": str(release)}, run_id="waiting")
            await client.run("waiting").wait(until=frozenset({"running"}), timeout=90)
            for name in (*_FAILING, "left-behind"):
                await client.runs.start(by_name[name], {}, run_id=name)
            views = await asyncio.gather(
                *(client.run(name).wait(timeout=90) for name in (*_FAILING, "left-behind"))
            )
            release.touch()
            others = await client.run("waiting").wait(timeout=90)
            is_alive = worker.poll() is None

    ended = {view.run_id: view for view in views}
    for name, told in _FAILING.items():
        error = ended[name].error
        assert error is not None, ended[name]
        assert told in error.message
    assert ended["left-behind"].values["release"] == "went on"
    # The visit that ran all the time was neither lost nor started again.
    assert others.values["release"] == "went on"
    assert is_alive
