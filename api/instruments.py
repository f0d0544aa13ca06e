"""What an API measures of the operations that it is asked for, as Prometheus reads it."""

from __future__ import annotations

from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from abeyance import metrics

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
