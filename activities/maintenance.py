"""Activities beside those of nodes: conversations, the janitor, the archiver, erasures, migrations."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio import activity
from temporalio.exceptions import ApplicationError

from abeyance import names, wire
from abeyance.authoring.graph import Graph
from abeyance.client import Client
from abeyance.errors import Refusal, SettingsError
from abeyance.runtime import graph_today


class ConversationActivities:
    """Activities of conversations."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=names.RELEASE_ACTIVITY)
    async def release(self, order: wire.Release) -> None:
        """Release the claim of a run on its conversation."""
        await self._client.conversations.release(order)


class EvictionActivities:
    """Activities of the janitor."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=names.EVICT_ACTIVITY)
    async def evict(self, order: wire.EvictInactive) -> int:
        """Evict inactive runs, and return their number."""
        return len(await self._client.runs.evict(inactive_for=order.inactive_for, actor="janitor"))


class AuditActivities:
    """Activities of the archiver and of erasures."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=names.ARCHIVE_ACTIVITY)
    async def archive(self) -> int:
        """Archive the runs that are due, and return how many audits were written."""
        try:
            return await self._client.archiver.round(activity.heartbeat)
        except SettingsError as error:
            raise ApplicationError(str(error), non_retryable=True) from error

    @activity.defn(name=names.ERASE_ACTIVITY)
    async def erase(self, order: wire.Erase) -> str:
        """Erase a run, and return its tombstone."""
        try:
            return await self._client.erasures.perform(order)
        except Refusal as refusal:
            raise ApplicationError(
                refusal.message, type=refusal.code, non_retryable=True
            ) from refusal


class GraphActivities:
    """Activities of migrations, with the graphs of a worker."""

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self._graphs = graphs

    @activity.defn(name=names.READ_GRAPH_ACTIVITY)
    async def read(self, order: wire.ReadGraph) -> wire.GraphToday:
        """Return today's graph, held against the values of a run."""
        graph = self._graphs.get(order.graph)
        if graph is None:
            message = f"this worker has no graph {order.graph!r}"
            raise ApplicationError(message, type=names.NO_GRAPH)
        return graph_today.read_graph(graph, order)
