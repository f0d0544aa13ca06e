from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporal_site import real_server
from temporalio.client import Client as TemporalClient


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[TemporalClient]:
    async with real_server() as client:
        yield client


@pytest.fixture
def keys() -> str:
    """A setting with one key, which nobody else has."""
    return f"first:{base64.b64encode(os.urandom(32)).decode()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One event loop for all: the server lives as long as the session.
    for item in items:
        if "storage" in item.path.parts and item.get_closest_marker("asyncio") is not None:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
