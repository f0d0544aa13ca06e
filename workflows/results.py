"""What an `AgentRun` says at its end, and when it turns something away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import projections, wire
    from abeyance.core.json import size
    from abeyance.core.state import RunState
    from abeyance.errors import FailureCode, Refusal
    from abeyance.workflows import visibility

_CLOSING_MEMO_BYTES: Final = 12_000
_CLOSING_KEYS: Final = 20


def record_of(state: RunState, start: wire.StartRun) -> wire.ClosingRecord:
    """What a finished run leaves behind. Raises what closes it as failed or cancelled."""
    record = projections.closing_record(state, start)
    ending = state.ending
    if ending is not None and ending.native:
        # Temporal gives a cancelled workflow no result: what it leaves behind is in the memo.
        whole = record.model_dump(mode="json")
        if size(whole) > _CLOSING_MEMO_BYTES:
            view = {**whole["view"], "degraded": True}
            keys = dict([*whole["keys"].items()][-_CLOSING_KEYS:])
            bare: dict[str, Any] = {
                "values": {},
                "interrupts": [],
                "transcripts": None,
                "keys": keys,
            }
            whole = {**whole, **bare, "keys": keys, "view": view}
        workflow.upsert_memo({wire.MEMO_CLOSING: whole})
        raise asyncio.CancelledError
    if ending is not None and ending.outcome == "failed":
        failure = ending.error
        raise ApplicationError(
            visibility.failure_message(failure),
            record.model_dump(mode="json"),
            type=failure.code if failure else FailureCode.NODE_FAILED,
            non_retryable=True,
        )
    return record


@contextmanager
def refusals_as_application_errors() -> Iterator[None]:
    """Raise a refusal as Temporal carries it, by an ApplicationError whose type is the code."""
    try:
        yield
    except Refusal as refusal:
        raise ApplicationError(
            refusal.message, dict(refusal.details), type=refusal.code, non_retryable=True
        ) from None


def replayed(receipt: wire.Record) -> ApplicationError:
    """What a validator turns a repeat away with: it has the receipt in it."""
    return ApplicationError(
        "the same came before",
        receipt.model_dump(mode="json"),
        type=wire.REPLAYED,
        non_retryable=True,
    )
