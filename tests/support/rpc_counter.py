"""A Temporal client that counts its calls to the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode, ServiceClient


class RpcCounter(ServiceClient):
    """Passes every call on to another client's connection."""

    def __init__(self, inner: ServiceClient) -> None:
        super().__init__(inner.config)
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.polls: Counter[str] = Counter()
        """How many long polls are open, by the id of the run."""
        self.denied: set[str] = set()
        """The calls that these credentials do not allow."""
        self.closed: Counter[str] = Counter()
        """How often a call's connection will close before the response, by the name of the call."""

    @property
    def worker_service_client(self) -> Any:
        return self.inner.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        self.inner.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self.inner.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: type[Any],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        self.calls[rpc] += 1
        if rpc in self.denied:
            raise RPCError("denied", RPCStatusCode.PERMISSION_DENIED, b"")
        if self.closed[rpc]:
            self.closed[rpc] -= 1
            raise RPCError("operation was canceled", RPCStatusCode.CANCELLED, b"")
        polled = req.execution.workflow_id if getattr(req, "wait_new_event", False) else None
        if polled is not None:
            self.polls[polled] += 1
        try:
            return await self.inner._rpc_call(
                rpc,
                req,
                resp_type,
                service=service,
                retry=retry,
                metadata=metadata,
                timeout=timeout,
            )
        finally:
            if polled is not None:
                self.polls[polled] -= 1


def counted(temporal: TemporalClient) -> tuple[TemporalClient, RpcCounter]:
    """Return a client over the same connection, and its counter."""
    counter = RpcCounter(temporal.service_client)
    client = TemporalClient(
        counter, namespace=temporal.namespace, data_converter=temporal.data_converter
    )
    return client, counter
