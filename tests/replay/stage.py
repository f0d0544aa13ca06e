"""The stage of a scenario: a server, a worker, and a run with the scenario's name."""

from __future__ import annotations

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
        """The Temporal handle of the run."""
        return self.site.temporal.get_workflow_handle(self.id)

    async def waiting(self) -> views.RunView:
        """Wait until the run can only go on with an answer, and return its view."""
        return await self.site.until(self.id, "awaiting-input")

    async def until(self, *statuses: str) -> views.RunView:
        """Wait until the run has one of these statuses, and return its view."""
        return await self.site.until(self.id, *statuses)

    async def ended(self, status: str = "completed") -> views.RunView:
        """Wait for the end of the run, check its status, and return its view."""
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
        """Send a message, and return its receipt."""
        message = commands.SteerMessage(message_id=id_, text=text)
        return await self.site.client.run(self.id).send_message(message)

    async def take(self, visit: str, upto: int, *, start: int = 0) -> list[str]:
        """Take messages for a visit, from number `start` on, and return their ids."""
        order = commands.TakeMessages(visit=visit, start=start, upto=upto)
        taken = await self.handle.execute_update("take_messages", order)
        return [message["message_id"] for message in taken]

    async def is_idle(self) -> bool:
        """Return whether no node runs."""
        return not (await self.site.client.run(self.id).view()).running

    async def execution(self) -> str:
        """Return the Temporal run id of the newest history."""
        execution = (await self.handle.describe()).run_id
        assert execution is not None
        return execution

    async def hand_over(self) -> None:
        """Keep a waiting run busy until it continues in a new history."""
        before = await self.execution()
        for _ in range(20):
            # A control is a signal, so only the changed status shows that the run has got it.
            await self.pause()
            await self.until("paused")
            await self.resume()
            await self.waiting()
            if await self.execution() != before:
                return
        message = f"{self.id}: twenty pauses, and no hand-over"
        raise AssertionError(message)


class Stage:
    """A server for one scenario. `name` is the scenario's name, and the id of its run."""

    def __init__(
        self, name: str, temporal: TemporalClient, *, strict_sandbox: bool = False
    ) -> None:
        self.name = name
        self.temporal = temporal
        self.strict_sandbox = strict_sandbox

    def site(self, *graphs: Graph) -> Site:
        """Return a site with a task queue for these graphs, and no worker yet."""
        return Site(self.temporal, *graphs, patience=30, strict_sandbox=self.strict_sandbox)

    async def started(
        self, site: Site, input: dict[str, Any] | None = None, **options: Any
    ) -> Played:
        """Start the scenario's run at a site. The options are those of `Client.start`."""
        options = {"labels": {"kind": "replay"}, "conversation_id": self.name, **options}
        await site.start(input, run_id=self.name, **options)
        return Played(site, self.name)

    @asynccontextmanager
    async def run(
        self, graph: Graph, input: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Played]:
        """Start the scenario's run of a graph, with a worker until the block ends."""
        site = self.site(graph)
        async with site.worker():
            yield await self.started(site, input, **options)


Scenario: TypeAlias = Callable[[Stage], Awaitable[None]]


def named(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    """Return scenarios by name: `an_answer` gets the name `an-answer`."""
    names = [getattr(play, "__name__", "").replace("_", "-") for play in scenarios]
    assert len(set(names)) == len(names), f"two scenarios have one name: {sorted(names)}"
    return dict(zip(names, scenarios, strict=True))
