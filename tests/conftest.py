from __future__ import annotations

import asyncio
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, settings
from lane import Lane
from temporal_site import real_server, skipping_server
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from abeyance.client import reader, rpc

# How long an example takes says more of the machine than of what is tried.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("wide", settings.get_profile("any machine"), max_examples=400)
settings.register_profile(
    "few",
    settings.get_profile("any machine"),
    max_examples=20,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("any machine")

_BEFORE_THE_HARD_END = 10.0


@pytest_asyncio.fixture(scope="session")
async def temporal() -> AsyncIterator[TemporalClient]:
    """The Temporal server of this process of pytest. Each `Site` has a task queue of its own on it."""
    async with real_server() as client:
        yield client


@pytest.fixture(scope="session")
def address(temporal: TemporalClient) -> str:
    """Where that server is, for what connects to it from another event loop."""
    return temporal.service_client.config.target_host


@pytest_asyncio.fixture(scope="session")
async def time_machine() -> AsyncIterator[WorkflowEnvironment]:
    """A server on which a run's time can be moved on by days."""
    async with skipping_server() as environment:
        yield environment


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a run asks Temporal soon whether it was ended there, which nobody records."""
    monkeypatch.setattr(reader, "_ASK_TEMPORAL", 0.2)


@pytest.fixture
def deserted(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anybody wait for a worker, as none will come."""
    monkeypatch.setattr(rpc, "_STUCK", timedelta(0))


@pytest.fixture(scope="session", autouse=True)
def _records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What this process and those that it starts record is in one file, unless a test says where."""
    with pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("records") / "records.db"
        patch.setenv("ABEYANCE_DATABASE_URL", f"sqlite:///{file}")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Modules and tests live as long as the process. To look for garbage among them, while they are made
    # and again during the tests, takes as long as to make them.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lane | None:
    return Lane(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # All tests share one event loop. pytest-timeout raises in whatever runs there at that moment, and
    # leaves the test that hangs running beside all that follow; so a test is cancelled before that.
    hard = float(config.getini("timeout"))
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            seconds = hard if marker is None else float(marker.args[0])
            item.obj = _ended_after(seconds - _BEFORE_THE_HARD_END, item.obj)


def _ended_after(
    seconds: float, test: Callable[..., Awaitable[None]]
) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def ended(*args: Any, **named: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **named)

    return ended
