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

# The time of an example says more about the machine than about the tested code.
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
    """Start the Temporal server of this pytest process. Each `Site` has its own task queue there."""
    async with real_server() as client:
        yield client


@pytest.fixture(scope="session")
def address(temporal: TemporalClient) -> str:
    """Return the address of that server, for clients in another event loop."""
    return temporal.service_client.config.target_host


@pytest_asyncio.fixture(scope="session")
async def time_machine() -> AsyncIterator[WorkflowEnvironment]:
    """Start a server on which tests can skip days of a run's time."""
    async with skipping_server() as environment:
        yield environment


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make waiting callers ask Temporal soon whether it has ended a run, because no record says so."""
    monkeypatch.setattr(reader, "_ASK_TEMPORAL", 0.2)


@pytest.fixture
def deserted(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make callers also not wait for a worker, because none will come."""
    monkeypatch.setattr(rpc, "_STUCK", timedelta(0))


@pytest.fixture(scope="session", autouse=True)
def _records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the records of this process and its subprocesses in one file, unless a test sets another."""
    with pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("records") / "records.db"
        patch.setenv("ABEYANCE_DATABASE_URL", f"sqlite:///{file}")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Modules and tests live as long as the process. Garbage collection among them, during collection and
    # again during the tests, would take as long as collection itself.
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
    # All tests share one event loop. pytest-timeout raises in the code that happens to run there, and the
    # test that hangs would keep running beside all later tests. So asyncio cancels the test before that.
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
