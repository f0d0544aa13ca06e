"""Operators' actions on a run have the same effects with required encryption as without.

Temporal itself writes clear text, for example about activities that it cancels before they begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import pytest
from pydantic import BaseModel
from sealed_site import a_key, replays
from stored import connected
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker

from abeyance import START, Backoff, Context, Graph, append
from abeyance.core.state import Limits
from abeyance.errors import Blocked, BlockedCode
from abeyance.handle import RunHandle
from abeyance.settings import Settings

# The SDK warns of a cancellation that arrives when the activity has just ended.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")

_WITHIN: Final = 90
"""In seconds: far more than anything here takes."""
_SLOTS: Final = 6
"""The activities that a busy worker can run at once. Other runs take all of these slots."""


class State(BaseModel):
    work: str = "queued"
    answer: str = ""
    log: Annotated[list[str], append] = []


def touring(held: asyncio.Event, *more: str) -> Graph:
    """`work` does what the run's input says, beside a question that can lead to the failing `boom`."""
    graph = Graph("touring", state=State)

    @graph.node(retries=9, backoff=Backoff(first="1h", most="1h"))
    async def work(state: State) -> None:
        if state.work == "blocked":
            raise Blocked("the code is elsewhere", code=BlockedCode.CODE_MISSING)
        if state.work == "retrying":
            raise ConnectionError("try later")
        while not held.is_set():
            try:
                await held.wait()
            except asyncio.CancelledError:
                if state.work != "stubborn":
                    raise

    @graph.node(local=True, retries=0)
    async def boom(state: State) -> None:
        raise RuntimeError("this branch fails")

    @graph.node(local=True)
    async def late(state: State) -> dict[str, Any]:
        return {"log": ["late"]}

    @graph.node
    async def tidy(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"tidied up: {ctx.outcome}"]}

    graph.interrupt("ask", prompt="Go on?", response=str, answer_to="answer")
    for node in more:
        # No test gives the answer that leads there.
        graph.node(name=node)(boom)
        graph.edge("ask", node, when={"answer": node})
    graph.edge(START, "work")
    graph.edge(START, "ask")
    graph.edge("ask", "boom", when={"answer": "fail"})
    graph.edge("ask", "late", when="else")
    graph.finally_("tidy")
    return graph


def hogging(held: asyncio.Event) -> Graph:
    """Keeps one slot of a worker."""
    graph = Graph("hogging")

    # With a shorter heartbeat, a busy machine could time out the node, and a visitor get its slot.
    @graph.node(heartbeat="10m")
    async def hold(state: Any) -> None:
        await held.wait()

    graph.edge(START, "hold")
    return graph


@dataclass
class Stop:
    """A stop of the tour: one deployment, and the events that keep its nodes waiting."""

    site: Site
    before: Graph
    hogs: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def opened(temporal: TemporalClient) -> AsyncIterator[Stop]:
    held, hogs = asyncio.Event(), asyncio.Event()
    today = touring(held, "later")
    stop = Stop(Site(temporal, today, hogging(hogs)), touring(held), hogs, held)
    async with stop.site.worker():
        try:
            yield stop
        finally:
            hogs.set()
            held.set()


# The actions of an operator


async def cancel(run: RunHandle, site: Site) -> None:
    await run.cancel("no longer wanted")


async def cancel_now(run: RunHandle, site: Site) -> None:
    await run.cancel("no longer wanted", mode="now")


async def pause(run: RunHandle, site: Site) -> None:
    await run.pause(mode="now")
    await site.until(run.run_id, "paused")
    await run.resume()
    await site.until(run.run_id, "running", "awaiting-input")
    await run.cancel()


async def migrate(run: RunHandle, site: Site) -> None:
    done = await run.migrate(pause=True, principal=ANYBODY)
    assert done.before != done.after == (await run.view()).graph_version
    await run.cancel()


async def pause_to_migrate(run: RunHandle, site: Site) -> None:
    await run.pause(mode="now")
    await migrate(run, site)


async def pause_to_goto(run: RunHandle, site: Site) -> None:
    await run.pause(mode="now", timeout="0.2s", on_timeout="goto:late", principal=ANYBODY)


async def deadline_to_goto(run: RunHandle, site: Site) -> None:
    await _expire(run, "goto:late")

    async def is_late() -> bool:
        return "late" in (await run.view()).values["log"]

    await eventually(is_late, seconds=_WITHIN)
    await run.cancel()


async def deadline_to_halt(run: RunHandle, site: Site) -> None:
    await _expire(run, "halt")


async def fail_beside(run: RunHandle, site: Site) -> None:
    await run.respond(response="fail", principal=ANYBODY)


async def _expire(run: RunHandle, then: str) -> None:
    (asked,) = await run.interrupts()
    await run.edit_deadline(asked.id, timeout="0.2s", on_timeout=then, principal=ANYBODY)


Deed: TypeAlias = Callable[[RunHandle, Site], Coroutine[Any, Any, None]]

