"""Traces lead from a request to the API through the run to its nodes."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sample_graphs import gated
from stack import app_for, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import tracing
from abeyance.errors import SettingsError
from abeyance.temporal.connection import connect_temporal


def of(spans: tuple[ReadableSpan, ...], name: str) -> list[ReadableSpan]:
    found = [span for span in spans if span.name == name]
    assert found, f"{name} among {sorted(span.name for span in spans)}"
    return found


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_one_trace_leads_from_the_request_through_the_run_and_its_hand_overs_to_every_node(
    temporal: TemporalClient,
) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    own = await connect_temporal(temporal.service_client.config.target_host)
    site = Site(own, gated())
    caller = "0af7651916cd43dd8448eb211c80319c"
    short = {"continue_as_new_after": 6}
    body = {"graph": "gated", "input": {}, "run_id": "traced", "limits": short}
    async with site.worker(), served(app_for(site)) as api:
        from_caller = {"traceparent": f"00-{caller}-b7ad6b7169203331-01"}
        await api.http.post("/runs", json=body, headers=from_caller)
        await api.until("traced", "awaiting-input")
        for order in ("pause", "resume") * 3:
            await api.http.post(f"/runs/traced/{order}", json={})
        answer = {"response": {"approved": True}}
        answered = await api.http.post("/runs/traced/respond", json=answer)
        assert answered.status_code == 200, answered.text
        await api.until("traced", "completed")
        await eventually(
            lambda: "RunActivity:gated.after" in {s.name for s in kept.get_finished_spans()}
        )
        spans = kept.get_finished_spans()

    names = ("POST /runs", "StartWorkflow:gated", "RunWorkflow:gated", "HandleSignal:pause")
    nodes = ("RunActivity:gated.before", "RunActivity:gated.after")
    for name in (*names, *nodes):
        assert {trace_id(span) for span in of(spans, name)} == {caller}, name
    assert len(of(spans, "RunWorkflow:gated")) > 1
    (asked,) = of(spans, "POST /runs/{run_id}/respond")
    (carried_out,) = of(spans, "HandleUpdate:respond")
    assert trace_id(asked) != caller
    assert trace_id(carried_out) == caller
    assert trace_id(asked) in {f"{link.context.trace_id:032x}" for link in carried_out.links}


def test_an_exporter_that_is_not_installed_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    monkeypatch.setattr(tracing, "are_on", lambda: False)

    with pytest.raises(SettingsError, match=r"'pigeon'.*console.*abeyance\[otel\]"):
        tracing.begin("abeyance-test")


def test_the_protocol_of_traces_goes_before_that_of_all_signals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "semaphore")
    monkeypatch.setattr(tracing, "are_on", lambda: False)

    with pytest.raises(SettingsError, match="'semaphore'"):
        tracing.begin("abeyance-test")
