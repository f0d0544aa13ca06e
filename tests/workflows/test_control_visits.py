"""What pausing and cancelling mean for code that runs: stopped, asked again, waiting, and told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sample_graphs import State
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph
from abeyance.core.events import Message
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


async def test_pause_now_runs_a_visit_again_as_itself_with_what_it_had_done(
    temporal: TemporalClient,
) -> None:
    graph = Graph("stepping", state=State)
    done: list[str] = []
    keys: list[str] = []
    release = threading.Event()

    def step(name: str) -> str:
        done.append(name)
        return name

    @graph.node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        keys.append(ctx.idempotency_key)
        log = [await ctx.step("one", step, "one")]
        while not release.is_set():
            await asyncio.sleep(0.02)
        return {"log": [*log, await ctx.step("two", step, "two")]}

    graph.edge(START, "work")
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()

        async def is_stopped() -> bool:
            return not (await site.client.run(run_id).view()).running

        for _ in range(2):
            # It is at work again, and its first step is behind it.
            await eventually(lambda: done)
            await site.client.run(run_id).pause(mode="now")
            await eventually(is_stopped)
            begun = len(keys)
            await site.client.run(run_id).resume()
            await _more(keys, begun)
        release.set()
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert done == ["one", "two"]
    assert (len(keys), len(set(keys))) == (3, 1)
    assert ended.values["log"] == ["one", "two"]
    assert ended.metrics is not None
    assert (ended.metrics.visits, ended.metrics.pause_count) == (1, 2)


async def _more(entries: list[str], than: int) -> None:
    await eventually(lambda: len(entries) > than)


async def test_a_node_waits_while_its_run_is_paused_and_goes_on_when_it_is_resumed(
    temporal: TemporalClient,
) -> None:
    patient = Patient()
    site = Site(temporal, patient.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(patient.started.is_set)
        await site.client.run(run_id).pause()
        patient.go.set()
        with pytest.raises(AssertionError):
            await eventually(lambda: patient.told, seconds=0.5)
        await site.client.run(run_id).resume()
        await site.ended(run_id)
        # This one is not paused, so its node waits for nothing.
        ended = await site.ended(await site.start())
    assert patient.told == [True, True]
    assert ended.values["log"] == ["waited"]


async def test_a_node_that_waits_in_a_paused_run_learns_of_its_cancel(
    temporal: TemporalClient,
) -> None:
    patient = Patient()
    site = Site(temporal, patient.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(patient.started.is_set)
        await site.client.run(run_id).pause()
        patient.go.set()
        await site.client.run(run_id).cancel()
        ended = await site.ended(run_id)
        await eventually(lambda: patient.told)

    # Code that awaits is stopped by the cancel itself, if that comes before the answer.
    assert patient.told in ([False], ["stopped"])
    assert ended.status == "cancelled"


async def test_a_node_that_waits_too_long_is_told_all_that_helps(temporal: TemporalClient) -> None:
    patient = Patient("400ms")
    site = Site(temporal, patient.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(patient.started.is_set)
        await site.client.run(run_id).pause_and_send(text="look")
        patient.go.set()
        await eventually(lambda: patient.told)
        await site.client.run(run_id).resume()
        await site.ended(run_id)

    (error,) = patient.told
    assert isinstance(error, TimeoutError)
    for told in (
        f"{run_id!r} is still paused after 0.4 s",
        "waits for a person",
        "POST /runs/{id}/resume",
        "`abeyance resume`",
        "cancel it",
        "paused=True",
        "cancelled=False",
        "queue_depth=1 of 100",
    ):
        assert told in str(error)


async def test_a_message_of_a_visit_that_never_began_is_reported(temporal: TemporalClient) -> None:
    graph = Graph("letters", state=State)
    graph.interrupt("gate", prompt="?")

    @graph.node
    async def read(state: State, inbox: Sequence[Message]) -> dict[str, Any]:
        return {"log": [message.text for message in inbox]}

    graph.edge(START, "gate")
    graph.edge("gate", "read")
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).send(message_id="m", text="hello")
        await site.client.run(run_id).pause()
        await site.client.run(run_id).respond(response=1, principal=ANYBODY)
    for signal in ("resume", "cancel"):
        await temporal.get_workflow_handle(run_id).signal(signal)
    async with site.worker():
        view = await site.ended(run_id)

    assert (view.status, view.values["log"]) == ("cancelled", [])
    assert [(left.message_id, left.reason) for left in view.undelivered] == [("m", "cancelled")]
    assert view.metrics is not None
    assert view.metrics.messages_delivered == 0
    await site.replays(run_id)
