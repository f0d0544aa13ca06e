"""What stands behind the calls: the graphs that are served, the settings, and the way to Temporal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import Depends, Request

from abeyance.api.auth import Tokens
from abeyance.authoring.graph import Graph
from abeyance.client import Client
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.history.feed import Feed
from abeyance.settings import Settings

_FIRST_SECONDS: Final = 1.0
"""How long a start waits for Temporal before it lets requests in without it."""
_EVERY_SECONDS: Final = 1.0
_MOST_LISTED: Final = 20
_logger = logging.getLogger("abeyance.api")


class TemporalConnection:
    """The way to Temporal: a client, or the reason why there is none yet.

    Once there is one it finds its way back by itself. Until then somebody has to keep trying. At most
    `most_tails` runs are followed over it at a time.
    """

    def __init__(self, client: Client | None = None, *, most_tails: int = 500) -> None:
        self._client = client
        self._most_tails = most_tails
        self._feed: Feed | None = None
        self._why_not = "Temporal has not been reached yet: retry in a moment"

    @property
    def client(self) -> Client:
        """The client. Raises Unavailable while there is none."""
        if self._client is None:
            raise Unavailable(self._why_not)
        return self._client

    @property
    def feed(self) -> Feed:
        """The feeds of this process's runs. Raises Unavailable while there is no client."""
        if self._feed is None:
            self._feed = Feed(
                self.client.temporal, self.client.task_queue, most_tails=self._most_tails
            )
        return self._feed

    @asynccontextmanager
    async def kept(self, settings: Settings) -> AsyncIterator[None]:
        """Keep trying to reach Temporal, if it has not been reached."""
        if self._client is not None:
            yield
            return
        trying = asyncio.create_task(self._until_reached(settings))
        try:
            done, _ = await asyncio.wait({trying}, timeout=_FIRST_SECONDS)
            for task in done:
                task.result()
            yield
        finally:
            trying.cancel()
            await asyncio.wait({trying})

    async def _until_reached(self, settings: Settings) -> None:
        while True:
            try:
                self._client = await Client.connect(
                    task_queue=settings.task_queue, settings=settings
                )
                await self._tell_of_others(self._client)
            except Unavailable as error:
                if self._why_not != str(error):
                    _logger.warning("code=%s | %s", Code.UNAVAILABLE, error)
                self._why_not = str(error)
                await asyncio.sleep(_EVERY_SECONDS)
            else:
                return

    @staticmethod
    async def _tell_of_others(client: Client) -> None:
        """Say so if only this service keeps its callers from the runs of other deployments."""
        try:
            count = await client.runs.count_of_others()
        except SettingsError:
            # Whoever may not list runs sees none of others.
            return
        if count:
            _logger.warning(
                "namespace=%s task_queue=%s | the credentials of this service can also read %d runs of "
                "other task queues: the API hides them, but deployments that do not trust each other "
                "need separate namespaces",
                client.temporal.namespace,
                client.task_queue,
                count,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """All that the calls of one application share. None of it belongs to a run.

    `leaving` is set when the process is told to stop: who waits is answered, and streams end.
    """

    settings: Settings
    graphs: Mapping[str, Graph]
    tokens: Tokens
    link: TemporalConnection
    leaving: asyncio.Event = field(default_factory=asyncio.Event)

    def graph(self, name: str) -> Graph:
        """A graph by its name. Raises `unknown_graph` listing the known ones."""
        if (found := self.graphs.get(name)) is not None:
            return found
        known = sorted(self.graphs)
        raise Refusal(
            Code.UNKNOWN_GRAPH,
            f"There is no graph {name[:200]!r}: choose one of {', '.join(known[:_MOST_LISTED])}.",
            graphs=known[:_MOST_LISTED],
        )


async def _backend(request: Request) -> Backend:
    found: Backend = request.app.state.backend
    return found


async def _client(request: Request) -> Client:
    found: Backend = request.app.state.backend
    return found.link.client


async def _events(request: Request) -> Feed:
    found: Backend = request.app.state.backend
    return found.link.feed


AppState = Annotated[Backend, Depends(_backend)]
"""All of it."""

ClientDep = Annotated[Client, Depends(_client)]
"""The client. A call that takes it is answered 503 while Temporal cannot be reached."""

Events = Annotated[Feed, Depends(_events)]
"""What happens in the runs, of which this process reads each once for all who follow it."""
