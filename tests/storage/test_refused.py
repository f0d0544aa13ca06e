"""Payloads that must be encrypted and are not: each is refused, and none ends a run."""

from __future__ import annotations

from typing import Any

import pytest
from sealed_site import a_key
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import (
    ApplicationFailureInfo,
    CanceledFailureInfo,
    Failure,
    TimeoutFailureInfo,
)
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, CancelledError, TimeoutError  # noqa: A004

from abeyance.errors import Code
from abeyance.settings import Settings
from abeyance.storage.converter import of_run
from abeyance.temporal.connection import data_converter
from abeyance.temporal.workarounds.payloads import fail_refused_results

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"ACTIVITY_ID_NOT_STARTED"')


@pytest.fixture
def converter() -> DataConverter:
    settings = Settings(encryption_keys=a_key(), encryption_required=True)
    return of_run(data_converter(settings), "run")


async def read(converter: DataConverter, failure: Failure) -> BaseException:
    """Return the error that the SDK makes of a failure, inside the failure of an activity."""
    around = Failure(message="Activity task failed", cause=failure)
    around.activity_failure_info.SetInParent()
    cause = (await converter.decode_failure(around)).__cause__
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    "place",
    [
        lambda it: Failure(canceled_failure_info=CanceledFailureInfo(details=it)),
        lambda it: Failure(application_failure_info=ApplicationFailureInfo(details=it)),
        lambda it: Failure(timeout_failure_info=TimeoutFailureInfo(last_heartbeat_details=it)),
    ],
)
async def test_only_encrypted_details_of_a_failure_are_taken(
    converter: DataConverter, place: Any
) -> None:
    (ours,) = await converter.encode([{"steps": {"pay": 1}}])
    error = await read(converter, place(Payloads(payloads=[PLAIN, ours, PLAIN])))

    match error:
        case CancelledError() | ApplicationError():
            assert [*error.details] == [{"steps": {"pay": 1}}]
        case TimeoutError():
            assert [*error.last_heartbeat_details] == [{"steps": {"pay": 1}}]
        case _:
            raise AssertionError(error)


async def test_a_failure_without_details_stays_what_it_is(converter: DataConverter) -> None:
    failure = Failure(message="cancelled", canceled_failure_info=CanceledFailureInfo())
    assert isinstance(await read(converter, failure), CancelledError)


async def test_the_text_of_a_failure_that_is_not_encrypted_is_the_reason_instead(
    converter: DataConverter,
) -> None:
    text = Payload(metadata={"encoding": b"json/plain"}, data=b'{"message": "all is paid"}')
    error = await read(converter, Failure(encoded_attributes=text))
    assert "The payload is refused: it is not encrypted" in str(error)


@pytest.mark.parametrize("kind", ["resolve_activity", "resolve_child_workflow_execution"])
async def test_a_result_that_is_not_encrypted_is_a_failure_of_who_returned_it(
    converter: DataConverter, kind: str
) -> None:
    act = WorkflowActivation()
    forged, ours = (getattr(act.jobs.add(), kind).result for _ in range(2))
    assert converter.payload_codec is not None
    (refused,) = await converter.payload_codec.decode([PLAIN])
    forged.completed.result.CopyFrom(refused)
    ours.completed.result.metadata["encoding"] = b"json/plain"
    fail_refused_results(act)

    assert (forged.WhichOneof("status"), ours.WhichOneof("status")) == ("failed", "completed")
    error = (await converter.decode_failure(forged.failed.failure)).__cause__
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == (Code.NOT_SEALED, True)
