"""A server of tools, as an agent knows it. Which protocol it speaks, only its own package knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, runtime_checkable

from abeyance.agents.tool import Tool
from abeyance.core.bounds import RetryPolicy


@runtime_checkable
class ToolServer(Protocol):
    """A server whose tools are listed before each request to the model, and called as any other tool.

    People and models know it by its `title`; `description` says what the node of its calls does. Calls
    may request `requested_capability`, and are retried by the policy `retry`. `library` is the module
    without which it cannot be used.
    """

    @property
    def title(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def requested_capability(self) -> str | None: ...

    @property
    def retry(self) -> RetryPolicy: ...

    @property
    def library(self) -> str: ...

    async def available_tools(self) -> Mapping[str, Tool]:
        """Return its tools of now by name. Raises Blocked while it is unavailable."""


_closings: Final[set[Callable[[], Awaitable[None]]]] = set()


def close_with_worker(close: Callable[[], Awaitable[None]]) -> None:
    """Have `close` awaited at a worker's shutdown, to end the connections of its event loop."""
    _closings.add(close)


async def close_servers() -> None:
    """End every connection to a server of tools, of this event loop. A worker calls it at shutdown."""
    for close in tuple(_closings):
        await close()
