"""Fused nodes on a real server: one activity, and every node as if it had one of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sample_graphs import State, chain
from temporal_site import ANYBODY, Site, eventually
from temporalio import activity
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, views
from abeyance.activities import hops
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal, StillPaused
from abeyance.history.feed import Feed


class Middle:
    """`a`, then `hold`, which holds until it is let go, then `c`: fused, with what has run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.told: list[str] = []
        self.release, self.reached = threading.Event(), threading.Event()
        self.graph = Graph("middle", state=State)

        @self.graph.node
        async def a(state: State) -> dict[str, Any]:
            self.ran.append("a")
            return {"log": ["a"]}

        @self.graph.node
        async def hold(state: State, ctx: Context) -> dict[str, Any]:
            self.ran.append("hold")
            await ctx.step("first", self.told.append, "step")
            try:
                while not self.release.is_set():
                    await asyncio.sleep(0.02)
                    if activity.is_cancelled():
                        self.reached.set()
                    if (message := await ctx.check_interrupt()) is not None:
                        return {"log": [message.text]}
            except asyncio.CancelledError:
                self.told.append("stopped")
                raise
            return {"log": ["hold"]}

        @self.graph.node
        async def c(state: State) -> dict[str, Any]:
            self.ran.append("c")
            return {"log": ["c"]}

        self.graph.edge(START, "a")
        self.graph.edge("a", "hold")
        self.graph.edge("hold", "c")
        self.graph.build(fuse=True)

    async def holds(self) -> None:
        await eventually(lambda: "step" in self.told)


@asynccontextmanager
async def held(temporal: TemporalClient) -> AsyncIterator[tuple[Middle, Site, str]]:
    """A run whose second node holds, and the worker on which it does."""
    middle = Middle()
    site = Site(temporal, middle.graph)
    async with site.worker():
        run_id = await site.start()
        await middle.holds()
        yield middle, site, run_id


async def feed(site: Site, run_id: str) -> list[views.Event]:
    page, _ = await Feed(site.temporal, site.settings.task_queue).page(run_id, None, 1_000)
    return page


async def activities(site: Site, run_id: str) -> list[str]:
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in (await site.history(run_id)).events
    ]
    return [name for name in scheduled if name]


async def test_fused_nodes_are_one_activity_and_each_has_its_events_and_times(
    temporal: TemporalClient,
) -> None:
    graph = chain(3)
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert ended.values["log"] == ["n0", "n1", "n2"]
    assert await activities(site, run_id) == ["chain.n0+n1+n2"]
    events = await feed(site, run_id)
    assert [(each.type, (each.address or "")[-2:]) for each in events] == [
        ("run.started", ""),
        *[(f"node.{what}", f"n{n}") for n in range(3) for what in ("started", "finished")],
        ("run.completed", ""),
    ]
    times = [each.time for each in events]
    assert times == sorted(times)
    assert len({*times}) == len(times)


async def test_a_hop_ends_at_a_question_and_the_next_begins_behind_it(
    temporal: TemporalClient,
) -> None:
    graph = chain(2)
    graph.interrupt("ask", prompt="Go on?")
    for name in ("x", "y"):

        @graph.node(name=name)
        async def work(state: State, ctx: Context, name: str = name) -> dict[str, Any]:
            return {"log": [f"{name} {ctx.answers['ask']}"]}

    graph.edge("n1", "ask")
    graph.edge("ask", "x")
    graph.edge("x", "y")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).respond(response="yes", principal=ANYBODY)
        ended = await site.ended(run_id)

    assert ended.values["log"] == ["n0", "n1", "x yes", "y yes"]
    assert await activities(site, run_id) == ["chain.n0+n1", "chain.x+y"]


async def test_a_pause_lets_the_node_that_runs_end_and_begins_none_after_it(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).pause()
        await eventually(middle.reached.is_set)
        assert "stopped" not in middle.told
        middle.release.set()
        await eventually(lambda: _ended(site, run_id, "hold"))
        paused = await site.client.run(run_id).view()
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert paused.values["log"] == ["a", "hold"]
    assert ended.values["log"] == ["a", "hold", "c"]
    assert middle.ran == ["a", "hold", "c"]


async def _ended(site: Site, run_id: str, node: str) -> bool:
    return "node.finished" in await _events_of(site, run_id, node)


async def _events_of(site: Site, run_id: str, node: str) -> list[str]:
    return [
        each.type for each in await feed(site, run_id) if str(each.address).endswith(f":{node}")
    ]


