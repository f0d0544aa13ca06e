"""Every scenario in a sandbox that imports the workflow's modules anew for each run and checks their
calls. All other tests run workflows as production does, without a sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from temporalio.client import Client as TemporalClient

from tests.replay.recorder import AT_ONCE, played
from tests.replay.scenarios import SCENARIOS
from tests.replay.stage import Stage


@pytest_asyncio.fixture(scope="module")
async def under_way(
    temporal: TemporalClient, request: pytest.FixtureRequest
) -> AsyncIterator[Mapping[str, asyncio.Task[None]]]:
    """Play the scenarios of the selected tests; each test waits for its own."""
    places = asyncio.Semaphore(AT_ONCE)

    async def play(name: str) -> None:
        async with places:
            await played(Stage(name, temporal, strict_sandbox=True))

    selected = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "under_way" in item.fixturenames
    ]
    tasks = {name: asyncio.create_task(play(name)) for name in selected}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.wait(tasks.values())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_a_scenario_calls_nothing_that_the_strict_sandbox_forbids(
    name: str, under_way: Mapping[str, asyncio.Task[None]]
) -> None:
    await under_way[name]
