"""Runs that an operator pauses, ends or deletes in Temporal itself, as callers of the API see them."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sample_graphs import gated
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site, deleted, eventually
from temporalio import workflow
from temporalio.api.workflowservice.v1 import (
    PauseWorkflowExecutionRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker

from abeyance.client.start import StartPlan
from abeyance.core.state import Limits

YES = {"approved": True}


async def pause_natively(temporal: TemporalClient, run_id: str) -> None:
    await temporal.workflow_service.pause_workflow_execution(
        PauseWorkflowExecutionRequest(
            namespace=temporal.namespace, workflow_id=run_id, request_id=new_id()
        )
    )


async def unpause_natively(temporal: TemporalClient, run_id: str) -> None:
    await temporal.workflow_service.unpause_workflow_execution(
        UnpauseWorkflowExecutionRequest(
            namespace=temporal.namespace, workflow_id=run_id, request_id=new_id()
        )
    )


@asynccontextmanager
async def natively_paused(api: Api, site: Site, **fields: Any) -> AsyncIterator[tuple[str, str]]:
    """Pause a waiting run in Temporal, and yield its id and that of its question."""
    run_id, (gate,) = await api.waiting("gated", {"amount": 3}, **fields)
    await pause_natively(site.temporal, run_id)
    yield run_id, gate
    await api.http.post(f"/runs/{run_id}/cancel", json={"mode": "now"})
    await unpause_natively(site.temporal, run_id)


async def test_an_answer_to_a_natively_paused_run_is_refused_at_once_and_accepted_after(
    api: Api, site: Site
) -> None:
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    await pause_natively(site.temporal, run_id)
    # Far less than the time for which a call waits for a run.
    async with asyncio.timeout(20):
        plain = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
        keyed = await api.http.post(
            f"/runs/{run_id}/respond",
            json={"response": YES},
            headers={"Idempotency-Key": "k"},
        )
        values = await api.http.patch(
            f"/runs/{run_id}/values", json={"patch": {"amount": 4}, "version": 1}
        )
        deadline = await api.http.patch(f"/interrupts/{gate}", json={"timeout": "1h"})
    await unpause_natively(site.temporal, run_id)
    after = await api.http.post(
        f"/runs/{run_id}/respond", json={"response": YES}, headers={"Idempotency-Key": "k"}
    )
    ended = await api.until(run_id, "completed")

    for refused in (plain, keyed, values, deadline):
        told = problem(refused, 409, "natively_paused")
        assert run_id in told["detail"]
        assert "Unpause it there" in told["detail"]
    assert after.json()["receipts"][0]["replayed"] is False
    assert ended["values"]["amount"] == 3


async def test_a_natively_paused_run_is_read_whole(api: Api, site: Site) -> None:
    talk = new_id("talk")
    async with natively_paused(api, site, conversation_id=talk) as (run_id, gate):
        view = (await api.http.get(f"/runs/{run_id}")).json()
        waited = await api.http.get(f"/runs/{run_id}", params={"wait": "1s", "until": "completed"})
        listed = (await api.http.get(f"/runs/{run_id}/interrupts")).json()["items"]
        settled = await api.http.get(f"/runs/{run_id}/interrupts", params={"status": "all"})
        read = await api.interrupt(gate)
        events = (await api.http.get(f"/runs/{run_id}/events")).json()["items"]
        result = await api.http.get(f"/runs/{run_id}/result")
        unread = await api.http.get(f"/runs/{run_id}/messages")
        again = await api.http.post(
            "/runs",
            json={
                "graph": "gated",
                "input": {"amount": 3},
                "run_id": run_id,
                "conversation_id": talk,
            },
        )

        async def in_lists() -> bool:
            # A worker runs this round once a minute.
            await site.client.janitor.round()
            query = {"conversation_id": talk}
            runs = (await api.http.get("/runs", params=query)).json()["items"]
            inbox = (await api.http.get("/interrupts", params=query)).json()["items"]
            blocked = [why["code"] for entry in runs for why in entry["blocked"]]
            found = [entry["run_id"] for entry in (*runs, *inbox)]
            return (blocked, found) == (["natively_paused"], [run_id] * 2)

        await eventually(in_lists)

    assert (view["degraded"], view["status"]) == (False, "awaiting-input")
    assert view["reason"] == "paused through Temporal"
    (why,) = view["blocked"]
    assert why["code"] == "natively_paused"
    assert "unpause it there" in why["message"]
    assert waited.json()["blocked"] == view["blocked"]
    assert [entry["id"] for entry in listed] == [gate]
    assert (read["id"], read["prompt"]) == (gate, "Pay 3?")
    assert "interrupt.opened" in [event["type"] for event in events]
    assert problem(result, 409, "not_finished")["run_status"] == "awaiting-input"
    assert unread.json()["items"] == []
    assert [entry["id"] for entry in settled.json()["items"]] == [gate]
    assert (again.status_code, again.json()["run_id"]) == (200, run_id)


async def test_a_signal_to_a_natively_paused_run_takes_effect_later(api: Api, site: Site) -> None:
    run_id, _ = await api.waiting("gated")
    await pause_natively(site.temporal, run_id)
    cancelled = await api.http.post(f"/runs/{run_id}/cancel", json={"reason": "enough"})
    before = (await api.http.get(f"/runs/{run_id}")).json()
    await unpause_natively(site.temporal, run_id)
    ended = await api.until(run_id, "cancelled")

    assert (cancelled.status_code, cancelled.json()) == (202, {"run_id": run_id})
    assert before["status"] == "awaiting-input"
    assert ended["reason"] == "enough"


async def test_a_terminated_run_is_seen_as_that_everywhere(api: Api, site: Site) -> None:
    talk = new_id("talk")
    run_id, (gate,) = await api.waiting("gated", conversation_id=talk)
    await site.temporal.get_workflow_handle(run_id).terminate(reason="a bad deploy")

    # No janitor has looked at the run yet, so the refused call itself finds its end.
    late = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    assert problem(late, 409, "run_finished")["run_status"] == "terminated"
    assert (await api.http.get("/interrupts", params={"conversation_id": talk})).json()[
        "items"
    ] == []
    late = await api.http.post(f"/runs/{run_id}/respond", json={"response": YES})
    assert problem(late, 409, "run_finished")["run_status"] == "terminated"
    asked = await api.interrupt(gate)
    assert (asked["status"], asked["settled_reason"]) == (
        "cancelled",
        "terminated through Temporal",
    )
    late = await api.http.patch(f"/interrupts/{gate}", json={"timeout": "PT1H"})
    assert problem(late, 404, "not_running")["run_status"] == "terminated"
    assert await outcome(site, api, run_id, talk, "terminated") == "terminated through Temporal"


async def test_an_open_run_that_was_deleted_in_temporal_waits_for_nobody(
    api: Api, site: Site
) -> None:
    run_id, (gate,) = await api.waiting("gated")
    await deleted(site.temporal, run_id)

    # The refused call finds that the run is gone.
    late = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    problem(late, 410, "gone")
    assert gate not in [each["id"] for each in (await api.http.get("/interrupts")).json()["items"]]
    view = (await api.http.get(f"/runs/{run_id}")).json()
    assert (view["status"], view["interrupts"]) == ("terminated", [])
    assert view["reason"] == "Temporal does not have this run any more"

    again, (anew,) = await api.waiting("gated", run_id=run_id)
    assert (again, (await api.interrupt(anew))["status"]) == (run_id, "open")


async def started_around(site: Site, values: dict[str, Any], **options: Any) -> tuple[str, str]:
    """Start a run in Temporal itself, and return its id and its conversation."""
    run_id, talk = new_id(), new_id("talk")
    launch = StartPlan.of(
        gated(),
        {},
        run_id=run_id,
        conversation_id=talk,
        session_type="agent",
        labels={},
        limits=Limits(),
        started_by="ada",
    )
    await site.temporal.start_workflow(
        launch.spec.name,
        args=replace(launch, values=values).arguments,
        id=run_id,
        memo=launch.memo,
        search_attributes=launch.search_attributes,
        **options,
    )
    return run_id, talk


@pytest.mark.usefixtures("deserted")
async def test_a_run_that_timed_out_in_temporal_is_seen_as_that_everywhere(
    site: Site,
) -> None:
    # No worker ever begins this run.
    place = Site(site.temporal, gated())
    queue = place.settings.task_queue
    async with served(app_for(place)) as api:
        run_id, talk = await started_around(
            place, {}, task_queue=queue, execution_timeout=timedelta(seconds=1)
        )

        assert await outcome(place, api, run_id, talk, "timed-out") == "timed out in Temporal"


# The SDK leaves a coroutine that nothing awaits when the beginning of a workflow fails.
@pytest.mark.filterwarnings("ignore:coroutine '_WorkflowInstanceImpl:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("impatient")
async def test_a_run_started_around_us_with_nan_fails_and_says_why(
    site: Site,
) -> None:
    # The site has its own worker, so that nothing of the run is left after the test.
    place = Site(site.temporal, gated())
    async with place.worker(), served(app_for(place)) as api:
        run_id, talk = await started_around(
            place, {"amount": math.nan}, task_queue=place.settings.task_queue
        )
        reason = await outcome(place, api, run_id, talk, "failed")
    gc.collect()

    assert "The input of the run is not JSON" in reason


async def outcome(site: Site, api: Api, run_id: str, talk: str, status: str) -> str:
    """Check that a run's view, result and lists agree about its end, and return the reason."""
    view = await api.until(run_id, status)
    assert (view["outcome"], view["interrupts"]) == (status, [])
    assert view["ended_at"] is not None
    result = (await api.http.get(f"/runs/{run_id}/result")).json()
    assert (result["status"], result["outcome"], result["reason"]) == (
        status,
        status,
        view["reason"],
    )
    refused = problem(await api.http.post(f"/runs/{run_id}/pause", json={}), 404, "not_running")
    assert refused["run_status"] == status
    listed: dict[str, Any] = {}

    async def in_lists() -> bool:
        # A worker runs this round once a minute.
        await site.client.janitor.round()
        query = {"conversation_id": talk, "status": status}
        items = (await api.http.get("/runs", params=query)).json()["items"]
        listed.update({entry["run_id"]: entry for entry in items})
        return run_id in listed

    await eventually(in_lists)
    inbox = (await api.http.get("/interrupts", params={"conversation_id": talk})).json()
    assert (listed[run_id]["outcome"], inbox["items"]) == (status, [])
    return str(view["reason"])


