"""Payloads that this worker cannot read: kept from the Temporal SDK until our code can report them.

Since SDK 1.35.0 at least, four faults:

- It decodes all payloads of a workflow task before the workflow runs, and retries the task forever if
  one cannot be decoded, even that of one signal: `PassingOn`.
- It decodes the arguments and heartbeat details of an activity before its code runs. If that fails,
  because the storage is unavailable or a key is missing, it fails the attempt without counting it
  correctly, and for heartbeat details it even prevents a retry: `LenientDataConverter`.
- It drops the text of a failure that it cannot read: `FailureConverter`.
- It fails a workflow that gets a payload which the codec refused, even if the payload is only the end of
  an activity or a child: `FailureConverter` for failures, `fail_refused_results` for results.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import Client as TemporalClient
from temporalio.common import RawValue
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)

from abeyance import wire
from abeyance.storage.converter import UNREADABLE, WHY, is_refused, is_unread, reason_of
from abeyance.storage.encryption import ENCODING

UNREADABLE_COUNT: Final = "abeyance-unread"
"""Metadata key of the payload that counts unreadable attempts, in clear text."""


class PassingOn(PayloadCodec, WithSerializationContext):
    """Decodes with another codec, and passes undecodable payloads on; reading such a value raises."""

    def __init__(self, codec: PayloadCodec) -> None:
        self.codec: Final = codec

    def with_context(self, context: SerializationContext) -> PassingOn:
        if not isinstance(self.codec, WithSerializationContext):
            return self
        return PassingOn(self.codec.with_context(context))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self.codec.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._decoded(payload) for payload in payloads]

    async def _decoded(self, payload: Payload) -> Payload:
        try:
            (decoded,) = await self.codec.decode([payload])
        except UNREADABLE as error:
            marked = {"encoding": ENCODING.encode(), WHY: str(error).encode()}
            return Payload(metadata=marked, data=payload.data)
        return decoded


class FailureConverter(DefaultFailureConverterWithEncodedAttributes):
    """Converts failures with encrypted texts. A text that cannot be decrypted raises.

    Details that the codec refused are left out, and a text that it refused is replaced by the reason:
    Temporal itself writes details in clear text, such as `ACTIVITY_ID_NOT_STARTED`, and so do we
    (UNREADABLE_COUNT). Nothing that a run decides depends on them.
    """

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        taken = Failure()
        taken.CopyFrom(failure)
        for details in _details_of(taken):
            # Not even an empty list is written back to a failure of another kind: that would change it.
            if any(map(is_refused, details)):
                kept = [payload for payload in details if not is_refused(payload)]
                del details[:]
                details.extend(kept)
        if taken.HasField("encoded_attributes"):
            if is_refused(taken.encoded_attributes):
                taken.message = str(reason_of(taken.encoded_attributes))
                taken.ClearField("encoded_attributes")
            else:
                payload_converter.from_payloads([taken.encoded_attributes])
        return super().from_failure(taken, payload_converter)


def _details_of(failure: Failure) -> Sequence[MutableSequence[Payload]]:
    return (
        failure.application_failure_info.details.payloads,
        failure.canceled_failure_info.details.payloads,
        failure.timeout_failure_info.last_heartbeat_details.payloads,
    )


def fail_refused_results(act: WorkflowActivation) -> None:
    """Turn the results in `act` that the codec refused into failures of their activities and children."""
    for job in act.jobs:
        match job.WhichOneof("variant"):
            case "resolve_activity":
                result = job.resolve_activity.result
                refused = _refusal_of(result.completed.result)
                if refused is not None:
                    result.failed.failure.activity_failure_info.SetInParent()
                    result.failed.failure.cause.CopyFrom(refused)
            case "resolve_child_workflow_execution":
                ended = job.resolve_child_workflow_execution.result
                refused = _refusal_of(ended.completed.result)
                if refused is not None:
                    ended.failed.failure.child_workflow_execution_failure_info.SetInParent()
                    ended.failed.failure.cause.CopyFrom(refused)
            case _:
                pass


def _refusal_of(result: Payload) -> Failure | None:
    if not is_refused(result):
        return None
    why = reason_of(result)
    info = ApplicationFailureInfo(type=why.type or "", non_retryable=True)
    return Failure(message=why.message, application_failure_info=info)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPayloads:
    """Payloads and their values; `fault` is the error if this worker cannot read them."""

    payloads: Sequence[Payload] = ()
    values: Sequence[Any] = ()
    fault: Exception | None = None


class LenientDataConverter(DataConverter):
    """The converter of a worker. It decodes untyped payloads, which are the arguments and heartbeat
    details of a visit, to one DecodedPayloads.
    """

    async def decode(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        if type_hints is not None and any(hint is not RawValue for hint in type_hints):
            return await super().decode(payloads, type_hints)
        counts = [payload for payload in payloads if UNREADABLE_COUNT in payload.metadata]
        others = [payload for payload in payloads if UNREADABLE_COUNT not in payload.metadata]
        try:
            values = await super().decode(others, type_hints)
            for value in values:
                if isinstance(value, RawValue) and is_unread(value.payload):
                    self.payload_converter.from_payload(value.payload)
            # Unencrypted, so anybody may have written it: take only the count.
            counted = [
                wire.Journal(excused=wire.Journal.model_validate_json(payload.data).excused)
                for payload in counts
            ]
        except Exception as error:  # noqa: BLE001 the activity counts and raises it
            return [DecodedPayloads(payloads=payloads, fault=error)]
        return [DecodedPayloads(payloads=[*others, *counts], values=[*values, *counted])]


def lenient(temporal: TemporalClient) -> TemporalClient:
    """Return the client with the converter of a worker."""
    config = temporal.config()
    usual = temporal.data_converter
    codec = usual.payload_codec
    config["data_converter"] = LenientDataConverter(
        payload_converter_class=usual.payload_converter_class,
        payload_codec=None if codec is None else PassingOn(codec),
        failure_converter_class=usual.failure_converter_class,
        external_storage=usual.external_storage,
    )
    return TemporalClient(**config)
