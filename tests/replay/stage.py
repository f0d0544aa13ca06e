"""Where a scenario is played: a server, a worker, a run of the scenario's own name, and its parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle

from abeyance import Graph, commands, views


class Played:
    """One run of a scenario, under way."""

    def __init__(self, site: Site, id_: str) -> None:
        self.site = site
        self.id = id_

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The run in Temporal itself."""
        return self.site.temporal.get_workflow_handle(self.id)

    async def waiting(self) -> views.RunView:
        """The view, once nothing can go on without an answer."""
        return await self.site.until(self.id, "awaiting-input")

    async def until(self, *statuses: str) -> views.RunView:
        """The view, once the run has one of these statuses."""
        return await self.site.until(self.id, *statuses)

    async def ended(self, status: str = "completed") -> views.RunView:
        """The view of the ended run, which has to have ended so."""
        view = await self.site.ended(self.id)
        assert view.status == status, f"{self.id} ended as {view.status}: {view}"
        return view

    async def answer(self, **answers: Any) -> None:
        """Answer open questions by their names, in one call."""
        ids = {entry.name: entry.id for entry in await self.site.client.run(self.id).interrupts()}
        given = {ids[name]: answer for name, answer in answers.items()}
        await self.site.client.run(self.id).respond(given, principal=ANYBODY)

    async def pause(self, **order: Any) -> None:
        await self.site.client.run(self.id).control(commands.Pause(**order))

    async def resume(self) -> None:
        await self.site.client.run(self.id).resume()

    async def cancel(self, **order: Any) -> None:
        await self.site.client.run(self.id).control(commands.Cancel(**order))

    async def say(self, id_: str, text: str = "hello") -> views.MessageReceipt:
        """Leave a message, and get its receipt."""
        message = commands.SteerMessage(message_id=id_, text=text)
        return await self.site.client.run(self.id).send_message(message)

    async def take(self, visit: str, upto: int, *, start: int = 0) -> list[str]:
        """The ids of the messages that a visit takes, from its n-th on (`start`)."""
        order = commands.TakeMessages(visit=visit, start=start, upto=upto)
        taken = await self.handle.execute_update("take_messages", order)
        return [message["message_id"] for message in taken]

    async def is_idle(self) -> bool:
        """Whether no node runs."""
        return not (await self.site.client.run(self.id).view()).running

    async def execution(self) -> str:
        """Which of the run's histories is the newest."""
        execution = (await self.handle.describe()).run_id
        assert execution is not None
        return execution

    async def hand_over(self) -> None:
        """Give a run that waits for an answer something to do until it goes on in a new history."""
        before = await self.execution()
        for _ in range(20):
            # A control is a signal: the run has heard of it when that is seen.
            await self.pause()
            await self.until("paused")
            await self.resume()
            await self.waiting()
            if await self.execution() != before:
                return
        message = f"{self.id}: twenty pauses, and no hand-over"
        raise AssertionError(message)


class Stage:
    """A server for one scenario. `name` is the scenario's, and the id of its run."""

    def __init__(
        self, name: str, temporal: TemporalClient, *, strict_sandbox: bool = False
    ) -> None:
        self.name = name
        self.temporal = temporal
        self.strict_sandbox = strict_sandbox

    def site(self, *graphs: Graph) -> Site:
        """A task queue for these graphs; nobody works there yet."""
        return Site(self.temporal, *graphs, patience=30, strict_sandbox=self.strict_sandbox)

    async def started(
        self, site: Site, input: dict[str, Any] | None = None, **options: Any
    ) -> Played:
        """The scenario's run, started at a site; the options are those of `Client.start`."""
        options = {"labels": {"kind": "replay"}, "conversation_id": self.name, **options}
        await site.start(input, run_id=self.name, **options)
        return Played(site, self.name)

    @asynccontextmanager
    async def run(
        self, graph: Graph, input: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Played]:
        """The scenario's run of a graph, with a worker for as long as the block lasts."""
        site = self.site(graph)
        async with site.worker():
            yield await self.started(site, input, **options)


Scenario: TypeAlias = Callable[[Stage], Awaitable[None]]


def named(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    """Scenarios by name: `an_answer` is named `an-answer`."""
    names = [getattr(play, "__name__", "").replace("_", "-") for play in scenarios]
    assert len(set(names)) == len(names), f"two scenarios have one name: {sorted(names)}"
    return dict(zip(names, scenarios, strict=True))


async def all_at_once(calls: Sequence[Awaitable[Any]]) -> None:
    """Make calls at the same time, and wait for all of them."""
    await asyncio.gather(*calls)