async def _reached_by_the_pause() -> None:
    """Wait, in a node, until the answer to a heartbeat has told its activity of the pause."""
    while not activity.is_cancelled():
        await asyncio.sleep(0.02)


async def test_a_fused_node_that_waits_while_its_run_is_paused_goes_on_after_the_pause(
    temporal: TemporalClient,
) -> None:
    graph = chain(1)
    told: list[Any] = []
    begun = threading.Event()

    @graph.node
    async def wait(state: State, ctx: Context) -> dict[str, Any]:
        begun.set()
        await _reached_by_the_pause()
        try:
            await ctx.wait_if_paused(0.1)
        except StillPaused:
            told.append("still paused")
        told.append(await ctx.wait_if_paused())
        return {"log": ["waited"]}

    graph.edge("n0", "wait")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(begun.is_set)
        await site.client.run(run_id).pause()
        await eventually(lambda: told)
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)

    assert told == ["still paused", True]
    assert ended.values["log"] == ["n0", "waited"]


async def test_a_fused_node_that_cancels_its_own_task_in_a_pause_fails(
    temporal: TemporalClient,
) -> None:
    graph = chain(1)
    begun = threading.Event()

    @graph.node
    async def quits(state: State) -> dict[str, Any]:
        begun.set()
        await _reached_by_the_pause()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)
        raise AssertionError("it went on")

    graph.edge("n0", "quits")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(begun.is_set)
        await site.client.run(run_id).pause()
        await eventually(lambda: _events_of(site, run_id, "quits"))
        last = (await feed(site, run_id))[-1]

    assert last.type == "node.retrying"
    assert "the node cancelled its own task" in str(last.data["message"])


async def test_a_pause_now_stops_the_node_that_runs_and_keeps_what_was_done(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).pause(mode="now")
        await eventually(lambda: "stopped" in middle.told)
        await site.until(run_id, "paused")
        middle.release.set()
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)

    assert ended.values["log"] == ["a", "hold", "c"]
    # What had been done was not done again, and neither was the step.
    assert middle.ran == ["a", "hold", "hold", "c"]
    assert middle.told == ["step", "stopped"]
    stopped = [each.address for each in await feed(site, run_id) if each.type == "node.stopped"]
    assert stopped == ["graph:middle;node:hold"]


async def test_a_node_that_comes_to_its_end_in_a_pause_is_stopped_by_a_cancel(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).pause()
        await eventually(middle.reached.is_set)
        await site.client.run(run_id).cancel()
        ended = await site.ended(run_id, seconds=20)

    assert ended.status == "cancelled"
    assert ended.values["log"] == ["a"]
    assert middle.told == ["step", "stopped"]


async def test_a_run_that_was_cancelled_in_a_hop_is_retried_without_what_was_done(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).cancel()
        cancelled = await site.ended(run_id)
        middle.release.set()
        await site.client.run(run_id).retry()
        ended = await site.ended(run_id)

    assert (cancelled.status, cancelled.values["log"]) == ("cancelled", ["a"])
    assert (ended.status, ended.values["log"]) == ("completed", ["a", "hold", "c"])
    assert middle.ran == ["a", "hold", "hold", "c"]
    assert middle.told == ["step", "stopped"]


async def test_a_cancel_that_does_not_wait_for_a_hop_keeps_what_was_done_in_it(
    temporal: TemporalClient,
) -> None:
    graph = chain(1)
    ran: list[str] = []
    release = threading.Event()

    @graph.node
    def deaf(state: State) -> dict[str, Any]:
        ran.append("deaf")
        release.wait()
        return {"log": ["deaf"]}

    @graph.node
    def close(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"closed: {ctx.outcome}"]}

    graph.edge("n0", "deaf")
    graph.finally_("close")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: ran)
        await site.client.run(run_id).cancel(mode="now")
        cancelled = await site.ended(run_id, seconds=20)
        done = await _events_of(site, run_id, "n0")
        release.set()
        await site.client.run(run_id).retry()
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert (cancelled.status, cancelled.values["log"]) == ("cancelled", ["n0", "closed: cancelled"])
    assert ended.values["log"] == ["n0", "deaf", "closed: completed"]
    assert done == ["node.started", "node.finished"]


