"""Decode the input of activities, even if this worker cannot read it.

Workaround for the Temporal SDK: it decodes arguments and heartbeat details before any of our code runs.
If that fails, because the storage is unavailable or a key is missing, it fails the attempt without
counting it correctly, and for heartbeat details it even prevents a retry. So the converter of a worker
passes the payloads on, and the activity reports the error. Its codec also passes on payloads that it
cannot decrypt, for the sake of workflows; these are detected here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from abeyance import wire
from abeyance.storage.converter import PassingOn, is_unread

UNREADABLE: Final = "abeyance-unread"
"""Metadata key of the payload that counts unreadable attempts, in clear text."""


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
        counts = [payload for payload in payloads if UNREADABLE in payload.metadata]
        others = [payload for payload in payloads if UNREADABLE not in payload.metadata]
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


def journal_in(written: DecodedPayloads, visit: str) -> wire.Journal:
    """Return the combined journal of earlier attempts of a visit."""
    read = [wire.Journal.model_validate(value) for value in written.values]
    journals = [journal for journal in read if journal.is_of(visit)]
    return wire.Journal(
        visit=visit,
        steps={name: result for journal in journals for name, result in journal.steps.items()},
        failures=sum(journal.failures for journal in journals),
        excused=sum(journal.excused for journal in journals),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The encoded journal of a visit, and its decoded form."""

    payload: Payload
    journal: wire.Journal

    def rest_of(self, journal: wire.Journal) -> wire.Journal | None:
        """Return the counts added since, None without any."""
        rest = wire.Journal(
            failures=journal.failures - self.journal.failures,
            excused=journal.excused - self.journal.excused,
        )
        return None if rest == wire.Journal() else rest


def kept_in(written: DecodedPayloads, visit: str) -> Kept | None:
    """Return the encoded journal among heartbeat details, None without one."""
    for payload, value in zip(written.payloads, written.values, strict=True):
        if (journal := wire.Journal.model_validate(value)).steps and journal.is_of(visit):
            return Kept(payload=payload, journal=journal)
    return None
