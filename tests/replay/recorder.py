"""Playing scenarios on a real server, and storing the histories that their runs leave."""

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
"""Most of the time a scenario waits for its server, so several are played at the same time."""

_SECONDS = 90
"""How long a scenario may take."""


async def record(names: Collection[str]) -> list[str]:
    """Play scenarios, and store what each leaves. Return those that failed, for which nothing is stored
    that was not stored before.
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
