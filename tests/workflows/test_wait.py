"""Waiting for a run: told at once, by the server alone, and wherever the run goes meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from rpc_counter import RpcCounter, counted
from sample_graphs import Held, chain, gated, gates
from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import Refusal
from abeyance.client import Client
from abeyance.core.state import Limits
from abeyance.workflows import continue_as_new

_WAITING = frozenset({"awaiting-input"})


class Crowded(RpcCounter):
    """The connection to a server that has no room for anybody who waits."""

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: type[Any],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        if getattr(req, "wait_new_event", False):
            self.calls["refused"] += 1
            raise RPCError("too many who wait", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
        return await super()._rpc_call(
            rpc,
            req,
            resp_type,
            service=service,
            retry=retry,
            metadata=metadata,
            timeout=timeout,
        )


def new_id() -> str:
    return f"run-{uuid.uuid4().hex[:12]}"


def counting(site: Site) -> tuple[Client, RpcCounter]:
    temporal, counter = counted(site.temporal)
    return Client(temporal, task_queue=site.settings.task_queue, patience=15), counter


async def test_who_waits_for_the_end_asks_once_and_needs_no_worker(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    client, counter = counting(site)
    async with site.worker():
        run_id = await site.start()
        async with asyncio.timeout(15), asyncio.TaskGroup() as group:
            waiting = group.create_task(client.run(run_id).wait(timeout=15))
            while not (held.started and counter.polls[run_id]):
                await asyncio.sleep(0.01)
            held.release.set()
        ended = waiting.result()

    assert ended.status == "completed"
    assert ended.values["log"] == ["held", "cleanup completed"]
    assert ended.ended_at is not None
    # And whose run it is, as it has not seen that one before; and which records are those of Temporal,
    # to see whether the ended run was erased.
    assert counter.calls == {
        "describe_workflow_execution": 1,
        "describe_namespace": 1,
        "get_workflow_execution_history": 1,
    }


async def test_who_waits_for_a_gate_asks_the_run_only_when_it_is_there(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    client, counter = counting(site)
    run_id = await site.start({"amount": 3})
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(client.run(run_id).wait(until=_WAITING, timeout=25))
        while not counter.polls[run_id]:
            await asyncio.sleep(0.01)
        async with site.worker():
            view = await waiting

    assert (view.status, view.degraded) == ("awaiting-input", False)
    assert [entry.prompt for entry in view.interrupts] == ["Pay 3?"]
    assert counter.calls["query_workflow"] == 1
    assert counter.calls["describe_workflow_execution"] == 0


async def test_a_wait_goes_with_the_run_over_every_hand_over(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(3))
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=3))
        view = await site.until(run_id, "awaiting-input")
        async with asyncio.TaskGroup() as group:
            end = group.create_task(site.client.run(run_id).wait(timeout=30))
            ending = frozenset({"ending", "completed"})
            either = group.create_task(site.client.run(run_id).wait(until=ending, timeout=30))
            for entry in view.interrupts:
                await site.client.run(run_id).respond({entry.id: 1}, principal=ANYBODY)
        begin = (await site.history(run_id)).events[0].workflow_execution_started_event_attributes

    assert begin.continued_execution_run_id
    assert end.result().status == "completed"
    assert either.result().status in ending


async def test_a_status_that_a_run_with_a_long_history_has_is_seen_at_once(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continue_as_new, "_IDLE_EVENTS", 1_000)
    graph = chain(18, "long")
    graph.interrupt("approve", prompt="Go on?")
    graph.edge("n17", "approve")
    site = Site(temporal, graph)
    client, counter = counting(site)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        view = await client.run(run_id).wait(until=_WAITING, timeout=15)

    assert len((await site.history(run_id)).events) > 100
    assert view.status == "awaiting-input"
    assert counter.calls["get_workflow_execution_history"] == 1


@pytest.mark.parametrize("until", [frozenset(), _WAITING])
async def test_a_wait_for_a_run_that_is_not_there_is_refused_at_once(
    temporal: TemporalClient, until: frozenset[str]
) -> None:
    with pytest.raises(Refusal, match="no run 'never-was'") as refused:
        await Client(temporal).run("never-was").wait(until=until, timeout=60)

    assert refused.value.code == "unknown_run"


@pytest.mark.parametrize("until", [frozenset(), frozenset({"paused"})])
async def test_a_wait_that_is_over_shows_the_run_as_it_is(
    temporal: TemporalClient, until: frozenset[str]
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        view = await site.client.run(run_id).wait(until=until, timeout=0.3)

    assert (view.status, view.ended_at, view.degraded) == ("awaiting-input", None, False)


@pytest.mark.parametrize("until", [frozenset(), _WAITING])
async def test_a_run_that_an_operator_terminates_ends_the_wait(
    temporal: TemporalClient, until: frozenset[str]
) -> None:
    site = Site(temporal, gated())
    client, counter = counting(site)
    run_id = await site.start()
    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        waiting = group.create_task(client.run(run_id).wait(until=until, timeout=15))
        while not counter.polls[run_id]:
            await asyncio.sleep(0.01)
        await temporal.get_workflow_handle(run_id).terminate("gone wrong")
    view = waiting.result()

    assert (view.status, view.reason) == ("terminated", "terminated through Temporal")
    assert view.ended_at is not None


@pytest.mark.parametrize("until", [frozenset(), _WAITING])
async def test_a_wait_ends_also_where_the_server_lets_nobody_wait(
    temporal: TemporalClient, until: frozenset[str]
) -> None:
    site = Site(temporal, gated())
    crowded = Crowded(temporal.service_client)
    client = Client(
        TemporalClient(
            crowded, namespace=temporal.namespace, data_converter=temporal.data_converter
        ),
        task_queue=site.settings.task_queue,
    )
    async with site.worker():
        run_id = await site.start()
        asked = await site.until(run_id, "awaiting-input")
        if not until:
            approved = {asked.interrupts[0].id: {"approved": True}}
            await site.client.run(run_id).respond(approved, principal=ANYBODY)
        view = await client.run(run_id).wait(until=until, timeout=15)

    assert view.status == ("awaiting-input" if until else "completed")
    assert crowded.calls["refused"] > 0


async def test_a_start_that_waits_is_one_call(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())
    client, counter = counting(site)
    async with site.worker():
        started = await client.runs.start(
            gated(), {"amount": 3}, run_id=new_id(), wait=30, until=_WAITING
        )

    assert started.created
    assert started.view is not None
    assert (started.view.status, started.view.degraded) == ("awaiting-input", False)
    assert [entry.prompt for entry in started.view.interrupts] == ["Pay 3?"]
    assert counter.calls == {"execute_multi_operation": 1, "describe_namespace": 1}


async def test_a_start_that_waits_without_a_worker_has_started_the_run(
    temporal: TemporalClient,
) -> None:
    started = await Client(temporal).runs.start(gated(), run_id=new_id(), wait=1, until=_WAITING)
    assert started.created
    assert started.view is not None
    assert (started.view.status, started.view.degraded) == ("running", True)


@pytest.mark.parametrize("until", [frozenset({"completed"}), frozenset({"blocked"})])
async def test_a_start_that_waits_ends_with_the_run(
    temporal: TemporalClient, until: frozenset[str]
) -> None:
    site = Site(temporal, chain(2))
    async with site.worker():
        started = await site.client.runs.start(chain(2), run_id=new_id(), wait=30, until=until)

    assert started.view is not None
    assert started.view.status == "completed"


async def test_a_start_that_waits_goes_with_the_run_over_a_hand_over(
    temporal: TemporalClient,
) -> None:
    graph = chain(6, "long")
    graph.interrupt("approve", prompt="Go on?")
    graph.edge("n5", "approve")
    site = Site(temporal, graph)
    run_id = new_id()
    async with site.worker():
        limits = Limits(continue_as_new_after=8)
        started = await site.client.runs.start(
            graph, run_id=run_id, limits=limits, wait=30, until=_WAITING
        )
        begin = (await site.history(run_id)).events[0].workflow_execution_started_event_attributes

    assert begin.continued_execution_run_id
    assert started.view is not None
    assert started.view.status == "awaiting-input"


async def test_the_same_start_again_waits_for_the_run_of_the_first(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    run_id = new_id()
    async with site.worker():
        first, second = [
            await site.client.runs.start(gated(), run_id=run_id, wait=30, until=_WAITING)
            for _ in range(2)
        ]
        with pytest.raises(Refusal) as refused:
            await site.client.runs.start(
                gated(), {"amount": 4}, run_id=run_id, wait=30, until=_WAITING
            )

    assert (first.created, second.created) == (True, False)
    assert second.view is not None
    assert second.view.status == "awaiting-input"
    assert refused.value.code == "run_exists"
