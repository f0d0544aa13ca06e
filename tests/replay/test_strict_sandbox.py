"""Every scenario under a sandbox that imports the workflow's modules anew for each run and watches what
they call. All other tests run workflows as production does, without a sandbox.

In the quick lane some scenarios are played, which together use every update. `make test-all` plays every
one, and replays every stored history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import pytest
import pytest_asyncio
from temporal_site import replay, replayer
from temporalio import workflow
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from abeyance.workflows.run import AgentRun
from tests.replay import store
from tests.replay.recorder import chain_of
from tests.replay.scenarios import SCENARIOS, SKIP_TIME
from tests.replay.stage import Stage

_PLAYED: Final = frozenset(
    {
        "blocked-until-a-worker-starts-that-has-the-code",
        "claimed-and-reassigned",
        "edited-deadline",
        "edited-values",
        "evicted-while-it-waits",
        "gated-calls-are-handed-over",
        "handed-over-while-its-start-waits",
        "held-and-taken-back",
        "messages-are-cleared",
        "messages-taken-and-left-over",
        "migrated-while-it-waits",
    }
)
"""Scenarios that together use every update."""

_AT_ONCE: Final = 4
"""Most of the time a scenario waits for its server, so several are played at the same time."""


@pytest_asyncio.fixture(scope="module")
async def under_way(
    temporal: TemporalClient, request: pytest.FixtureRequest
) -> AsyncIterator[Mapping[str, asyncio.Task[None]]]:
    """The scenarios of the tests that were selected, each of which its test waits for."""
    places = asyncio.Semaphore(_AT_ONCE)

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


@pytest.mark.slow
async def test_no_stored_history_calls_what_the_strict_sandbox_forbids(
    subtests: pytest.Subtests,
) -> None:
    strict = replayer(strict_sandbox=True)
    for path in store.stored():
        with subtests.test(path.name):
            await strict.replay_workflow(store.unpacked(path))


def test_the_scenarios_that_are_played_use_every_update() -> None:
    definition = workflow._Definition.must_from_class(AgentRun)
    updates = {
        name
        for path in store.stored()
        if store.scenario_of(path) in _PLAYED
        for name in store.handled(path).updates
    }

    assert updates == {*definition.updates}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _PLAYED else pytest.mark.slow)
        for name in sorted(SCENARIOS.keys() - SKIP_TIME)
    ],
)
async def test_a_scenario_calls_nothing_that_the_strict_sandbox_forbids(
    name: str, under_way: Mapping[str, asyncio.Task[None]]
) -> None:
    await under_way[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SKIP_TIME))
async def test_nor_does_one_that_waits_for_days(
    name: str, time_machine: WorkflowEnvironment
) -> None:
    await played(Stage(name, time_machine.client, time_machine, strict_sandbox=True))


async def played(stage: Stage) -> None:
    await SCENARIOS[stage.name](stage)
    for history in await chain_of(stage.temporal, stage.name):
        await replay(history)
