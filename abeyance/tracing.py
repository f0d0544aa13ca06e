"""Traces: one for each run, from the request that started it through its workflow to its nodes.

They are OpenTelemetry's and off unless its own environment says where they go
(`OTEL_TRACES_EXPORTER`). A later request, such as an answer, has a trace of its own: the span of what the
run did with it belongs to the run's trace and links to the request's.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from temporalio import workflow
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor
from temporalio.worker import (
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from abeyance.errors import SettingsError

_EXPORTERS: Final = "opentelemetry_traces_exporter"
_LAST_SECONDS: Final = 3.0
_OVER: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def begin(service: str) -> None:
    """Send this process's traces where `OTEL_TRACES_EXPORTER` says; without it there are none.

    `service` is its name unless the environment has another. Raises SettingsError if what sends them is
    not installed.
    """
    told = os.environ.get("OTEL_TRACES_EXPORTER", "")
    names = [name for part in told.split(",") if (name := part.strip()) not in {"", "none"}]
    if not names or are_on():
        return
    is_named = "OTEL_SERVICE_NAME" in os.environ or f"{SERVICE_NAME}=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(
        resource=Resource.create({} if is_named else {SERVICE_NAME: service}),
        shutdown_on_exit=False,
    )
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)
    atexit.register(_give_away, provider)


def are_on() -> bool:
    """Whether spans of this process go anywhere."""
    return isinstance(trace.get_tracer_provider(), TracerProvider)


def _give_away(provider: TracerProvider) -> None:
    """Send what has not been sent, for as long as whoever stops this process has patience."""
    giving = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
    giving.start()
    giving.join(_LAST_SECONDS)


def _exporter(name: str) -> SpanExporter:
    usual = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", usual)
    wanted = _OVER.get(protocol, protocol) if name == "otlp" else name
    for found in entry_points(group=_EXPORTERS, name=wanted):
        made: SpanExporter = found.load()()
        return made
    known = sorted({found.name for found in entry_points(group=_EXPORTERS)})
    raise SettingsError(
        f"OTEL_TRACES_EXPORTER: no exporter {wanted!r} is installed, only {', '.join(known)}; for otlp "
        "install abeyance[otel]"
    )


class Tracing(TracingInterceptor):
    """Carries traces over Temporal. The client of a worker needs it as well as that of an API."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's own word
    ) -> type[TracingWorkflowInboundInterceptor]:
        super().workflow_interceptor_class(input)
        return _Inbound


class _Inbound(TracingWorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Led(outbound, self.header_key))


class _Led(WorkflowOutboundInterceptor):
    """Puts what a run starts before its first line into the run's trace.

    The SDK knows the trace only while one of its handlers is under way, and `AgentRun` starts its first
    nodes when it is made.
    """

    def __init__(self, next: WorkflowOutboundInterceptor, header: str) -> None:  # noqa: A002
        super().__init__(next)
        self._header = header

    def start_activity(
        self,
        input: StartActivityInput,  # noqa: A002
    ) -> workflow.ActivityHandle[Any]:
        self._lead(input)
        return super().start_activity(input)

    def start_local_activity(
        self,
        input: StartLocalActivityInput,  # noqa: A002
    ) -> workflow.ActivityHandle[Any]:
        self._lead(input)
        return super().start_local_activity(input)

    def _lead(self, started: StartActivityInput | StartLocalActivityInput) -> None:
        found = workflow.info().headers.get(self._header)
        if found is not None and self._header not in started.headers:
            started.headers = {**started.headers, self._header: found}


_FORM: Final = "%(asctime)s %(levelname)s %(name)s | %(message)s"
_CONTINUED: Final = "\n    "


class _WithoutForgery(logging.Formatter):
    """Lets only a record begin a line.

    Much of what is told was written by somebody else, such as the text of an exception: what follows its
    line breaks is indented, and what a terminal would obey, or nobody would see, is written as its code.
    """

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).split("\n")
        return _CONTINUED.join(map(_visible, lines))


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )


class _WithoutMemoSize(logging.Filter):
    """Drops the SDK's advice that a memo is over 2 KB: ours has a budget of its own, far below the
    server's bound, and is the run's event log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return "TMPRL1103" not in record.getMessage()


def log_to_stderr() -> None:
    """Write down what this process tells, without what the Temporal SDK tells for nothing."""
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutForgery(_FORM))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in (
        "temporalio",
        "temporalio.worker",
        "temporalio.client",
        "temporalio.worker._workflow",
    ):
        logging.getLogger(name).addFilter(_WithoutMemoSize())
