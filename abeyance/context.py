"""What the code of a node may know and do: the `Context` that it is handed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Goto:
    """Returned by a node: go to this node, in place of the edges, after merging the patch.

    The node has to be declared with `to=[...]` naming the target.
    """

    node: str
    patch: Mapping[str, Any] | None = None

    def __init__(self, node: str, patch: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "patch", patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who and where a visit is, what people said so far, and whether it should stop.

    `execution` tells this run from an earlier one that had the same id.
    `address` names the visit in the history, the inbox and the log. `values` are those that the visit
    was started with, as JSON. `answers` holds what people answered in this graph so far, by the name
    of the interrupt. `attempt` counts from 1 and grows when the visit is tried again. `outcome` is
    how the run ended, in a `finally` node, else None.
    """

    run_id: str
    execution: str
    graph: str
    node: str
    address: str
    values: Mapping[str, Any]
    answers: Mapping[str, Any]
    attempt: int
    outcome: str | None
    logger: logging.LoggerAdapter[logging.Logger]
    is_cancelled: Callable[[], bool]
    beat: Callable[[], None]

    @property
    def cancelled(self) -> bool:
        """Whether the run wants this visit to stop. Code in a thread has to look, and raise (whatever
        it likes) to be stopped: what returns has finished. A coroutine is also cancelled at its next
        await.
        """
        return self.is_cancelled()

    def heartbeat(self) -> None:
        """Say now that the code is alive. Visits say so by themselves about once a second; call it
        where a coroutine has blocked the event loop for long.
        """
        self.beat()

    @property
    def idempotency_key(self) -> str:
        """32 hex digits that name this visit: the same in every attempt, different for every other
        visit. Hand it to a service that must not do a thing twice.
        """
        return hashlib.sha256(
            f"{self.run_id}|{self.execution}|{self.address}".encode()
        ).hexdigest()[:32]
