"""Liveness, readiness, and the metrics: a middleware that records operations, and the endpoint for
Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Request, Response
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import BaseModel, Field
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abeyance import metrics
from abeyance.api import openapi
from abeyance.api.auth import require
from abeyance.api.dependencies import Backend, BackendDep
from abeyance.api.problems import unavailable
from abeyance.errors import Code, Unavailable

MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

OPERATIONS: Final[Mapping[str, metrics.Operation]] = {
    "start_run": "start",
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
    "interrupt": "cancel",
    "steer": "message",
    "send_message": "message",
    "pause_and_send": "pause-and-send",
    "clear_messages": "clear",
    "respond": "respond",
    "respond_to_interrupt": "respond",
    "run_agent": "talk",
    "post_message": "talk",
    "edit_values": "edit",
    "edit_deadline": "edit",
    "take_back": "take-back",
    "claim": "claim",
    "release": "release",
    "reassign": "reassign",
    "delegate": "delegate",
    "delete_delegation": "delegate",
    "revoke_grant": "revoke",
    "pause_many": "batch",
    "resume_many": "batch",
    "cancel_many": "batch",
    "steer_many": "batch",
    "respond_to_many": "batch",
    "evict": "evict",
    "erase_run": "erase",
    "migrate": "migrate",
    "retry": "retry",
    "rewind": "rewind",
}
"""The operations, by the names of their routes."""
_METHOD_NOT_ALLOWED: Final = 405
_BEHIND: Final = "Abeyance-Behind"
_RETRY_AFTER: Final = 2.0
"""In seconds, for callers that ask whether the service is ready."""

_EXAMPLE: Final = """\
# HELP interrupt_operations_total what people and programs asked of runs, and what became of it
# TYPE interrupt_operations_total counter
interrupt_operations_total{code="",operation="respond",status="success",via="api"} 3.0
"""

router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process responds."""

    status: str = Field(default="ok", examples=["ok"])


class Readiness(BaseModel):
    """A worker serves runs that start now. `warnings` say why other runs wait, and what to do.

    `records` is `away` while the API cannot reach its database, and then `behind`, until all runs have
    written the records that they could not write.
    """

    ready: bool = Field(default=True, examples=[True])
    workers: int = Field(examples=[2])
    records: Literal["current", "behind", "away"]
    warnings: list[str] = Field(examples=[[]])


@router.get("/healthz", response_description="The process responds.")
async def healthz() -> Health:
    """Check that this process responds. Requires no capability."""
    return Health()


@router.get("/readyz", response_model=Readiness, response_description="The service is ready.")
async def readyz(backend: BackendDep) -> Readiness | Response:
    """Check that Temporal responds, and that a run that starts now is served. Requires no capability.

    This needs a running worker to which Temporal gives new runs, and registered search attributes. A
    worker that is killed counts for 20 more seconds, or 70 if Temporal has no worker heartbeats. The
    `warnings` list runs that wait for something else, such as code that can replay them.
    """
    try:
        client = backend.connection.client
        found, standing = await client.service(), await client.records.standing()
    except Unavailable as error:
        return _not_ready(str(error))
    if found.faults:
        return _not_ready("; ".join(found.faults))
    return Readiness(workers=len(found.workers), records=standing, warnings=list(found.warnings))


def _not_ready(reason: str) -> Response:
    return unavailable(reason, retry_after=_RETRY_AFTER, members={"ready": False})


class BehindMiddleware:
    """ASGI middleware that adds a header with the seconds for which the records have been behind."""

    def __init__(self, app: ASGIApp, *, backend: Backend) -> None:
        self._app = app
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the header to its response."""

        async def say(message: Message) -> None:
            behind = self._behind() if message["type"] == "http.response.start" else None
            if behind is not None:
                MutableHeaders(scope=message)[_BEHIND] = f"{behind:.0f}"
            await send(message)

        await self._app(scope, receive, say)

    def _behind(self) -> float | None:
        try:
            return self._backend.connection.client.records.database.behind
        except Unavailable:
            return None


class Instruments:
    """The instruments of one application. Two applications in a process do not share them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
        meter = provider.get_meter("abeyance")
        self._operations = meter.create_counter(
            metrics.OPERATIONS.name, description=metrics.OPERATIONS.says
        )
        self._latency = meter.create_histogram(
            metrics.LATENCY.name,
            unit=metrics.LATENCY.unit,
            description=metrics.LATENCY.says,
            explicit_bucket_boundaries_advisory=metrics.LATENCY.buckets,
        )

    def record(
        self,
        operation: metrics.Operation,
        status: metrics.Outcome,
        code: str,
        milliseconds: float,
    ) -> None:
        """Count one operation, and record its latency."""
        via: metrics.Via = "api"
        labels = {"operation": operation, "status": status}
        # Every line needs the same labels, so a code that does not apply is empty.
        self._operations.add(1, {**labels, "code": code, "via": via})
        self._latency.record(milliseconds, labels)

    def exposed(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class MetricsMiddleware:
    """ASGI middleware that records operations."""

    def __init__(self, app: ASGIApp, *, instruments: Instruments) -> None:
        self._app = app
        self._instruments = instruments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record it if its route is an operation."""
        # A response that never begins is an internal error.
        status = 500

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        started_at = time.monotonic()
        try:
            await self._app(scope, receive, observe)
        finally:
            # The router, the problem response, and a protocol with one route leave these in the scope.
            state = scope.get("state", {})
            name = getattr(scope.get("route"), "name", "")
            operation = OPERATIONS.get(name, state.get("operation"))
            if operation is not None and status != _METHOD_NOT_ALLOWED:
                default = "internal_error" if status >= 500 else ""  # noqa: PLR2004 HTTP
                code = str(state.get("code", default))
                milliseconds = (time.monotonic() - started_at) * 1000
                outcome = _outcome(status, code, scope["query_string"])
                self._instruments.record(operation, outcome, code, milliseconds)


def _outcome(status: int, code: str, query: bytes) -> metrics.Outcome:
    if status < 400 and not code:  # noqa: PLR2004 HTTP
        return "success"
    if status >= 500 or code == Code.UNAVAILABLE:  # noqa: PLR2004 HTTP
        return "error"
    # A caller who sent a timeout has waited for that long.
    return "timeout" if code == Code.QUEUE_FULL and b"timeout" in parse_qs(query) else "refused"


@metrics_router.get(
    "/metrics",
    response_class=Response,
    response_description="The metrics of this process, for Prometheus.",
    responses=openapi.shown(_EXAMPLE, "text/plain"),
)
async def read_metrics(request: Request, backend: BackendDep) -> Response:
    """Export the metrics of this process for Prometheus.

    With authentication this requires the capability `admin`, unless `ABEYANCE_OPEN_METRICS` is set.
    """
    if backend.tokens.are_required and not backend.settings.open_metrics:
        require((await backend.tokens.authenticate(request)).principal, "admin")
    instruments: Instruments = request.app.state.instruments
    return Response(instruments.exposed(), media_type=MEDIA_TYPE)


def install_metrics(app: FastAPI) -> None:
    """Record the operations of an application, and serve `GET /metrics`."""
    app.state.instruments = Instruments()
    app.add_middleware(MetricsMiddleware, instruments=app.state.instruments)
    app.include_router(metrics_router)
