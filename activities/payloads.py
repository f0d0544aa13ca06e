"""What an activity is given, also where this worker cannot read it.

The SDK reads the arguments of an activity and what its last attempt wrote down before any code of ours
begins. Where that fails, because storage is away or a key is missing, it ends the attempt; nobody counts
it as what it was, and where it is the steps that cannot be read, the SDK tells Temporal not to try again.
So the converter of a worker hands on what it has, and the activity says what became of it. Its codec
hands on what it cannot decode, too, for the sake of workflows, and that is found out here.
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
"""Marks the payload in which attempts are counted that could not read the others. It is in the clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPayloads:
    """Payloads as they came, and what they hold; `fault` is why this worker cannot read them."""

    payloads: Sequence[Payload] = ()
    values: Sequence[Any] = ()
    fault: Exception | None = None


class LenientDataConverter(DataConverter):
    """The converter of a worker. What its activities get without a type comes to them as one `Given`:
    the arguments of a visit, and what its last attempt wrote down.
    """

    async def decode(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        if type_hints is not None and any(hint is not RawValue for hint in type_hints):
            return await super().decode(payloads, type_hints)
        counts = [each for each in payloads if UNREADABLE in each.metadata]
        others = [each for each in payloads if UNREADABLE not in each.metadata]
        try:
            values = await super().decode(others, type_hints)
            for value in values:
                if isinstance(value, RawValue) and is_unread(value.payload):
                    self.payload_converter.from_payload(value.payload)
            # Of what anybody can have written, no more than a count is taken.
            counted = [
                wire.Journal(excused=wire.Journal.model_validate_json(each.data).excused)
                for each in counts
            ]
        except Exception as error:  # noqa: BLE001 the activity raises it, when it has counted it
            return [DecodedPayloads(payloads=payloads, fault=error)]
        return [DecodedPayloads(payloads=[*others, *counts], values=[*values, *counted])]


def lenient(temporal: TemporalClient) -> TemporalClient:
    """The same connection, for a worker."""
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
    """What earlier attempts of a visit have written down: all of it counts together."""
    read = [wire.Journal.model_validate(value) for value in written.values]
    found = [each for each in read if each.is_of(visit)]
    return wire.Journal(
        visit=visit,
        steps={name: result for each in found for name, result in each.steps.items()},
        failures=sum(each.failures for each in found),
        excused=sum(each.excused for each in found),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The steps of a visit as they are written down, with what was counted by then."""

    payload: Payload
    journal: wire.Journal

    def rest_of(self, journal: wire.Journal) -> wire.Journal | None:
        """What has been counted since; None if nothing has."""
        rest = wire.Journal(
            failures=journal.failures - self.journal.failures,
            excused=journal.excused - self.journal.excused,
        )
        return None if rest == wire.Journal() else rest


def kept_in(written: DecodedPayloads, visit: str) -> Kept | None:
    """The steps that are among what was written down, if there are any."""
    for payload, value in zip(written.payloads, written.values, strict=True):
        if (journal := wire.Journal.model_validate(value)).steps and journal.is_of(visit):
            return Kept(payload=payload, journal=journal)
    return None
