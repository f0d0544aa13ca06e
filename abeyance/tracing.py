"""OpenTelemetry traces, one per run: from its start request through its workflow to its nodes.

They are off unless `OTEL_TRACES_EXPORTER` is set. A later request, such as an answer, has its own trace;
the span in which the run handles it belongs to the run's trace and links to the trace of the request.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from abeyance.errors import SettingsError

_EXPORTERS: Final = "opentelemetry_traces_exporter"
_LAST_SECONDS: Final = 3.0
_OVER: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def begin(service: str) -> None:
    """Start to export traces as `OTEL_TRACES_EXPORTER` says.

    `service` is the default service name. Raises SettingsError if the exporter is not installed.
    """
    names = _names()
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
    atexit.register(_flush, provider)


def check() -> list[str]:
    """Return the exporters of `OTEL_TRACES_EXPORTER`. Raises SettingsError if one is not installed."""
    return [_entry(name).name for name in _names()]


def are_on() -> bool:
    """Return True if this process exports spans."""
    return isinstance(trace.get_tracer_provider(), TracerProvider)


def _flush(provider: TracerProvider) -> None:
    """Export the remaining spans, for a few seconds at most."""
    flushing = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
    flushing.start()
    flushing.join(_LAST_SECONDS)


def _names() -> list[str]:
    variable = os.environ.get("OTEL_TRACES_EXPORTER", "")
    return [name for part in variable.split(",") if (name := part.strip()) not in {"", "none"}]


def _exporter(name: str) -> SpanExporter:
    exporter: SpanExporter = _entry(name).load()()
    return exporter


def _entry(name: str) -> EntryPoint:
    usual = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", usual)
    exporter = _OVER.get(protocol, protocol) if name == "otlp" else name
    for entry in entry_points(group=_EXPORTERS, name=exporter):
        return entry
    installed = sorted({entry.name for entry in entry_points(group=_EXPORTERS)})
    raise SettingsError(
        f"OTEL_TRACES_EXPORTER: the exporter {exporter!r} is not installed, only {', '.join(installed)}: "
        "for otlp install abeyance[otel]"
    )


_FORM: Final = "%(asctime)s %(levelname)s %(name)s | %(message)s"
_CONTINUED: Final = "\n    "


class _WithoutForgery(logging.Formatter):
    """Prevents log injection.

    Records contain text of others, such as exceptions: lines after the first are indented, and control
    and invisible characters are escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).split("\n")
        return _CONTINUED.join(map(_visible, lines))


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line
    )


class _WithoutMemoSize(logging.Filter):
    """Drops the SDK's warning about memos over 2 KB: a run's memo has its own, larger budget."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "TMPRL1103" not in record.getMessage()


def log_to_stderr() -> None:
    """Log to stderr, without useless warnings of the Temporal SDK."""
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutForgery(_FORM))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # httpx logs each address with its query, and the query of a webhook may have a secret.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Each new connection is three lines.
    logging.getLogger("slack_sdk").setLevel(logging.WARNING)
    # The caller logs the failure, in one line.
    logging.getLogger("slack_sdk.web").setLevel(logging.CRITICAL)
    for name in (
        "temporalio",
        "temporalio.worker",
        "temporalio.client",
        "temporalio.worker._workflow",
    ):
        logging.getLogger(name).addFilter(_WithoutMemoSize())
