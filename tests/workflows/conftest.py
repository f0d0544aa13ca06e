from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporal_site import real_server, skipping_server
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[TemporalClient]:
    async with real_server() as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def time_machine() -> AsyncIterator[WorkflowEnvironment]:
    async with skipping_server() as environment:
        yield environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One event loop for all: the servers live as long as the session.
    for item in items:
        if "workflows" in item.path.parts and item.get_closest_marker("asyncio") is not None:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
