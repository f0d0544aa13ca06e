"""What an API measures of the operations that it is asked for, as Prometheus reads it."""

from __future__ import annotations

import json
import re
import time
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Request, Response
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abeyance import metrics
from abeyance.api import openapi, problems
from abeyance.api.auth import demand
from abeyance.api.dependencies import Backend
from abeyance.errors import Code

MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Instruments:
    """The instruments of one application, which shares them with no other of its process."""

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
        """Count one operation, and how long its answer took."""
        via: metrics.Via = "api"
        told = {"operation": operation, "status": status}
        # Prometheus wants the same labels on every line; an empty one is none.
        self._operations.add(1, {**told, "code": code, "via": via})
        self._latency.record(milliseconds, told)

    def exposed(self) -> bytes:
        """All of it as Prometheus reads it."""
        return generate_latest(self._registry)


_ADMIN: Final = "admin"
_DEFECT: Final = "internal_error"
_NO_OPERATION: Final = frozenset({"unknown_path", "method_not_allowed"})
_FIRST_ERROR: Final = 400
_FIRST_FAULT: Final = 500

_ON_RUNS: Final[dict[str, metrics.Operation]] = {
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
    "interrupt": "cancel",
    "steer": "message",
    "messages": "message",
    "pause-and-send": "pause-and-send",
    "respond": "respond",
}
_CALLS: Final[tuple[tuple[str, str, metrics.Operation], ...]] = (
    ("POST", "/runs", "start"),
    *(("POST", f"/runs/[^/]+/{word}", done) for word, done in _ON_RUNS.items()),
    # Their ids may have slashes in them.
    *(("POST", rf"/conversations/[\s\S]+/{word}", done) for word, done in _ON_RUNS.items()),
    ("POST", "/interrupts/[^/]+/respond", "respond"),
    ("PATCH", "/interrupts/[^/]+", "edit"),
    ("PATCH", "/runs/[^/]+/values", "edit"),
    ("DELETE", "/runs/[^/]+/messages", "clear"),
    ("POST", "/batch/[^/]+", "batch"),
    ("POST", "/admin/evict", "evict"),
)

_EXAMPLE: Final = """\
# HELP interrupt_operations_total what people and programs asked of runs, and what became of it
# TYPE interrupt_operations_total counter
interrupt_operations_total{code="",operation="respond",status="success",via="api"} 3.0
"""

router = APIRouter(tags=["health"])


def operation_of(method: str, path: str) -> metrics.Operation | None:
    """The operation that a call asks for; None if it is to change nothing."""
    for taken, pattern, operation in _CALLS:
        if method == taken and re.fullmatch(pattern, path):
            return operation
    return None


class MetricsMiddleware:
    """ASGI middleware that measures operations."""

    def __init__(self, app: ASGIApp, *, instruments: Instruments) -> None:
        self._app = app
        self._instruments = instruments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and measure it if it is an operation."""
        operation = (
            operation_of(scope["method"], scope["path"]) if scope["type"] == "http" else None
        )
        if operation is None:
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        began = time.monotonic()
        try:
            await self._app(scope, receive, answer)
        finally:
            code = answer.code
            if code not in _NO_OPERATION:
                took = (time.monotonic() - began) * 1000
                self._instruments.record(operation, _outcome(answer, scope), code, took)


class _Answer:
    """Passes an answer on, and looks at it. An answer that never began is a defect of ours."""

    def __init__(self, send: Send) -> None:
        self.status = _FIRST_FAULT
        self._send = send
        self._is_problem = False
        self._body = b""

    @property
    def code(self) -> str:
        """The code of the problem; empty if all went well."""
        if self._is_problem:
            return str(json.loads(self._body)["code"])
        return _DEFECT if self.status >= _FIRST_FAULT else ""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kind = Headers(raw=message["headers"]).get("content-type")
            self._is_problem = kind == problems.MEDIA_TYPE
        elif self._is_problem:
            self._body += message.get("body", b"")
        await self._send(message)


def _outcome(answer: _Answer, scope: Scope) -> metrics.Outcome:
    if answer.status < _FIRST_ERROR:
        return "success"
    if answer.status >= _FIRST_FAULT:
        return "error"
    # Who says how long the call may wait for room has waited that long.
    has_waited = b"timeout" in parse_qs(scope["query_string"])
    return "timeout" if has_waited and answer.code == Code.QUEUE_FULL else "refused"


@router.get(
    "/metrics",
    response_class=Response,
    responses=openapi.text("The metrics of this process, for Prometheus.", _EXAMPLE),
)
async def read_metrics(request: Request) -> Response:
    """Export the metrics of this process for Prometheus.

    With authentication this requires the capability `admin`, unless `ABEYANCE_OPEN_METRICS` is set.
    """
    behind: Backend = request.app.state.backend
    instruments: Instruments = request.app.state.instruments
    if behind.tokens.are_required and not behind.settings.open_metrics:
        demand((await behind.tokens.admitted(request)).principal, _ADMIN)
    return Response(instruments.exposed(), media_type=MEDIA_TYPE)


def measure(app: FastAPI) -> None:
    """Let an application measure its operations, and tell them."""
    app.state.instruments = Instruments()
    app.add_middleware(MetricsMiddleware, instruments=app.state.instruments)
    app.include_router(router)
