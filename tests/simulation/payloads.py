"""Open and seal the payloads of a workflow task with the project's codec, as the SDK does.

Temporal's server opens nothing, and writes its own payloads in clear text.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.bridge.worker import _Visitor, decode_activation, encode_completion
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import FailureError
from temporalio.worker._command_aware_visitor import CommandAwarePayloadVisitor

from abeyance.settings import Settings
from abeyance.temporal.connection import data_converter
from abeyance.temporal.workarounds.payloads import FailureConverter
from tests.simulation.graphs import Wanted


class _Untraced(DefaultFailureConverter):
    """Leaves out the stack trace of an intended error: nobody reads it, and it takes long to write."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        if isinstance(exception, FailureError | Wanted):
            exception = exception.with_traceback(None)
        super().to_failure(exception, payload_converter, failure)


class _UntracedSealed(_Untraced, FailureConverter):
    pass


_REQUIRED: Final = Settings.model_construct(
    encryption_keys=f"k1:{'A' * 43}=", encryption_required=True
)
CLEAR: Final = replace(data_converter(), failure_converter_class=_Untraced)
SEALED: Final = replace(data_converter(_REQUIRED), failure_converter_class=_UntracedSealed)
"""The converter of a deployment that requires encryption."""
KEYS: Final = _REQUIRED.keyring


def open_activation(act: WorkflowActivation, converter: DataConverter) -> None:
    """Open the payloads of an activation in place, before the workflow gets it."""
    if converter.payload_codec is not None:
        _run(decode_activation(act, converter, False, 1))


def seal_completion(completion: WorkflowActivationCompletion, converter: DataConverter) -> None:
    """Seal the payloads of the workflow's completion in place."""
    if converter.payload_codec is not None:
        _run(encode_completion(completion, converter, False, 1))


def opened_commands(
    commands: Sequence[WorkflowCommand], converter: DataConverter
) -> list[WorkflowCommand]:
    """Return commands with open payloads, to compare them: sealing never gives the same bytes twice."""
    completion = WorkflowActivationCompletion()
    completion.successful.commands.extend(commands)
    if converter.payload_codec is not None:
        visitor = CommandAwarePayloadVisitor(skip_search_attributes=True, skip_headers=True)
        _run(visitor.visit(_Visitor(converter._decode_payload_sequence), completion))
    return [*completion.successful.commands]


def opened_job(job: Job, converter: DataConverter) -> Job:
    """Return a job as the workflow gets it."""
    act = WorkflowActivation(jobs=[job])
    open_activation(act, converter)
    return act.jobs[0]


def opened_payloads(payloads: Sequence[Payload], converter: DataConverter) -> Sequence[Payload]:
    """Return payloads as the workflow gets them."""
    job = Job()
    job.signal_workflow.input.extend(payloads)
    return opened_job(job, converter).signal_workflow.input


def opened_memo(memo: dict[str, Payload], converter: DataConverter) -> dict[str, Payload]:
    """Return the memo as the workflow gets it."""
    job = Job()
    for key, payload in memo.items():
        job.initialize_workflow.memo.fields[key].CopyFrom(payload)
    return {**opened_job(job, converter).initialize_workflow.memo.fields}


def _run(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a codec waited, which one without storage never does")
