"""Play scenarios on a real server, and store the histories of their runs."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Collection

from temporal_site import histories, real_server, replay
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory

from tests.replay import store
from tests.replay.scenarios import SCENARIOS
from tests.replay.stage import Stage

AT_ONCE = 4
"""How many scenarios are played at the same time, because each mostly waits for its server."""

_SECONDS = 90
"""Seconds that a scenario may take."""


async def record(names: Collection[str]) -> list[str]:
    """Play scenarios, and store their histories. Return the names of those that failed; their stored
    histories stay as they were.
    """
    places = asyncio.Semaphore(AT_ONCE)
    failed: list[str] = []

    async def one(name: str, temporal: TemporalClient) -> None:
        async with places:
            try:
                async with asyncio.timeout(_SECONDS):
                    histories = await played(Stage(name, temporal))
            except Exception:  # noqa: BLE001 told, and the others are stored all the same
                traceback.print_exc()
                failed.append(name)
                return
        paths = store.replace(name, histories)
        print(f"{name}: {', '.join(path.name for path in paths)}", flush=True)

    async with real_server() as temporal:
        await asyncio.gather(*[one(name, temporal) for name in names])
    return sorted(failed)


async def played(stage: Stage) -> list[WorkflowHistory]:
    """Play a scenario, and replay all histories of its run, the oldest first."""
    await SCENARIOS[stage.name](stage)
    found = await histories(stage.temporal, stage.name)
    for history in reversed(found):
        await replay(history)
    return found
