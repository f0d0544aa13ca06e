"""How values travel through Temporal: as JSON, by pydantic, the same for clients, workers and replay."""

from __future__ import annotations

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter


def data_converter() -> DataConverter:
    """The converter that every client and worker of one deployment must share."""
    return pydantic_data_converter
