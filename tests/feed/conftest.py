from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporal_site import BINARY, UP_WITHIN, search_attributes
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from abeyance.storage.converter import data_converter

_DYNAMIC = (
    "history.transferProcessorMaxPollRPS=5000",
    # A history is deleted only after this: half a minute, unless told otherwise.
    'history.transferProcessorUpdateAckInterval="100ms"',
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[TemporalClient]:
    async with await WorkflowEnvironment.start_local(
        data_converter=data_converter(),
        dev_server_existing_path=BINARY,
        dev_server_startup_timeout=UP_WITHIN,
        dev_server_log_level="never",
        search_attributes=search_attributes(),
        dev_server_extra_args=[
            part for value in _DYNAMIC for part in ("--dynamic-config-value", value)
        ],
    ) as environment:
        yield environment.client


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One event loop for all: the server lives as long as the session.
    for item in items:
        if "feed" in item.path.parts and item.get_closest_marker("asyncio") is not None:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
