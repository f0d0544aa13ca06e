"""Payloads as Temporal's UI and command line write them: made readable, and made as we send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from abeyance.storage.encryption import is_open


async def decoded(converter: DataConverter, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with each payload as it was before it was stored and encrypted.

    Raises ValueError if it is no document of payloads, WrongKey and BlobMissing.
    """
    payloads = _read(document)
    # What anybody can read is shown as it is, also where no run would take it.
    closed = [payload for payload in payloads if not is_open(payload)]
    values = iter(await converter.decode(closed, [RawValue] * len(closed)))
    return _written([payload if is_open(payload) else next(values).payload for payload in payloads])


async def encoded(converter: DataConverter, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with each payload as it is sent to Temporal. Raises ValueError and Unavailable."""
    return _written(await converter.encode([RawValue(payload) for payload in _read(document)]))


def _read(document: Mapping[str, Any]) -> list[Payload]:
    try:
        # A newer Temporal may tell more of a payload than we know of.
        return list(ParseDict(dict(document), Payloads(), ignore_unknown_fields=True).payloads)
    except ParseError as error:
        raise ValueError(f"these are no payloads as Temporal writes them: {error}") from error


def _written(payloads: list[Payload]) -> dict[str, Any]:
    # Nothing in, nothing out: a list that is empty would be left out.
    return {"payloads": [], **MessageToDict(Payloads(payloads=payloads))}
