"""Retry calls to Temporal, with a pause that doubles, while the next attempt may succeed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateTimeout
from temporalio.service import RPCError, RPCStatusCode

from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.temporal.workarounds.calls import raise_if_cancelled

T = TypeVar("T")

TEMPORARY: Final = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.FAILED_PRECONDITION,
        # A reset connection, or a busy store behind the server.
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        # The server was killed during the call.
        RPCStatusCode.UNKNOWN,
    }
)
"""The codes of a call that may succeed if it is repeated."""

_PERMANENT: Final = frozenset(
    {
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
    }
)


class RetryableError(Exception):
    """The call failed for a temporary reason and had no effect."""


class NotFound(Exception):
    """Temporal has no open run with this id."""


class attempts(AsyncIterator[float]):  # noqa: N801 used as a function
    """Attempts without end, each as the seconds until the next one, with a sleep between them.

    Not a generator: asyncio would start a task at every call, to close a generator left before its end.
    """

    def __init__(self, first: float = 0.02, longest: float = 0.5) -> None:
        self._pause, self._longest = first, longest
        self._is_first = True

    async def __anext__(self) -> float:
        if self._is_first:
            self._is_first = False
            return self._pause
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, self._longest)
        return self._pause


async def retry_until(about: str, call: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Repeat a call until it succeeds, fails permanently, or `seconds` have passed.

    `about` names the called thing, as in "the run 'r'". The call must be idempotent, and raises
    RetryableError to be repeated. Raises NotFound, Unavailable at the timeout, and every other error of
    the call.
    """
    last: BaseException | None = None
    try:
        async with asyncio.timeout(seconds):
            async for _ in attempts():
                try:
                    return await call()
                except UpdateTimeout as error:
                    raise_if_cancelled(error)
                    last = error
                except RetryableError as error:
                    last = error
                except RPCError as error:
                    last = temporary_or_raise(error)
    except TimeoutError as error:
        why = "Temporal cannot be reached, or no worker is up that can read it"
        if isinstance(last, RPCError) and last.status == RPCStatusCode.RESOURCE_EXHAUSTED:
            why = "Temporal limits the rate of calls"
        raise Unavailable(
            f"{about} did not answer within {seconds:g} s: {why} ({last or 'no answer'}). The call may "
            "still take effect, and may be repeated."
        ) from error
    raise AssertionError("attempts have no end")


@contextmanager
def refusals(about: str) -> Iterator[None]:
    """Raise the Refusal `invalid_body` if Temporal says that an argument of the call is invalid."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        raise Refusal(
            Code.INVALID_BODY, f"Temporal refuses {about}: {error.message}. Shorten what it names."
        ) from error


def no_namespace(error: RPCError) -> str | None:
    """Return the remedy for a missing namespace; None if the error is another one."""
    if error.status != RPCStatusCode.NOT_FOUND or "namespace" not in error.message.lower():
        return None
    return (
        "Temporal has no such namespace: create it (`temporal operator namespace create --retention 30d "
        f"--namespace NAME`), or set TEMPORAL_NAMESPACE ({error.message})"
    )


def temporary_or_raise(error: RPCError) -> RPCError:
    """Return a temporary error.

    Raises NotFound, SettingsError if only an operator can help, and every other error itself.
    """
    if (text := no_namespace(error)) is not None:
        raise SettingsError(text) from error
    if error.status == RPCStatusCode.NOT_FOUND:
        raise NotFound from error
    if "search attribute" in error.message:
        raise SettingsError(
            "the search attributes are not registered: run `abeyance setup` once for this "
            f"namespace ({error.message})"
        ) from error
    if error.status in _PERMANENT:
        raise SettingsError(
            f"Temporal denied the call ({error.status.name}: {error.message}): check the credentials in "
            "its environment configuration, their permissions, and the server version"
        ) from error
    if error.status not in TEMPORARY:
        raise error
    return error
