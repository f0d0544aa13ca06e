"""How a visit says that it lives, and writes down what it has done, in one place.

Both are the same thing to Temporal: the details of a heartbeat, of which the last one counts. So there is
one writer, and all that it writes is the whole journal. A sign of life goes through the SDK, which also
hears from its answer that the visit should stop, but tells nobody when it has arrived. What has to be
written before the code goes on is sent by a call of its own, and awaited; a lock keeps the two apart,
because an older sign of life that arrives later would erase it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.activities.checkpoint import Checkpoints

BEAT_SECONDS: Final = 1.0
"""How often a visit says that it lives, and so how soon it hears that it should stop."""
THROTTLE_SECONDS: Final = 0.5
"""The least time between two signs of life that a worker sends: shorter, so that none is held back."""

_ON_THE_WAY: Final = 0.05
"""In seconds: how long a sign of life may be on its way. Nothing else is written meanwhile."""
_RPC_TIMEOUT: Final = timedelta(seconds=5)
_LONGEST_BACKOFF: Final = 2.0

_PASSING: Final = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)

_logger = logging.getLogger("abeyance.node")


class Superseded(BaseException):
    """The server has given the visit to somebody else: this attempt must do nothing more."""


class Pulse:
    """The heartbeats of one attempt. `journal` is what the next one carries."""

    def __init__(
        self, journal: wire.Journal, info: activity.Info, checkpoints: Checkpoints
    ) -> None:
        self.journal = journal
        self._info = info
        self._checkpoints = checkpoints
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Say once in a while that the visit lives."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_SECONDS)
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
            activity.heartbeat(self.journal.model_dump(mode="json"))
            await asyncio.sleep(_ON_THE_WAY)

    async def write(self, journal: wire.Journal) -> None:
        """Put a journal where the next attempt finds it; it is there when this returns.

        Where the server cannot be reached this is tried until it can. Raises Superseded if the server
        no longer waits for this attempt.
        """
        with self._checkpoints.written():
            async with self._lock:
                await self._write(journal)

    async def _write(self, journal: wire.Journal) -> None:
        pause = 0.1
        while not await self._sent(journal):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_BACKOFF)
        self.journal = journal

    async def write_last(self, journal: wire.Journal) -> None:
        """The same, for an attempt that is about to fail.

        The SDK sends the last details that it knows of along with a failure, and so would put an older
        journal in the place of this one.
        """
        await self.write(journal)
        activity.heartbeat(journal.model_dump(mode="json"))

    async def _sent(self, journal: wire.Journal) -> bool:
        handle = activity.client().get_async_activity_handle(task_token=self._info.task_token)
        try:
            await handle.heartbeat(journal.model_dump(mode="json"), rpc_timeout=_RPC_TIMEOUT)
        except AsyncActivityCancelledError:
            # It was written; that the visit should stop, the next sign of life hears as well.
            return True
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise Superseded from error
            if error.status not in _PASSING:
                raise
            _logger.warning(
                "activity=%s | a step could not be written down yet: %s",
                self._info.activity_id,
                error.message,
            )
            return False
        return True
