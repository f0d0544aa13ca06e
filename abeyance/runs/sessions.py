"""Runs as sessions of whoever started them: which are active, which have to go, and one that lasts as
long as a block of code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic import BaseModel

from abeyance import wire
from abeyance.errors import AbeyanceError, Code, Refusal
from abeyance.graphs.graph import Graph
from abeyance.runid import checked_run_id
from abeyance.runs.launch import Started
from abeyance.runs.recency import Active
from abeyance.runs.starting import Starting

_GONE: Final = frozenset({Code.NOT_RUNNING, Code.UNKNOWN_RUN})
_REASON_CHARS: Final = 500


class Sessions(Starting):
    """Starting, and what can be done to many runs at once."""

    async def list_active(self) -> list[Active]:
        """The open runs of this task queue, the most recently active first, as visibility knows them:
        a moment late, and to the minute.
        """
        return [*reversed(await self._recency.runs())]

    async def unregister(self, run_id: str, *, reason: str | None = None) -> bool:
        """Cancel a run and forget it; returns whether it was running. One that is not is no error."""
        try:
            await self.cancel(run_id, wire.Cancel(reason=reason, actor="local"))
        except Refusal as refusal:
            if refusal.code not in _GONE:
                raise
            return False
        return True

    async def delete_blobs(self, run_id: str) -> int:
        """Delete what is kept outside of Temporal for a run, and return how many blobs there were.

        What Temporal still keeps of the run cannot be read as a whole any more. One that it has
        forgotten is no error. Raises `not_finished` for a run that goes on, which would stand still
        without its blobs, `unknown_run` for the id of another deployment's run, whose blobs may be in the
        same place, `invalid_run_id`, and Unavailable: then nothing is deleted.
        """
        try:
            described = await self._line.described(checked_run_id(run_id))
        except Refusal as refusal:
            if refusal.code is not Code.UNKNOWN_RUN or await self._line.is_anothers(run_id):
                raise
        else:
            if described.is_running:
                raise Refusal(
                    Code.NOT_FINISHED,
                    f"The run {run_id!r} is {described.shown_status}: without its blobs it would stand "
                    "still. Cancel it, or wait until it has ended.",
                    run_id=run_id,
                )
        return await self.blobs.delete_run(run_id)

    @asynccontextmanager
    async def session(
        self,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        **options: Any,
    ) -> AsyncIterator[Started]:
        """A run for as long as the body of an `async with` takes: started on entry, with the options
        of `start`, and cancelled on exit if it has not ended.

        What the body raises is raised; where the run cannot be cancelled then, a note says so.
        """
        started = await self.start(graph, input, **options)
        try:
            yield started
        except BaseException as error:
            reason = f"its session failed: {error!r}"[:_REASON_CHARS]
            try:
                await self.unregister(started.run_id, reason=reason)
            except AbeyanceError as left:
                error.add_note(f"the run {started.run_id!r} was not cancelled: {left}")
            raise
        await self.unregister(started.run_id, reason="its session is over")

    async def evict(
        self,
        *,
        inactive_for: float | None = None,
        keep: int | None = None,
        most: int | None = None,
        actor: str = "local",
    ) -> list[str]:
        """Halt runs, with the reason `evicted`, and return their ids.

        `inactive_for`: those to which nothing has happened for so many seconds, except those that wait
        for an answer with a deadline of its own. `keep`: all but so many, the most recently active. With
        both, those that either concerns; the least recently active first, and no more than `most`. A run
        that cannot be reached stays until the next time.
        """
        evicted: list[str] = []
        if inactive_for is not None:
            evicted += await self._evictions.inactive(inactive_for, actor, most=most)
        if keep is not None:
            most = None if most is None else most - len(evicted)
            gone = frozenset(evicted)
            evicted += await self._evictions.beyond(keep, actor, gone=gone, most=most)
        return evicted
