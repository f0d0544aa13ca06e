"""Repeating a call to Temporal while that may help."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from abeyance.errors import SettingsError, Unavailable
from abeyance.temporal.retry import NotFound, RetryableError, retry_until


def rpc_error(status: RPCStatusCode, message: str = "it failed") -> RPCError:
    return RPCError(message, status, b"")


class Server:
    """Fails with the given errors, one call after another, and answers from then on."""

    def __init__(self, *errors: BaseException) -> None:
        self.calls = 0
        self._errors = iter(errors)

    async def __call__(self) -> str:
        self.calls += 1
        error = next(self._errors, None)
        if error is not None:
            raise error
        return "answer"


@pytest.mark.parametrize(
    "error",
    [
        rpc_error(RPCStatusCode.ABORTED),
        rpc_error(RPCStatusCode.CANCELLED),
        rpc_error(RPCStatusCode.DEADLINE_EXCEEDED),
        rpc_error(RPCStatusCode.FAILED_PRECONDITION),
        rpc_error(RPCStatusCode.INTERNAL),
        rpc_error(RPCStatusCode.RESOURCE_EXHAUSTED),
        rpc_error(RPCStatusCode.UNAVAILABLE),
        rpc_error(RPCStatusCode.UNKNOWN),
        RetryableError("the run is being handed over"),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
    ],
)
async def test_a_temporary_error_is_retried(error: BaseException) -> None:
    server = Server(error, error)

    assert await retry_until("r", server, seconds=5) == "answer"
    assert server.calls == 3


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (rpc_error(RPCStatusCode.NOT_FOUND, "workflow not found"), NotFound, ""),
        (
            rpc_error(RPCStatusCode.NOT_FOUND, "Namespace shop is not found."),
            SettingsError,
            "TEMPORAL_NAMESPACE",
        ),
        (
            rpc_error(RPCStatusCode.INVALID_ARGUMENT, "no mapping for search attribute X"),
            SettingsError,
            "run `abeyance setup`",
        ),
        (rpc_error(RPCStatusCode.INVALID_ARGUMENT, "odd"), RPCError, "odd"),
        (
            rpc_error(RPCStatusCode.PERMISSION_DENIED, "not yours"),
            SettingsError,
            "PERMISSION_DENIED: not yours",
        ),
        (rpc_error(RPCStatusCode.UNAUTHENTICATED, "who?"), SettingsError, "credentials"),
        (rpc_error(RPCStatusCode.UNIMPLEMENTED, "unknown method"), SettingsError, "version"),
        (ValueError("ours"), ValueError, "ours"),
    ],
)
async def test_a_permanent_error_is_not_retried(
    error: BaseException, raised: type[BaseException], told: str
) -> None:
    server = Server(error)

    with pytest.raises(raised) as caught:
        await retry_until("r", server, seconds=5)
    assert told in str(caught.value)
    assert server.calls == 1


async def test_an_exhausted_retry_raises_unavailable_with_the_last_error() -> None:
    server = Server(*[rpc_error(RPCStatusCode.UNAVAILABLE, "no connection")] * 100)

    with pytest.raises(
        Unavailable, match=r"the run 'r' did not answer within 0\.5 s.*no connection"
    ):
        await retry_until("the run 'r'", server, seconds=0.5)
    assert 2 <= server.calls < 10


async def test_an_exhausted_retry_names_a_rate_limit() -> None:
    server = Server(*[rpc_error(RPCStatusCode.RESOURCE_EXHAUSTED, "namespace rate limit")] * 100)

    with pytest.raises(Unavailable, match=r"limits the rate of calls \(.*namespace rate limit"):
        await retry_until("Temporal's list of runs", server, seconds=0.1)


async def test_a_call_that_hangs_is_given_up() -> None:
    ended: list[str] = []

    async def hang() -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("hang")

    with pytest.raises(Unavailable, match="no answer"):
        await retry_until("r", hang, seconds=0.02)
    assert ended == ["hang"]


async def test_a_call_leaves_nothing_behind_for_the_event_loop_to_close() -> None:
    before = asyncio.all_tasks()
    await retry_until("r", Server(), seconds=5)
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before
