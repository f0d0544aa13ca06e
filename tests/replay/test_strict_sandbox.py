"""Every scenario, played once by a worker that imports the workflow's modules anew for each run and
watches what they call. All other tests run workflows as production does, without a sandbox.
"""

from __future__ import annotations

import pytest
from temporal_site import replay
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from tests.replay.recorder import chain_of
from tests.replay.scenarios import SCENARIOS, SKIP_TIME
from tests.replay.stage import Stage


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - SKIP_TIME))
async def test_a_scenario_calls_nothing_that_the_strict_sandbox_forbids(
    name: str, temporal: TemporalClient
) -> None:
    await played(Stage(name, temporal, strict_sandbox=True))


@pytest.mark.parametrize("name", sorted(SKIP_TIME))
async def test_nor_does_one_that_waits_for_days(
    name: str, time_machine: WorkflowEnvironment
) -> None:
    await played(Stage(name, time_machine.client, time_machine, strict_sandbox=True))


async def played(stage: Stage) -> None:
    await SCENARIOS[stage.name](stage)
    for history in await chain_of(stage.temporal, stage.name):
        await replay(history)