@workflow.defn(name="Invoice", sandboxed=False)
class Foreign:
    """A workflow of another application in the same namespace."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def cancel(self, order: Any) -> None:
        raise AssertionError("this is not ours to cancel")


async def test_a_foreign_workflow_is_not_a_run(api: Api, site: Site) -> None:
    id_ = new_id("invoice")
    async with Worker(site.temporal, task_queue=id_, workflows=[Foreign]):
        handle = await site.temporal.start_workflow("Invoice", id=id_, task_queue=id_)
        calls = [
            api.http.get(f"/runs/{id_}"),
            api.http.get(f"/runs/{id_}/interrupts"),
            api.http.get(f"/runs/{id_}/result"),
            api.http.get(f"/runs/{id_}/events"),
            api.http.get(f"/runs/{id_}", params={"wait": "1s"}),
            api.http.post(f"/runs/{id_}/cancel", json={}),
            api.http.post(f"/runs/{id_}/pause", json={}),
            api.http.post(f"/runs/{id_}/respond", json={"response": YES}),
            api.http.post(
                f"/runs/{id_}/respond", json={"response": 1}, headers={"Idempotency-Key": "k"}
            ),
            api.http.patch(f"/runs/{id_}/values", json={"patch": {"amount": 1}, "version": 0}),
        ]
        for call in calls:
            problem(await call, 404, "unknown_run")
        taken = await api.http.post("/runs", json={"graph": "gated", "input": {}, "run_id": id_})
        assert "in Temporal that is not a run" in problem(taken, 409, "run_exists")["detail"]
        history = (await handle.fetch_history()).events
        await handle.terminate()

    signalled = [
        event for event in history if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert not signalled
