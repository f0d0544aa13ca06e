"""Workers that poll but cannot serve: what readiness, doctor and a check before a deploy say of them."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import httpx
import pytest
from dev_stack import call
from google.protobuf.duration_pb2 import Duration
from killable import worker_process
from rpc_counter import counted
from sample_graphs import asking
from stack import app_for, served
from temporal_site import Site, eventually
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names
from abeyance.check import check_runs
from abeyance.errors import SettingsError, Unavailable
from abeyance.temporal.connection import (
    missing_search_attributes,
    register_search_attributes,
    retention,
)
from abeyance.temporal.workers import live_workers, service

APP = """\
from abeyance import START, Graph

graph = Graph("asking")
graph.interrupt("ask", prompt="Pay?")
graph.edge(START, "ask")
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "asking_app.py").write_text(APP)
    return tmp_path


soon = partial(eventually, seconds=90)
"""Waits longer: processes start slowly on a busy machine."""


@pytest.mark.slow
async def test_builds_without_a_worker_are_reported(
    temporal: TemporalClient, address: str, app: Path
) -> None:
    site = Site(temporal, asking())
    queue = site.settings.task_queue

    def worker(build: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        variables = {
            "ABEYANCE_TASK_QUEUE": queue,
            "ABEYANCE_VERSIONING": "pinned",
            "ABEYANCE_BUILD_ID": build,
        }
        return worker_process(
            address, "asking_app:graph", app / f"{build}.log", variables=variables, imports=[app]
        )

    async with served(app_for(site)) as api:

        async def ready(part: str) -> httpx.Response | None:
            response = await api.http.get("/readyz")
            return response if part in response.text else None

        with worker("v1") as first:
            alone = await soon(lambda: ready("is current"))
            await site.make_current("v1")
            well = await soon(lambda: ready('"ready":true'))
            await site.until(await site.start(), "awaiting-input")
            with worker("v2"):
                await site.make_current("v2")
                first.terminate()
                await asyncio.to_thread(first.wait)
                parked = await soon(lambda: ready("'v1'"))
                code = await asyncio.to_thread(
                    lambda: call("doctor", TEMPORAL_ADDRESS=address, ABEYANCE_TASK_QUEUE=queue)
                )
                report = await check_runs(temporal, queue, site.graphs)

    assert alone.status_code == 503
    assert f"set-current-version --deployment-name {queue} --build-id v1" in alone.json()["detail"]
    assert well.json() == {"ready": True, "workers": 1, "records": "current", "warnings": []}
    assert parked.json()["ready"] is True
    (warning,) = parked.json()["warnings"]
    assert warning.startswith("1 open run cannot go on: the build 'v1' began them")
    assert warning in code.stdout
    assert report.faults == (warning,)


async def test_unversioned_workers_that_get_no_runs_are_reported(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, asking())
    queue = site.settings.task_queue
    async with site.worker():
        await eventually(lambda: live_workers(temporal, queue))
        await site.make_current("gone", allow_no_pollers=True)
        served = await service(temporal, queue)
        report = await check_runs(temporal, queue, site.graphs)

    (told,) = served.faults
    assert "new runs go to the build 'gone', which no worker has" in told
    assert f"set-current-version --deployment-name {queue} --unversioned`" in told
    assert report.faults == (told,)


@pytest.mark.slow
async def test_a_worker_waits_for_its_namespace_and_readiness_for_its_search_attributes(
    temporal: TemporalClient, address: str, app: Path
) -> None:
    name = f"ns-{uuid.uuid4().hex[:8]}"
    log = app / "worker.log"
    other = TemporalClient(temporal.service_client, namespace=name)
    site = Site(other, asking())
    variables = {"ABEYANCE_TASK_QUEUE": site.settings.task_queue, "TEMPORAL_NAMESPACE": name}
    with worker_process(address, "asking_app:graph", log, variables=variables, imports=[app]):
        await soon(lambda: "temporal operator namespace create" in log.read_text())
        async with served(app_for(site)) as api:
            missing = await api.http.get("/readyz")
            not_set_up = await asyncio.to_thread(
                lambda: call("setup", TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE=name)
            )
            waiting = log.read_text()
            retention = Duration(seconds=86_400)
            await temporal.workflow_service.register_namespace(
                RegisterNamespaceRequest(
                    namespace=name, workflow_execution_retention_period=retention
                )
            )

            async def ready(part: str) -> httpx.Response | None:
                response = await api.http.get("/readyz")
                return response if part in response.text else None

            bare = await soon(lambda: ready("abeyance setup"))
            await soon(lambda: "serving asking" in log.read_text())
            examined = await asyncio.to_thread(
                lambda: call("doctor", TEMPORAL_ADDRESS=address, **variables)
            )
            await register_search_attributes(other)
            await soon(lambda: ready('"ready":true'))

    assert "serving" not in waiting
    assert waiting.count("\n") == 1
    for said in (missing.json()["detail"], not_set_up.stderr):
        assert "--namespace NAME" in said
        assert name in said
    assert (missing.status_code, bare.status_code) == (503, 503)
    (fault,) = [line for line in examined.stdout.splitlines() if line.startswith("fail")]
    assert fault.endswith("run `abeyance setup`")


async def test_a_search_attribute_of_another_type_is_named_and_no_other_is_registered(
    temporal: TemporalClient,
) -> None:
    name = f"ns-{uuid.uuid4().hex[:8]}"
    other = TemporalClient(temporal.service_client, namespace=name)
    await temporal.workflow_service.register_namespace(
        RegisterNamespaceRequest(
            namespace=name, workflow_execution_retention_period=Duration(seconds=86_400)
        )
    )

    async def registered() -> dict[str, IndexedValueType.ValueType]:
        request = ListSearchAttributesRequest(namespace=name)
        found = await temporal.operator_service.list_search_attributes(request)
        return dict(found.custom_attributes)

    async def has_taken() -> bool:
        attributes = {names.STATUS: IndexedValueType.INDEXED_VALUE_TYPE_INT}
        request = AddSearchAttributesRequest(namespace=name, search_attributes=attributes)
        try:
            await temporal.operator_service.add_search_attributes(request)
        except RPCError:
            # The namespace is not known everywhere yet.
            return False
        return names.STATUS in await registered()

    await eventually(has_taken)
    with pytest.raises(SettingsError, match=f"{names.STATUS} .* needs Keyword"):
        await register_search_attributes(other)
    assert [*await registered()] == [names.STATUS]


@pytest.mark.parametrize(
    ("rpc", "call"),
    [("list_search_attributes", missing_search_attributes), ("describe_namespace", retention)],
)
async def test_a_call_about_the_namespace_whose_connection_closes_is_tried_three_times(
    temporal: TemporalClient, rpc: str, call: Callable[[TemporalClient], Awaitable[object]]
) -> None:
    client, counter = counted(temporal)
    counter.closed[rpc] = 2
    await call(client)
    counter.closed[rpc] = 3
    with pytest.raises(Unavailable, match="operation was canceled"):
        await call(client)

    assert counter.calls[rpc] == 6