async def test_the_deadline_of_a_pause_that_leads_elsewhere_keeps_what_was_done_in_a_hop(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).pause(timeout=1, on_timeout="goto:c")
        ended = await site.ended(run_id, seconds=20)
        await site.replays(run_id)

    assert ended.values["log"] == ["a", "c"]
    assert middle.told == ["step", "stopped"]


async def test_a_node_in_a_hop_receives_a_message_that_comes_while_it_runs(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).send(text="hello")
        ended = await site.ended(run_id)

    assert ended.values["log"] == ["a", "hello", "c"]
    assert middle.ran == ["a", "hold", "hold", "c"]
    assert middle.told == ["step"]
    assert ended.undelivered == []


async def test_a_run_is_not_migrated_while_it_does_not_know_where_its_hop_is(
    temporal: TemporalClient,
) -> None:
    async with held(temporal) as (middle, site, run_id):
        with pytest.raises(Refusal, match="pause the run, and migrate it") as refused:
            await site.client.run(run_id).migrate(principal=ANYBODY)
        middle.release.set()
        ended = await site.ended(run_id)

    assert refused.value.code == Code.CANNOT_MIGRATE
    assert ended.values["log"] == ["a", "hold", "c"]


async def test_a_node_that_a_deploy_has_removed_blocks_its_own_visit_and_no_other(
    temporal: TemporalClient,
) -> None:
    middle = Middle()
    middle.release.set()
    without = Graph("middle", state=State)

    @without.node
    async def a(state: State) -> dict[str, Any]:
        middle.ran.append("a")
        return {"log": ["a"]}

    without.edge(START, "a")
    site = Site(temporal, middle.graph)
    async with site.worker(without):
        run_id = await site.start()
        view = await site.until_blocked(run_id, attempt=2)
    async with site.worker():
        ended = await site.ended(run_id)

    (why,) = view.blocked
    assert (why.code, why.node, why.address) == (
        "code_missing",
        "middle.hold",
        "graph:middle;node:hold",
    )
    assert view.values["log"] == ["a"]
    assert ended.values["log"] == ["a", "hold", "c"]
    assert middle.ran == ["a", "hold", "c"]


async def test_a_node_that_returns_too_much_fails_its_own_visit_and_no_other(
    temporal: TemporalClient,
) -> None:
    graph = chain(1)

    @graph.node
    async def much(state: State) -> dict[str, Any]:
        return {"log": ["x" * 1_600_000]}

    graph.edge("n0", "much")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)

    assert ended.error is not None
    assert (ended.error.code, ended.error.address) == ("invalid_patch", "graph:chain;node:much")
    assert ended.values["log"] == ["n0"]


async def test_large_results_end_a_hop_before_they_are_too_large_together(
    temporal: TemporalClient,
) -> None:
    graph = Graph("large", state=State)
    for number in range(3):

        @graph.node(name=f"n{number}")
        async def large(state: State) -> dict[str, Any]:
            return {"log": ["x" * 400_000]}

        graph.edge(f"n{number - 1}" if number else START, f"n{number}")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)

    assert len(ended.values["log"]) == 3
    assert await activities(site, run_id) == ["large.n0+n1+n2", "large.n1+n2", "large.n2"]


async def test_a_hop_comes_back_after_its_time(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hops, "HOP_SECONDS", 0.0)
    graph = chain(3)
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)

    assert ended.values["log"] == ["n0", "n1", "n2"]
    assert await activities(site, run_id) == ["chain.n0+n1+n2", "chain.n1+n2", "chain.n2"]


async def test_a_long_chain_of_fused_nodes_is_handed_over_between_its_hops(
    temporal: TemporalClient,
) -> None:
    graph = chain(120, "long")
    graph.build(fuse=True)
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=10))
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert ended.values["log"] == [f"n{number}" for number in range(120)]
    begun = (await site.history(run_id)).events[0].workflow_execution_started_event_attributes
    assert begun.continued_execution_run_id
    finished = [each for each in await feed(site, run_id) if each.type == "node.finished"]
    assert len(finished) == 120


async def test_what_happens_to_a_hop_can_be_replayed(temporal: TemporalClient) -> None:
    async with held(temporal) as (middle, site, run_id):
        await site.client.run(run_id).send(text="hello", action="defer")
        await site.pause_and_resume(run_id)
        middle.release.set()
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert ended.values["log"] == ["a", "hold", "c"]
    assert middle.ran.count("a") == middle.told.count("step") == 1
    assert [todo["text"] for todo in ended.todos] == ["hello"]
