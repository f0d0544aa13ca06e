"""Retry calls to Temporal, with a pause that doubles, while the next attempt may succeed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateTimeout
from temporalio.service import RPCError, RPCStatusCode

from abeyance.errors import SettingsError, Unavailable

T = TypeVar("T")

LOOKED_AHEAD: Final = "abeyance: something has come that the run has not been told of; ask it again"
"""What a query fails with that came to a worker before the task that has to be done first."""

_AGAIN: Final = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.FAILED_PRECONDITION,
        # A connection that was reset, and what a server says that trips over a store that is busy.
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        # What a call gets whose server was killed under it.
        RPCStatusCode.UNKNOWN,
    }
)

_UNWELCOME: Final = frozenset(
    {
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
    }
)


class RetryableError(Exception):
    """The call was not carried out, for a reason that passes."""


class NotFound(Exception):
    """Temporal has no open run of that id."""


async def attempts(first: float = 0.02, longest: float = 0.5) -> AsyncIterator[float]:
    """Yield for each attempt at something, for ever, how many seconds it will be to the next."""
    pause = first
    while True:
        yield pause
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)


async def retry_until(run_id: str, call: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Make a call, again and again for `seconds`, until it succeeds or fails for good.

    The call has to have the effect of one, however often it is made. It raises Again to be made again.
    Raises NotFound, Unavailable when the time is over, and whatever else the call raises.
    """
    last: BaseException | None = None
    try:
        async with asyncio.timeout(seconds):
            async for _ in attempts():
                try:
                    return await call()
                except UpdateTimeout as error:
                    # The SDK turns a cancellation of ours, such as the end of our time, into this.
                    if (task := asyncio.current_task()) is not None and task.cancelling():
                        raise asyncio.CancelledError from error
                    last = error
                except RetryableError as error:
                    last = error
                except RPCError as error:
                    last = is_retryable(error)
    except TimeoutError as error:
        raise Unavailable(
            f"the run {run_id!r} did not answer within {seconds:g} s: Temporal cannot be reached, or "
            f"no worker is up ({last or 'no answer'}). It may still take effect; the same call may be "
            "repeated."
        ) from error
    raise AssertionError("attempts have no end")


def is_retryable(error: RPCError) -> RPCError:
    """The error of a call that may go better the next time.

    Raises NotFound, SettingsError where only the operator can help, and else the error itself.
    """
    if error.status == RPCStatusCode.NOT_FOUND and "namespace" in error.message.lower():
        raise SettingsError(
            f"Temporal has no such namespace: create it, or set TEMPORAL_NAMESPACE ({error.message})"
        ) from error
    if error.status == RPCStatusCode.NOT_FOUND:
        raise NotFound from error
    if "search attribute" in error.message:
        raise SettingsError(
            "Temporal does not know our search attributes: run `abeyance setup` once for this "
            f"namespace ({error.message})"
        ) from error
    if error.status in _UNWELCOME:
        raise SettingsError(
            f"Temporal does not let us do this ({error.status.name}: {error.message}): see to the "
            "credentials and rights in its environment configuration, and to its version"
        ) from error
    if error.status not in _AGAIN:
        raise error
    return error


R = TypeVar("R")

HEDGE_INTERVAL: Final = 0.3
"""Seconds until it is asked again. A worker that has the run answers in a tenth of that."""
MAX_HEDGED: Final = 4


async def hedged(ask: Callable[[], Awaitable[R]]) -> R:
    """The first thing that a worker says, and be it an error; what the server says only if all fail.

    `ask` has to be free of effects: it is called up to `AT_MOST` times, and what is still under way when
    there is an answer is cancelled.
    """
    asked: list[asyncio.Future[R]] = []
    try:
        while True:
            asked.append(asyncio.ensure_future(ask()))
            settled = await _settled(asked, HEDGE_INTERVAL if len(asked) < MAX_HEDGED else None)
            if settled is not None:
                return settled.result()
    finally:
        for each in asked:
            each.cancel()


async def _settled(
    asked: list[asyncio.Future[R]], seconds: float | None
) -> asyncio.Future[R] | None:
    """One that a worker answered, or the last if none can be; None if neither is known in time."""
    waiting = {each for each in asked if not each.done()}
    while waiting:
        done, waiting = await asyncio.wait(
            waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            return None
        for each in done:
            if not isinstance(each.exception(), RPCError):
                return each
    return asked[-1]
