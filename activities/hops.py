"""A hop: fused nodes, one after another in the activity of the first.

What is done is recorded by an awaited heartbeat before the next node begins, so a worker that dies loses
at most the node that ran. When the run wants something, the activity is cancelled. That says no more, so
the run is asked: the node that runs comes to its end, or is stopped at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, TemporalError

from abeyance.activities.heartbeat import Heartbeater
from abeyance.core.effects import VisitInput
from abeyance.core.fusing import HOP_SECONDS
from abeyance.core.hops import Walk
from abeyance.core.outcome import Ran, VisitOutcome
from abeyance.errors import FailureCode
from abeyance.storage.converter import UNREADABLE
from abeyance.temporal.workarounds.heartbeat import Superseded

_ASKED_EVERY: Final = 1.0
"""In seconds: how often the run is asked whether a node that comes to its end is to stop at once."""
_ANSWERED_WITHIN: Final = timedelta(seconds=5)
_logger = logging.getLogger("abeyance.node")


class LeftHop(BaseException):
    """The code wants something of the run that it can get only in an activity of its own."""


class Hop:
    """The visits that one activity runs: one, or those of fused nodes that begin with `first`."""

    def __init__(self, first: VisitInput, heartbeater: Heartbeater) -> None:
        self._first = first
        self._heartbeater = heartbeater
        self._done = list(heartbeater.journal.done)
        self._is_leaving = False
        self._is_stopped = False

    @property
    def is_inside(self) -> bool:
        """Whether the run does not know yet that the visit runs."""
        return bool(self._done)

    @property
    def attempt(self) -> int:
        """The number of the visit's attempt, of those that Temporal has made since it could begin."""
        return activity.info().attempt - (self._done[-1].attempt - 1 if self._done else 0)

    @property
    def is_cancelled(self) -> bool:
        """Whether the code is to stop."""
        if self._first.hop is None or not run_asked_to_stop():
            return activity.is_cancelled()
        return self._is_stopped

    @property
    def asked_to_stop(self) -> bool:
        """Whether the run wants the code to stop."""
        return run_asked_to_stop() if self._first.hop is None else self._is_stopped

    async def run(self, outcome_of: Callable[[VisitInput], Awaitable[VisitOutcome]]) -> list[Ran]:
        """Run the visits, and return them in their order."""
        if self._first.hop is None:
            await self._visit(self._first, outcome_of)
            return self._done
        walking = asyncio.create_task(self._walk(outcome_of))
        watching: asyncio.Task[None] | None = None
        while not walking.done():
            try:
                await asyncio.wait({walking})
            except asyncio.CancelledError:
                if not run_asked_to_stop():
                    walking.cancel()
                elif watching is None:
                    self._is_leaving = True
                    watching = asyncio.create_task(self._watch(walking))
        if watching is not None:
            watching.cancel()
        walking.result()
        return self._done

    async def _walk(self, outcome_of: Callable[[VisitInput], Awaitable[VisitOutcome]]) -> None:
        until = time.monotonic() + HOP_SECONDS
        walk = Walk(self._first)
        visit: VisitInput | None = self._first
        for ran in self._done:
            visit = walk.after(ran)
        while visit is not None:
            await self._visit(visit, outcome_of)
            if self._is_leaving or time.monotonic() > until:
                return
            visit = walk.after(self._done[-1])
            if visit is not None and await self._record():
                return

    async def _visit(
        self, visit: VisitInput, outcome_of: Callable[[VisitInput], Awaitable[VisitOutcome]]
    ) -> None:
        began = datetime.now(UTC)
        outcome = await outcome_of(visit)
        ended = datetime.now(UTC)
        number = activity.info().attempt
        self._done.append(
            Ran(visit=visit.address, outcome=outcome, began=began, ended=ended, attempt=number)
        )

    async def _record(self) -> bool:
        """Record what is done for the next attempt. Return whether the hop is to end."""
        clean = {"done": tuple(self._done), "steps": {}, "excused": 0, "blocked_inside": False}
        try:
            return await self._heartbeater.write(self._heartbeater.journal.model_copy(update=clean))
        except asyncio.CancelledError:
            return True
        except Superseded as error:
            raise taken_over(self._first) from error

    async def _watch(self, walking: asyncio.Task[None]) -> None:
        """Stop the node that runs as soon as the run wants that."""
        info = activity.info()
        run = activity.client().get_workflow_handle(
            info.workflow_id or "", run_id=info.workflow_run_id
        )
        is_to_stop = False
        while not is_to_stop:
            try:
                is_to_stop = await run.query(
                    "is_stopping",
                    self._first.address,
                    result_type=bool,
                    rpc_timeout=_ANSWERED_WITHIN,
                )
            except (TemporalError, *UNREADABLE):
                # Who cannot be asked may want it.
                is_to_stop = True
            if not is_to_stop:
                await asyncio.sleep(_ASKED_EVERY)
        self._is_stopped = True
        walking.cancel()


def taken_over(visit: VisitInput) -> ApplicationError:
    """Return the error of an attempt that the server no longer waits for. Nobody waits for it."""
    message = "the visit was taken over by another worker"
    _logger.warning("run=%s address=%s | %s", visit.run_id, visit.address, message)
    return ApplicationError(
        message, type=FailureCode.NODE_FAILED, category=ApplicationErrorCategory.BENIGN
    )


def run_asked_to_stop() -> bool:
    """Return whether the run has cancelled the activity."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
