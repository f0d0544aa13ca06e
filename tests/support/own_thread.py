"""A whole stack in a separate thread, for commands that run in the main thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from stack import Api, app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import Graph
from abeyance.temporal.connection import data_converter

T = TypeVar("T")


class Threaded:
    """A stack that is up; `do` runs coroutines in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, site: Site, api: Api) -> None:
        self._loop = loop
        self.site = site
        self.api = api

    def do(self, work: Coroutine[Any, Any, T], *, seconds: float = 30) -> T:
        """Run a coroutine in the stack's thread, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)


@contextmanager
def threaded(address: str, *graphs: Graph, **settings: Any) -> Iterator[Threaded]:
    """Start a worker and an API for these graphs, on the Temporal server at an address."""
    up: list[Threaded] = []
    is_up, stop = threading.Event(), asyncio.Event()

    async def stand() -> None:
        temporal = await TemporalClient.connect(address, data_converter=data_converter())
        site = Site(temporal, *graphs)
        async with site.worker(), served(app_for(site, **settings)) as api:
            up.append(Threaded(asyncio.get_running_loop(), site, api))
            is_up.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(stand())
        finally:
            is_up.set()

    thread = threading.Thread(target=work)
    thread.start()
    is_up.wait()
    assert up, "the stack did not come up"
    try:
        yield up[0]
    finally:
        up[0]._loop.call_soon_threadsafe(stop.set)
        thread.join()
