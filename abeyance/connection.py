"""Reaching Temporal, as its own environment configuration says."""

from __future__ import annotations

from temporalio.client import Client as TemporalClient
from temporalio.envconfig import ClientConfig
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from abeyance.converter import data_converter
from abeyance.errors import Unavailable


async def connect_temporal(
    address: str | None = None,
    *,
    namespace: str | None = None,
    metrics_address: str | None = None,
) -> TemporalClient:
    """A connection to Temporal, as its environment configuration says.

    `address` (host:port) and `namespace` go before the environment. Raises Unavailable if nothing
    answers there.
    """
    config = ClientConfig.load_client_connect_config()
    if address is not None:
        config["target_host"] = address
    if namespace is not None:
        config["namespace"] = namespace
    target = config.setdefault("target_host", "127.0.0.1:7233")
    runtime = None
    if metrics_address is not None:
        metrics = PrometheusConfig(bind_address=metrics_address, durations_as_seconds=True)
        runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics))
    try:
        return await TemporalClient.connect(
            **config, data_converter=data_converter(), runtime=runtime
        )
    except RuntimeError as error:
        raise Unavailable(
            f"Temporal does not answer at {target}: start it, or set TEMPORAL_ADDRESS ({error})"
        ) from error
