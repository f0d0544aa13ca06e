"""The reason, read from a history, why no worker completes the workflow task of a run."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskFailedEventAttributes

from abeyance.history.hindrance import hindrance_of
from abeyance.keyring import NotSealed, WrongKey
from abeyance.settings import Settings
from abeyance.storage.blobs import BlobMissing
from abeyance.storage.converter import of_run
from abeyance.temporal.connection import data_converter

SETTINGS = Settings(encryption_keys=f"first:{base64.b64encode(bytes(32)).decode()}")
CONVERTER = of_run(data_converter(SETTINGS), "r")
NO_KEY = WrongKey("this is encrypted with the key 'other'")
COMPLETED = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
LOST = HistoryEvent(
    event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, event_time=Timestamp(seconds=1)
)
SIGNAL = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)


async def failed(error: Exception) -> HistoryEvent:
    """Return the event of a workflow task that a worker failed, as the SDK writes it."""
    failure = Failure()
    await CONVERTER.encode_failure(error, failure)
    return HistoryEvent(
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        workflow_task_failed_event_attributes=WorkflowTaskFailedEventAttributes(failure=failure),
    )


FORCED = HistoryEvent(
    event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    workflow_task_failed_event_attributes=WorkflowTaskFailedEventAttributes(
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
    ),
)


async def said(*events: HistoryEvent, is_often: bool = True) -> tuple[str, bool] | None:
    """Return the code that these events, oldest first, give to the run, and whether a worker said so."""
    found = await hindrance_of(CONVERTER, events[::-1], is_often=is_often)
    return None if found is None else (found.shown.code, found.is_said)


@pytest.mark.parametrize("is_often", [True, False])
async def test_behind_lost_tasks_the_last_that_failed_says_why(*, is_often: bool) -> None:
    said_once = (COMPLETED, await failed(NO_KEY), LOST)

    assert await said(*said_once, is_often=is_often) == ("key_missing", True)
    assert await said(*said_once, SIGNAL, FORCED, LOST, is_often=is_often) == ("key_missing", True)
    # The last of several failed tasks counts.
    found = await said(*said_once, await failed(KeyError("a bug")), LOST, is_often=is_often)
    assert found == ("cannot_replay", True)


async def test_a_failure_from_before_a_completed_task_says_nothing() -> None:
    assert await said(await failed(NO_KEY), COMPLETED, LOST) == ("cannot_replay", False)
    assert await said(await failed(NO_KEY), COMPLETED) is None


async def test_a_task_that_was_lost_a_few_times_blocks_nothing() -> None:
    assert await said(COMPLETED, LOST, LOST, is_often=False) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NO_KEY, "key_missing"),
        (NotSealed("this was sealed for another run"), "payload_unreadable"),
        (BlobMissing("the blob run-1/2 is not there"), "storage_unavailable"),
        (KeyError("a bug"), "cannot_replay"),
    ],
)
async def test_a_hindrance_has_the_words_of_the_worker(error: Exception, code: str) -> None:
    around = RuntimeError("Failed decoding arguments")
    around.__cause__ = error
    for each in (error, around):
        found = await hindrance_of(CONVERTER, [await failed(each)], is_often=True)

        assert found is not None
        assert found.shown.code == code
        assert "Encoded failure" not in found.shown.message
        if code != "cannot_replay":
            assert found.shown.message == f"a worker cannot read the run: {error}"
