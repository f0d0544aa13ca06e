"""Activities of the conversation and janitor workflows."""

from __future__ import annotations

from temporalio import activity

from abeyance import wire
from abeyance.client import Client


class ConversationActivities:
    """Activities of conversations."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=wire.RELEASE_ACTIVITY)
    async def release(self, order: wire.Release) -> None:
        """Release the claim of a run on its conversation."""
        await self._client.conversations.release(order)


class EvictionActivities:
    """Activities of the janitor."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=wire.EVICT_ACTIVITY)
    async def evict(self, order: wire.EvictInactive) -> int:
        """Evict inactive runs, and return their number."""
        return len(await self._client.runs.evict(inactive_for=order.inactive_for, actor="janitor"))
