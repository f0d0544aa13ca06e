"""A collector gets the traces of a whole stack, over OTLP from all its processes."""

from __future__ import annotations

import gzip
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from answering import Answering, answering
from dev_stack import Place
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

pytestmark = pytest.mark.slow

LEAVES = """\
from opentelemetry import trace
from abeyance import tracing
from abeyance.cli.errors import leave

tracing.begin("leaving")
with trace.get_tracer("test").start_as_current_span("the last"):
    pass
print("leaves", flush=True)
leave(0)
"""
LATER = "60000"
"""In milliseconds: a process keeps its spans this long, unless it is told to stop."""


class Collector:
    """A server that takes the traces that are sent to it, and keeps them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: set[str] = set()
        self.spans: list[tuple[str, Span]] = []

    def take(self, path: str, body: bytes) -> None:
        """Read one batch; keep each span with the name of the service that made it."""
        self.paths.add(path)
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            of = {entry.key: entry.value.string_value for entry in batch.resource.attributes}
            for scope in batch.scope_spans:
                self.spans += [(of["service.name"], span) for span in scope.spans]

    def traces(self, service: str, name: str) -> set[bytes]:
        """Return the traces in which a service has a span of this name."""
        return {span.trace_id for of, span in self.spans if (of, span.name) == (service, name)}


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(Answering):
        def post(self) -> None:
            body = self.body()
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.answer(200)

    with answering(Handler) as url:
        collector = Collector(url)
        yield collector


def traced(place: Place, url: str) -> Place:
    place.environment = {
        **{name: text for name, text in place.environment.items() if not name.startswith("OTEL_")},
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_BSP_SCHEDULE_DELAY": LATER,
    }
    return place


def test_a_collector_gets_the_whole_trace_of_a_run_by_the_time_that_the_stack_has_stopped(
    place: Place,
) -> None:
    caller = "0af7651916cd43dd8448eb211c80319c"
    with collecting() as collector, traced(place, collector.url).stack("--in-memory") as stack:
        body = {"graph": "sum", "input": {"amount": 2}, "run_id": "traced"}
        parent = {"traceparent": f"00-{caller}-b7ad6b7169203331-01"}
        assert httpx.post(f"{stack.api}/runs", json=body, headers=parent).status_code == 201
        stack.view("traced", "awaiting-input")
        assert stack.answer("traced", 3).status_code == 200
        stack.view("traced", "completed")
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(timeout=10) == 0

    assert collector.paths == {"/v1/traces"}
    trace = bytes.fromhex(caller)
    assert collector.traces("abeyance-api", "POST /runs") == {trace}
    for name in ("RunWorkflow:sum", "RunActivity:sum.double", "RunActivity:sum.add"):
        assert collector.traces("abeyance-worker", name) == {trace}, name


@pytest.mark.parametrize("listens", [False, True], ids=["is away", "never answers"])
def test_a_collector_that(place: Place, listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        if not listens:
            mute.close()
        with traced(place, url).stack("--in-memory") as stack:
            stack.start("untraced")
            assert stack.answer("untraced", 3).status_code == 200
            stack.view("untraced", "completed")
            told_at = time.monotonic()
            stack.process.send_signal(signal.SIGTERM)

            assert stack.process.wait(timeout=15) == 0
            assert time.monotonic() - told_at < 10
            # On a slow machine, the stack says that it is still starting.
            said = stack.errors.read_text().splitlines()
            assert [each for each in said if "still starting" not in each] == []


def test_a_process_that_leaves_gives_up_on_a_collector_that_never_answers(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        traced(place, f"http://127.0.0.1:{mute.getsockname()[1]}")
        with subprocess.Popen(
            [sys.executable, "-c", LEAVES],
            cwd=place.folder,
            env=place.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "leaves\n"
                # The exporter alone would go on for ten seconds, after which a container is killed.
                assert process.wait(timeout=8) == 0
            finally:
                process.kill()
