"""A whole stack in a thread of its own, for commands that are called in the main one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from stack import Api, app_for, served
from temporal_site import Site, real_server

from abeyance import Graph
from abeyance.worker import make_worker

T = TypeVar("T")


class Threaded:
    """A stack that is up. `do` has something done in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, site: Site, api: Api) -> None:
        self._loop = loop
        self.site = site
        self.api = api

    def do(self, work: Coroutine[Any, Any, T], *, seconds: float = 30) -> T:
        """Wait for something that is done in the stack's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)


@contextmanager
def threaded(*graphs: Graph) -> Iterator[Threaded]:
    """A Temporal, a worker and an API for these graphs."""
    up: list[Threaded] = []
    is_up, stop = threading.Event(), asyncio.Event()

    async def stand() -> None:
        async with real_server() as temporal:
            site = Site(temporal, *graphs)
            worker = make_worker(temporal, site.graphs, site.settings, blobs=site.blobs)
            async with worker, served(app_for(site)) as api:
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
