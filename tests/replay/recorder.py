"""Playing scenarios on a real server, and storing the histories that their runs leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from temporal_site import real_server, replay, skipping_server
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from tests.replay import store
from tests.replay.scenarios import SCENARIOS, SKIP_TIME
from tests.replay.stage import Stage

_SECONDS = 60
"""How long a scenario may take."""


async def record(names: Sequence[str]) -> None:
    """Play scenarios, one after another, and store what each leaves as soon as it is over.

    Raises together what scenarios raise, when all others are stored.
    """
    errors: list[Exception] = []
    async with _stages(names) as made:
        for name, stage in made:
            try:
                await _record(name, stage)
            except Exception as error:  # noqa: BLE001 raised when the others are stored
                error.add_note(name)
                errors.append(error)
                print(f"{name}: failed", flush=True)
    if errors:
        raise ExceptionGroup("not recorded", errors)


async def _record(name: str, stage: Stage) -> None:
    async with asyncio.timeout(_SECONDS):
        await SCENARIOS[name](stage)
    histories = await chain_of(stage.temporal, stage.name)
    for history in histories:
        await replay(history)
    paths = store.paths_for(stage.name, len(histories))
    packs = [store.packed(history) for history in histories]
    store.add(dict(zip(paths, packs, strict=True)))
    print(f"{stage.name}: {', '.join(path.name for path in paths)}", flush=True)


async def chain_of(temporal: TemporalClient, run_id: str) -> list[WorkflowHistory]:
    """All histories of a run, the oldest first."""
    found: list[WorkflowHistory] = []
    execution: str | None = None
    while execution != "":
        handle = temporal.get_workflow_handle(run_id, run_id=execution)
        history = await handle.fetch_history()
        found.insert(0, history)
        started = history.events[0].workflow_execution_started_event_attributes
        execution = started.continued_execution_run_id
    return found


@asynccontextmanager
async def _stages(names: Sequence[str]) -> AsyncIterator[list[tuple[str, Stage]]]:
    temporal: TemporalClient | None = None
    machine: WorkflowEnvironment | None = None
    made: list[tuple[str, Stage]] = []
    async with AsyncExitStack() as stack:
        for name in names:
            stored_as = store.free_name(name)
            if name in SKIP_TIME:
                if machine is None:
                    machine = await stack.enter_async_context(skipping_server())
                made.append((name, Stage(stored_as, machine.client, machine)))
            else:
                if temporal is None:
                    temporal = await stack.enter_async_context(real_server())
                made.append((name, Stage(stored_as, temporal)))
        yield made
