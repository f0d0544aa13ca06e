"""A run whose local call ends badly goes on, and does the same in a replay."""

from __future__ import annotations

import asyncio
from datetime import time
from typing import Any

import pytest
from receiver import SECRET, SECRET_ENV, hook, rules
from sample_graphs import State, asking
from temporal_site import ANYBODY, Site, begun, eventually
from temporalio import activity
from temporalio.client import Client as TemporalClient
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from abeyance import START, Graph, Refusal, names
from abeyance.errors import Code

HANG, HANG_ONCE, FAIL, RUN = "hang", "hang once", "fail", "run"


class Hindered(ClientInterceptor, Interceptor):
    """Hinders the activities of one name on a worker: they hang, they fail for good, or they run."""

    def __init__(self, name: str, how: str) -> None:
        self.name = name
        self.how = how
        self.begun = 0

    def on(self, temporal: TemporalClient) -> TemporalClient:
        """Return a connection whose workers have this interceptor."""
        config = temporal.config()
        config["interceptors"] = [self]
        return TemporalClient(**config)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        hindered = self

        class Hinder(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                if activity.info().activity_type != hindered.name:
                    return await self.next.execute_activity(input)
                hindered.begun += 1
                how = hindered.how
                if how == HANG_ONCE:
                    how = HANG if hindered.begun == 1 else RUN
                if how == FAIL:
                    raise ApplicationError("it is broken", non_retryable=True)
                if how == HANG:
                    await asyncio.Event().wait()
                return await self.next.execute_activity(input)

        return Hinder(next)


def local() -> Graph:
    """Return a graph of one local node."""
    graph = Graph("local", state=State)
    graph.node(name="quick", local=True, timeout="2s")(lambda state: {"log": ["quick"]})
    graph.edge(START, "quick")
    return graph


@pytest.mark.parametrize(
    ("hindered", "begun", "status"),
    [
        pytest.param(
            Hindered(names.ANNOUNCE_ACTIVITY, HANG), 2, "completed", marks=pytest.mark.slow
        ),
        (Hindered(names.ANNOUNCE_ACTIVITY, FAIL), 1, "completed"),
        (Hindered("local.quick", FAIL), 1, "failed"),
        # Temporal gives the call more time than the node has: the worker enforces the node's timeout.
        pytest.param(Hindered("local.quick", HANG_ONCE), 2, "completed", marks=pytest.mark.slow),
    ],
    ids=lambda value: f"{value.name} {value.how}" if isinstance(value, Hindered) else "",
)
async def test_a_run_whose_local_call_ends_badly_goes_on_and_replays(
    temporal: TemporalClient,
    monkeypatch: pytest.MonkeyPatch,
    hindered: Hindered,
    begun: int,
    status: str,
) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    file = rules(({"event": ["run.*"]}, [hook("http://127.0.0.1:9/hook")]))
    site = Site(hindered.on(temporal), local(), notifications=file)
    async with site.worker():
        run_id = await site.start(conversation_id="talk")
        ended = await site.ended(run_id)

    assert (ended.status, hindered.begun) == (status, begun)
    await site.replays(run_id)


async def test_a_local_node_that_does_not_end_within_its_timeout_fails_and_replays(
    temporal: TemporalClient,
) -> None:
    graph = Graph("late", state=State)

    @graph.node(local=True, timeout="0.2s", retries=0)
    async def late(state: State) -> None:
        await asyncio.Event().wait()

    graph.edge(START, "late")
    async with begun(temporal, graph) as (site, run):
        ended = await site.ended(run.run_id)

    assert ended.status == "failed"
    assert "0.2 s" in (ended.reason or "")
    await site.replays(run.run_id)


@pytest.mark.parametrize("how", [pytest.param(HANG, marks=pytest.mark.slow), FAIL])
async def test_an_answer_that_its_type_does_not_write_is_refused_until_it_does_and_replays(
    temporal: TemporalClient, how: str
) -> None:
    hindered = Hindered(names.WRITE_ANSWERS_ACTIVITY, how)
    site = Site(hindered.on(temporal), asking(response=time))
    async with site.worker():
        run_id = await site.start()
        asked = await site.asked(run_id)
        run = site.client.run(run_id)
        with pytest.raises(Refusal, match="Repeat the call") as refused:
            await run.respond(asked.id, "10:00", principal=ANYBODY)
        still = await run.interrupts()
        hindered.how = RUN
        await run.respond(asked.id, "10:00", principal=ANYBODY)
        ended = await site.ended(run_id)

    assert refused.value.code is Code.UNAVAILABLE
    assert [each.id for each in still] == [asked.id]
    assert (ended.status, hindered.begun) == ("completed", 2)
    await site.replays(run_id)


@pytest.mark.slow
async def test_a_cancellation_that_comes_after_the_end_leaves_the_run_as_it_ended(
    temporal: TemporalClient,
) -> None:
    hindered = Hindered(names.READ_GRAPH_ACTIVITY, HANG)
    site = Site(hindered.on(temporal), asking())
    async with site.worker():
        run_id = await site.start()
        asked = await site.asked(run_id)
        # A call that is under way holds the end of the workflow back.
        migrating = asyncio.create_task(site.client.run(run_id).migrate())
        await eventually(lambda: hindered.begun)
        await site.client.run(run_id).respond(asked.id, True, principal=ANYBODY)
        await temporal.get_workflow_handle(run_id).cancel()
        with pytest.raises(Refusal):
            await migrating
        ended = await site.ended(run_id)

    assert ended.status == "completed"
    await site.replays(run_id)
