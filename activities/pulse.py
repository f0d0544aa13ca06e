"""How a visit says that it lives, and writes down what it has done, in one place.

Both are the same thing to Temporal: the details of a heartbeat, of which the last one counts. So there is
one writer, and all that it writes is the whole journal. A sign of life goes through the SDK, which also
hears from its answer that the visit should stop, but tells nobody when it has arrived. What has to be
written before the code goes on is sent by a call of its own, and awaited; a lock keeps the two apart,
because an older sign of life that arrives later would erase it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from abeyance import wire
from abeyance.activities.checkpoint import Checkpoints
from abeyance.activities.given import Given, Kept, journal_in, kept_in
from abeyance.activities.record import encoded, written
from abeyance.storage.encryption import is_reference

BEAT_SECONDS: Final = 1.0
"""How often a visit says that it lives, and so how soon it hears that it should stop; more often where it
may not be silent for so long."""
THROTTLE_SECONDS: Final = 0.5
"""The least time between two signs of life that a worker sends: shorter, so that none is held back."""

_ON_THE_WAY: Final = 0.05
"""In seconds: how long a sign of life may be on its way. Nothing else is written meanwhile."""


class Pulse:
    """The heartbeats of one attempt at a visit. `journal` is what the next one carries."""

    def __init__(
        self, before: Given, info: activity.Info, checkpoints: Checkpoints, visit: str
    ) -> None:
        self.journal = journal_in(before, visit)
        if info.is_local:
            # A local activity has no heartbeat; none of its attempts can be lost either.
            self.journal = wire.Journal(visit=visit, failures=info.attempt - 1)
        self._kept = kept_in(before, visit)
        self._info = info
        self._checkpoints = checkpoints
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Say once in a while that the visit lives."""
        silence = self._info.heartbeat_timeout
        pause = min(BEAT_SECONDS, silence.total_seconds() / 4) if silence else BEAT_SECONDS

        async def beat() -> None:
            while True:
                await asyncio.sleep(pause)
                await self.beat()

        if self._info.is_local:
            yield
            return
        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    async def beat(self) -> None:
        """Say that the visit lives."""
        async with self._lock:
            self._say()
            await asyncio.sleep(_ON_THE_WAY)

    async def write(self, journal: wire.Journal) -> bool:
        """Put a journal where the next attempt finds it; it is there when this returns. True if the run
        wants the visit to stop; the SDK hears that too, from the next sign of life.

        Where the server or the storage cannot be reached this is tried until it can. Raises Superseded
        if the server no longer waits for this attempt.
        """
        with self._checkpoints.written():
            kept = self._kept
            if kept is None or kept.journal.steps != journal.steps:
                payload = await encoded(journal.model_dump(mode="json"))
                kept = Kept(payload=payload, journal=journal)
            details = [kept.payload]
            if (rest := kept.rest_of(journal)) is not None:
                details.append(await encoded(rest.model_dump(mode="json")))
            async with self._lock:
                is_to_stop = await written(details)
                self.journal, self._kept = journal, kept
        return is_to_stop

    async def write_last(self, journal: wire.Journal) -> bool:
        """The same, for an attempt that is about to fail.

        The SDK sends the last details that it knows of along with a failure, and so would put an older
        journal in the place of this one.
        """
        is_to_stop = await self.write(journal)
        self._say()
        return is_to_stop

    def _say(self) -> None:
        kept = self._kept or Kept(payload=Payload(), journal=self.journal)
        # What is kept in storage is sent as its reference: a sign of life waits for no storage.
        said: Any = RawValue(kept.payload)
        if not is_reference(kept.payload):
            said = kept.journal.model_dump(mode="json")
        rest = kept.rest_of(self.journal)
        activity.heartbeat(said, *([] if rest is None else [rest.model_dump(mode="json")]))
