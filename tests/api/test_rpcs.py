"""The Temporal calls that a call of the API takes: one, and more only if the caller asks for more."""

from __future__ import annotations

from typing import Any, Final

import pytest
from rpc_counter import RpcCounter, counted
from sample_graphs import gates
from stack import Api, app_for, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.client import Client

_START: Final = {"start_workflow_execution": 1}
_SIGNAL: Final = {"signal_workflow_execution": 1}
_UPDATE: Final = {"update_workflow_execution": 1}
_DESCRIBE: Final = {"describe_workflow_execution": 1}
_KEY: Final = {"Idempotency-Key": "k"}
_GOTO: Final = {"timeout": "1h", "on_timeout": "goto:collect"}
_STEER: Final = {"text": "hello", "message_id": "m"}
_NEW: Final = {"graph": "gates", "input": {}}
_ANSWER: Final = "/runs/{run}/respond"

TABLE: Final[list[tuple[str, dict[str, Any], dict[str, Any], dict[str, int]]]] = [
    # path, body, other arguments of the request, Temporal calls
    ("/runs", _NEW, {}, _START),
    ("/runs", _NEW, {"headers": _KEY}, _START),
    ("/runs/{run}/pause", {}, {}, _SIGNAL),
    ("/runs/{run}/pause", _GOTO, {"headers": _KEY}, _SIGNAL),
    # The API describes the run until it has processed the signal.
    ("/runs/{run}/pause", {}, {"params": {"wait": "30s"}}, {**_SIGNAL, **_DESCRIBE}),
    ("/runs/{run}/resume", {}, {}, _SIGNAL),
    ("/runs/{run}/cancel", {}, {}, _SIGNAL),
    ("/runs/{run}/steer", _STEER, {}, _SIGNAL),
    (_ANSWER, {"responses": {"{gate}": 1}}, {}, _UPDATE),
    (_ANSWER, {"responses": {"{gate}": 1}}, {"headers": _KEY}, _UPDATE),
    (_ANSWER, {"responses": {"{gate}": 1}}, {"params": {"view": "true"}}, {**_UPDATE, **_DESCRIBE}),
    ("/interrupts/{gate}/respond", {"response": 1}, {}, _UPDATE),
]


@pytest.fixture(scope="module")
async def counting(temporal: TemporalClient) -> Any:
    site = Site(temporal, gates(2))
    connection, counter = counted(temporal)
    site.client = Client(connection, task_queue=site.settings.task_queue)
    async with served(app_for(site)) as api, site.worker():
        yield api, counter


@pytest.mark.parametrize(("path", "body", "also", "calls"), TABLE)
async def test_a_call_is_one_rpc_and_what_is_asked_for(
    counting: tuple[Api, RpcCounter],
    path: str,
    body: dict[str, Any],
    also: dict[str, Any],
    calls: dict[str, int],
) -> None:
    api, counter = counting
    run_id, (gate, _) = await api.waiting("gates")
    answers = {gate: 1} if "responses" in body else {}
    counter.calls.clear()
    answer = await api.http.post(
        path.format(run=run_id, gate=gate),
        json={**body, **({"responses": answers} if answers else {})},
        **also,
    )

    assert answer.is_success, answer.text
    described = counter.calls.pop("describe_workflow_execution", 0)
    assert {**counter.calls, **(_DESCRIBE if described else {})} == calls
    assert described < 10


async def test_a_process_that_has_not_seen_a_run_describes_it_once(
    counting: tuple[Api, RpcCounter], temporal: TemporalClient
) -> None:
    api, _ = counting
    run_id, _ = await api.waiting("gates")
    connection, counter = counted(temporal)
    client = Client(connection, task_queue=api.app.state.backend.settings.task_queue)
    await client.run(run_id).pause()
    await client.run(run_id).resume()

    assert counter.calls == {"signal_workflow_execution": 2, **_DESCRIBE}


async def test_a_signal_to_a_run_that_has_ended_describes_it(
    counting: tuple[Api, RpcCounter],
) -> None:
    api, counter = counting
    run_id, _ = await api.waiting("gates")
    await api.http.post(f"/runs/{run_id}/cancel", json={})
    await api.until(run_id, "cancelled")
    counter.calls.clear()
    problem(await api.http.post(f"/runs/{run_id}/pause", json={}), 404, "not_running")

    assert counter.calls == {**_SIGNAL, "describe_workflow_execution": 1}