TOUR: Mapping[Deed, tuple[str, list[str]]] = {
    cancel: ("cancelled", ["tidied up: cancelled"]),
    cancel_now: ("cancelled", ["tidied up: cancelled"]),
    pause: ("cancelled", ["tidied up: cancelled"]),
    pause_to_goto: ("completed", ["late", "tidied up: completed"]),
    deadline_to_goto: ("cancelled", ["late", "tidied up: cancelled"]),
    deadline_to_halt: ("halted", ["tidied up: halted"]),
    fail_beside: ("failed", ["tidied up: failed"]),
}
_WAITS_FOR_A_SLOT: Final = {pause, pause_to_goto, pause_to_migrate}
"""Deeds that begin with an activity of the run itself, which reads journals and needs a slot."""


async def reached(stop: Stop, run_id: str, state: str) -> None:
    """Wait until the node `work` is in this state, and the question beside it is open."""
    site = stop.site
    await eventually(site.client.run(run_id).interrupts, seconds=_WITHIN)
    match state:
        case "queued":
            await site.until(run_id, "awaiting-input", "running")
        case "blocked":
            await eventually(lambda: site.events(run_id, "node.blocked"), seconds=_WITHIN)
        case "retrying":
            await eventually(lambda: site.events(run_id, "node.retrying"), seconds=_WITHIN)
        case _:
            await eventually(lambda: site.events(run_id, "node.started"), seconds=_WITHIN)
            await site.until(run_id, "running", "awaiting-input")


@dataclass
class Visitor:
    """A run in one state, and the one thing that an operator does to it."""

    stop: Stop
    state: str
    what: Deed
    run_id: str = ""
    doing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the run and the deed. If the worker is busy, wait until Temporal cancels the activity."""
        site = self.stop.site
        self.run_id = await site.start(
            {"work": self.state}, graph=self.stop.before, limits=Limits(grace=0.5)
        )
        await reached(self.stop, self.run_id, self.state)
        run = site.client.run(self.run_id)
        self.doing = asyncio.create_task(self.what(run, site))
        if self.state == "queued" and self.what not in _WAITS_FOR_A_SLOT:
            await eventually(lambda: never_began(site, self.run_id), seconds=_WITHIN)

    async def end(self) -> tuple[str, list[str]]:
        """Return how the run ends, and check that it can be replayed."""
        assert self.doing is not None
        await self.doing
        ended = await self.stop.site.ended(self.run_id, seconds=_WITHIN)
        await replays(self.stop.site, self.run_id)
        return ended.status, ended.values["log"]


async def never_began(site: Site, run_id: str) -> bool:
    """Return whether Temporal has cancelled an activity that no worker has begun."""
    return any(
        event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED
        and b"ACTIVITY_ID_NOT_STARTED" in event.SerializeToString()
        for event in (await site.history(run_id)).events
    )


_PLACES: Final[Mapping[str, Sequence[Deed]]] = {
    "queued": [*TOUR],
    "running": [*TOUR],
    "blocked": [*TOUR],
    "retrying": [*TOUR],
    # A pause or a migration would wait for code that does not stop.
    "stubborn": [cancel, cancel_now, deadline_to_halt, fail_beside],
}


async def tour(
    temporal: TemporalClient,
    monkeypatch: pytest.MonkeyPatch,
    secrecy: str,
    state: str,
    deeds: Sequence[Deed],
) -> dict[Deed, tuple[str, list[str]]]:
    """Return how runs in one state end, by the operator's deed."""
    monkeypatch.setattr("abeyance.worker.Worker", partial(Worker, max_concurrent_activities=_SLOTS))
    if secrecy == "required":
        settings = Settings(encryption_keys=a_key(), encryption_required=True)
        temporal = connected(temporal, settings)
    async with opened(temporal) as stop:
        if state == "queued":
            for _ in range(_SLOTS):
                busy = await stop.site.start(graph=stop.site.graphs["hogging"])
                await eventually(partial(stop.site.events, busy, "node.started"), seconds=_WITHIN)
        visitors = [Visitor(stop, state, what) for what in deeds]
        await asyncio.gather(*(visitor.begin() for visitor in visitors))
        stop.hogs.set()
        ends = await asyncio.gather(*(visitor.end() for visitor in visitors))
    return {each.what: end for each, end in zip(visitors, ends, strict=True)}


@pytest.mark.parametrize(
    ("secrecy", "state"),
    [
        # Without encryption only the state about which Temporal itself writes is tried.
        ("open", "queued"),
        *(("required", state) for state in _PLACES if state != "retrying"),
        # A node that waits for its next attempt has no activity about which Temporal could write.
        pytest.param("required", "retrying", marks=[pytest.mark.slow]),
    ],
)
async def test_operators_actions_have_the_same_effects_with_required_encryption(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch, secrecy: str, state: str
) -> None:
    assert await tour(temporal, monkeypatch, secrecy, state, _PLACES[state]) == {
        what: TOUR[what] for what in _PLACES[state]
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "deeds"),
    [
        # A migration alone would let a queued or running node end first.
        ("queued", [pause_to_migrate]),
        ("running", [pause_to_migrate]),
        ("blocked", [migrate, pause_to_migrate]),
        ("retrying", [migrate, pause_to_migrate]),
    ],
)
async def test_a_migration_comes_to_the_same_with_required_encryption(
    temporal: TemporalClient,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    deeds: list[Deed],
) -> None:
    found = await tour(temporal, monkeypatch, "required", state, deeds)

    assert found == dict.fromkeys(deeds, ("cancelled", ["tidied up: cancelled"]))
