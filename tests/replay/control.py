"""Scenarios: pauses, cancels, messages, blocked code, migrations, and hand-overs to a new history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from receiver import rules
from sample_graphs import Held, State, chain, gated
from temporal_site import ANYBODY, Site, eventually, refused

from abeyance import START, Context, Graph, wire
from abeyance.core.state import Limits
from abeyance.errors import Code
from tests.replay.stage import Scenario, Stage
from tests.replay.waits import YES

HOLD = "graph:held;node:hold"


async def paused_now_and_after_the_node(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.pause(mode="now")
        await eventually(lambda: held.stopped)
        await eventually(run.is_idle)
        await run.resume()
        await eventually(lambda: held.started > 1)
        await run.pause()
        held.release.set()
        await eventually(run.is_idle)
        await run.resume()
        await run.ended()


async def paused_until_a_deadline(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d")) as run:
        await run.waiting()
        await run.pause(reason="audit", actor="ada")
        await run.pause(timeout="4h")
        await run.resume()
        await run.pause(timeout="1s", on_timeout="goto:late")
        await run.ended()


async def cancelled_while_a_node_runs(stage: Stage) -> None:
    held = Held("deaf")
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.cancel(grace=600)
        await run.cancel(mode="now")
        await run.ended("cancelled")
        held.release.set()


async def cancelled_natively_while_it_waits(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d")) as run:
        await run.waiting()
        await run.handle.cancel()
        await run.ended("cancelled")


async def blocked_until_a_worker_starts_that_has_the_code(stage: Stage) -> None:
    known, unknown = Graph("blocked", state=State), Graph("blocked", state=State)
    for graph in (known, unknown):
        graph.node(name="other", local=True)(_work)
        graph.edge(START, "other")
    known.node(name="work")(_work)
    known.edge("other", "work")
    known.node(name="local", local=True)(_work)
    known.edge("other", "local")
    site = stage.site(known)
    async with site.worker(unknown):
        run = await stage.started(site)

        async def are_blocked() -> bool:
            return len((await site.client.run(run.id).view()).blocked) == 2

        await eventually(are_blocked)
    async with site.worker(known):
        await site.client.run(run.id).worker_started()
        await run.ended()


async def migrated_while_it_waits(stage: Stage) -> None:
    old, new = gated(), gated()
    new.node(name="last")(_work)
    new.edge("after", "last")
    site = stage.site(old)
    async with site.worker(old):
        run = await stage.started(site)
        await run.waiting()
    async with site.worker(new):
        moved = await site.client.run(run.id).migrate(principal=ANYBODY)
        assert moved.before != moved.after
        await run.answer(approve=YES)
        view = await run.ended()
        assert view.values["log"][-1] == "last"


async def evicted_while_it_waits(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.say("m0")
        await run.handle.execute_update("evict")
        view = await run.ended("halted")
        assert view.reason == "evicted"


async def messages_are_taken_and_left_over(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph, limits=Limits(max_queue_size=3)) as run:
        await eventually(lambda: held.started)
        await run.say("cleared")
        assert await run.site.client.run(run.id).clear_messages() == 1
        for id_ in ("m0", "m1", "m1"):
            await run.say(id_)
        # A signal has no response, so the run records what it refuses.
        for message in ({"message_id": "m2", "text": "hello"}, {"text": 5}):
            await run.handle.signal("steer", message)
        await run.handle.signal("pause", {"timeout": "1h", "on_timeout": "goto:nowhere"})
        assert (await refused(run.say("m3"))).code is Code.QUEUE_FULL
        assert await run.take(HOLD, 2) == ["m0", "m1"]
        assert await run.take(HOLD, 4, start=2) == ["m2"]
        held.release.set()
        view = await run.ended()
        # The test took the messages in the name of the visit; the visit's code has read none of them.
        left = sorted(each.message_id for each in view.undelivered)
        assert left == ["cleared", "m0", "m1", "m2"]
        assert [note.code for note in view.rejected] == ["invalid_message"]


async def handed_over_between_nodes_while_its_start_waits(stage: Stage) -> None:
    graph = chain(5)
    graph.interrupt("approve", prompt="Go on?")
    graph.edge("n4", "approve")
    until = frozenset({"awaiting-input"})
    limits = Limits(continue_as_new_after=6)
    async with stage.run(graph, wait=30, until=until, limits=limits) as run:
        await run.answer(approve=YES)
        await run.ended()


async def handed_over_while_it_waits(stage: Stage) -> None:
    """The run has a deadline, a message, the key of a pause, and a receiver for all notifications."""
    anything = rules(({"event": ["*"]}, [{"apprise": "json://127.0.0.1:1"}]))
    graph = gated(timeout="2d")
    site = Site(
        stage.temporal,
        graph,
        patience=30,
        strict_sandbox=stage.strict_sandbox,
        notifications=anything,
    )
    async with site.worker():
        run = await stage.started(site, limits=Limits(continue_as_new_after=40))
        view = await run.waiting()
        why = wire.Undelivered(receiver="mail to ada", reason="no such address", attempts=3)
        failed = wire.NotificationFailed(
            about="interrupt.opened", undelivered=(why,), interrupt=view.interrupts[0].id
        )
        await site.client.run(run.id).notification_failed(failed, datetime.now(UTC))
        await run.say("m0")
        await run.pause(reason="audit", key="k1")
        await run.resume()
        await run.hand_over()
        await run.pause(reason="audit", key="k1")
        assert not (await run.waiting()).paused
        await run.answer(approve=YES)
        await run.ended()


async def _work(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [ctx.node]}


SCENARIOS: tuple[Scenario, ...] = (
    paused_now_and_after_the_node,
    paused_until_a_deadline,
    cancelled_while_a_node_runs,
    cancelled_natively_while_it_waits,
    blocked_until_a_worker_starts_that_has_the_code,
    migrated_while_it_waits,
    evicted_while_it_waits,
    messages_are_taken_and_left_over,
    handed_over_between_nodes_while_its_start_waits,
    handed_over_while_it_waits,
)
