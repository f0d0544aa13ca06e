"""What a run has done outside when it leaves its conversation."""

from __future__ import annotations

from temporalio import activity

from abeyance import wire
from abeyance.client import Client


class ConversationActivities:
    """The activities of runs that belong to conversations."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=wire.RELEASE_ACTIVITY)
    async def release(self, order: wire.Release) -> None:
        """Give the place of a run in its conversation back."""
        await self._client.conversations.release(order)


class EvictionActivities:
    """The activities of the janitor."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=wire.EVICT_ACTIVITY)
    async def evict(self, order: wire.EvictInactive) -> int:
        """Evict the runs that have been inactive for so long, and return how many."""
        return len(await self._client.runs.evict(inactive_for=order.inactive_for, actor="janitor"))
