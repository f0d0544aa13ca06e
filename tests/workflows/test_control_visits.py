"""Code that waits while its run is paused: it goes on after a resume, or gets a helpful error."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from sample_graphs import State
from temporal_site import begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph
from abeyance.errors import StillPaused


class Patient:
    """A graph whose node waits while its run is paused, and says how that ended."""

    def __init__(self, timeout: Any = None) -> None:
        self.told: list[Any] = []
        self.started = threading.Event()
        self.go = threading.Event()
        self.graph = Graph("patient", state=State)

        @self.graph.node(retries=0)
        async def wait(state: State, ctx: Context) -> dict[str, Any]:
            self.started.set()
            while not self.go.is_set():
                await asyncio.sleep(0.02)
            try:
                self.told.append(await ctx.wait_if_paused(timeout))
            except StillPaused as error:
                self.told.append(error)
            except asyncio.CancelledError:
                self.told.append("stopped")
                raise
            return {"log": ["waited"]}

        self.graph.edge(START, "wait")


async def test_a_node_waits_while_its_run_is_paused_and_goes_on_when_it_is_resumed(
    temporal: TemporalClient,
) -> None:
    patient = Patient()
    async with begun(temporal, patient.graph) as (site, run):
        await eventually(patient.started.is_set)
        await run.pause()
        patient.go.set()
        with pytest.raises(AssertionError):
            await eventually(lambda: patient.told, seconds=0.5)
        await run.resume()
        await site.ended(run.run_id)
        # The second run is not paused, so its node does not wait.
        ended = await site.ended(await site.start())
    assert patient.told == [True, True]
    assert ended.values["log"] == ["waited"]


async def test_a_node_that_waits_too_long_gets_a_helpful_error(temporal: TemporalClient) -> None:
    patient = Patient("400ms")
    async with begun(temporal, patient.graph) as (site, run):
        await eventually(patient.started.is_set)
        await run.pause_and_send(text="look")
        patient.go.set()
        await eventually(lambda: patient.told)
        await run.resume()
        await site.ended(run.run_id)

    (error,) = patient.told
    assert isinstance(error, TimeoutError)
    for told in (
        f"{run.run_id!r} is still paused after 0.4 s",
        "waits for a person",
        "POST /runs/{id}/resume",
        "`abeyance resume`",
        "cancel it",
        "paused=True",
        "cancelled=False",
        "queue_depth=1 of 100",
    ):
        assert told in str(error)
