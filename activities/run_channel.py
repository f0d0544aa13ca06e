"""How a visit in an activity reaches its run: it takes messages, and waits while the run is paused."""

from __future__ import annotations

from temporalio import activity

from abeyance import wire
from abeyance.client import Client
from abeyance.core.effects import VisitInput
from abeyance.core.events import Message
from abeyance.errors import Refusal, StillPaused

_CANCELLED = "cancelled"


class RunChannel:
    """The post of one visit. `default_timeout` is in seconds."""

    def __init__(self, client: Client, visit: VisitInput, default_timeout: float) -> None:
        self._client = client
        self._visit = visit
        self._default_timeout = default_timeout
        # A visit that is tried again, or re-entered, may have taken messages before.
        self._has_all = visit.activation == 1 and activity.info().attempt == 1

    async def take(self, number: int) -> Message | None:
        """The visit's n-th message, counted from 0; None if there is none yet."""
        # Many a node looks every moment, and each asking of the run would be work for its workflow,
        # in which queries and answers stand still.
        run_id, has_all = self._visit.run_id, self._has_all
        order = wire.TakeMessages(visit=self._visit.address, start=number, upto=number + 1)
        try:
            if has_all and not await self._client.run(run_id).may_have_messages():
                return None
            # Until there is an answer: what was taken, and whose answer was lost, is unread no more.
            self._has_all = False
            found = await self._client.run(run_id).take_messages(order)
        except Refusal:
            # The run is over, and reports what nobody took.
            return None
        self._has_all = has_all or not found
        return found[0] if found else None

    async def wait_if_paused(self, timeout: float | None) -> bool:
        """Wait until the run is not paused. Raises StillPaused."""
        seconds = self._default_timeout if timeout is None else timeout
        run_id = self._visit.run_id
        view = await self._client.run(run_id).view()
        if view.paused:
            others = frozenset({"running", "awaiting-input", "ending"})
            view = await self._client.run(run_id).wait(until=others, timeout=seconds)
        # A run that ends in another way does not go on either.
        is_over = activity.is_cancelled() or view.outcome is not None
        if view.paused and not is_over:
            raise StillPaused(still_paused(view, seconds))
        return not is_over


def still_paused(view: wire.RunView, seconds: float) -> str:
    """What there is to say when a run has not gone on."""
    return (
        f"The run {view.run_id!r} is still paused after {seconds:g} s, and waits for a person: resume it "
        "(POST /runs/{id}/resume, `abeyance resume`, or the signal `resume`) or cancel it. "
        f"paused={view.paused}, cancelled={view.outcome == _CANCELLED}, "
        f"queue_depth={view.queue_depth} of {view.max_queue_size}."
    )
