"""How values travel through Temporal: as JSON, by pydantic, the same for clients, workers and replay."""

from __future__ import annotations

from typing import Final

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter

_CONVERTERS: Final = tuple(PydanticPayloadConverter().converters.values())
"""Shared, because they remember how to read each type, and each run gets a payload converter anew."""


class PayloadConverter(CompositePayloadConverter):
    """The conversion of single values."""

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)


def data_converter() -> DataConverter:
    """The converter that every client and worker of one deployment must share."""
    return DataConverter(payload_converter_class=PayloadConverter)
