"""Scenarios: pause, resume and cancel, from our client and from Temporal itself."""

from __future__ import annotations

import threading
from typing import Any

from sample_graphs import Held, State, gated, gates
from temporal_site import ANYBODY, eventually
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from abeyance import START, Context, Graph
from tests.replay.stage import Played, Scenario, Stage

YES = {"approved": True}


async def paused_while_it_waits(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.pause(reason="audit", actor="ada")
        await run.answer(approve=YES)
        await run.resume()
        await run.ended()


async def still_paused(stage: Stage) -> None:
    async with stage.run(gates(2)) as run:
        await run.waiting()
        await run.answer(gate0=0)
        await run.pause(timeout="1d")


async def paused_after_the_node(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.pause()
        held.release.set()
        await eventually(run.is_idle)
        await run.resume()
        await run.ended()


async def paused_now(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.pause(mode="now")
        await eventually(lambda: held.stopped)
        await eventually(run.is_idle)
        held.release.set()
        await run.resume()
        await run.ended()


async def paused_and_resumed_again_and_again(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d")) as run:
        await run.waiting()
        for _ in range(3):
            await run.pause(timeout="4h")
            await run.pause(reason="a second time")
            await run.resume()
            await run.resume()
        await run.answer(approve=YES)
        await run.ended()


async def pause_deadline_resumes(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.pause(timeout="1s")
        await run.answer(approve=YES)
        await run.ended()


async def pause_deadline_halts(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.pause(timeout="1s", on_timeout="halt")
        await run.ended("halted")


async def pause_deadline_goes_elsewhere(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.pause(timeout="1s", on_timeout="goto:late")
        await run.ended()


async def cancelled_while_it_waits(stage: Stage) -> None:
    async with stage.run(gates(2)) as run:
        await run.waiting()
        await run.cancel(reason="wrong file", actor="ada")
        await run.ended("cancelled")


async def cancelled_while_it_is_paused(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d")) as run:
        await run.waiting()
        await run.pause(timeout="4h")
        await run.cancel()
        await run.ended("cancelled")


async def cancelled_while_a_node_runs(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.cancel()
        await run.ended("cancelled")


async def cancelled_with_a_node_that_will_not_stop(stage: Stage) -> None:
    held = Held("deaf")
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.cancel(grace=0.5)
        await run.ended("cancelled")
        held.release.set()


async def cancelled_now(stage: Stage) -> None:
    held = Held("deaf")
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.cancel(mode="now")
        await run.ended("cancelled")
        held.release.set()


async def cancelled_gracefully_and_then_now(stage: Stage) -> None:
    held = Held("deaf")
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.cancel(grace=600)
        await run.cancel(mode="now")
        await run.ended("cancelled")
        held.release.set()


async def cancelled_before_the_node_was_begun(stage: Stage) -> None:
    # Its worker has other code, so the node's activity only waits to be tried again.
    known, unknown = Graph("early", state=State), Graph("early", state=State)
    for graph in (known, unknown):
        graph.node(name="other", local=True)(_tidy)
        graph.edge(START, "other")
    known.node(name="work")(_tidy)
    known.edge("other", "work")
    site = stage.site(known)
    async with site.worker(unknown):
        run = await stage.started(site)

        async def is_blocked() -> bool:
            return bool((await site.client.run(run.id).view()).blocked)

        await eventually(is_blocked)
        await run.cancel()
        await run.ended("cancelled")


async def blocked_until_a_worker_starts_that_has_the_code(stage: Stage) -> None:
    known, unknown = Graph("blocked", state=State), Graph("blocked", state=State)
    for graph in (known, unknown):
        graph.node(name="other", local=True)(_tidy)
        graph.edge(START, "other")
    known.node(name="work")(_tidy)
    known.edge("other", "work")
    known.node(name="local", local=True)(_tidy)
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
    async def last(state: State) -> dict[str, Any]:
        return {"log": ["last"]}

    old, new = gated(), gated()
    new.node(name="last")(last)
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


async def cancelled_while_a_local_node_runs(stage: Stage) -> None:
    held = Held(local=True)
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        # The run hears of it when its workflow task, which lasts as long as the node, is renewed.
        await run.handle.signal("cancel")
        await eventually(lambda: held.stopped)
        await run.ended("cancelled")


async def cancelled_in_the_finally_nodes(stage: Stage) -> None:
    holds = Held()
    graph = Graph("tidying", state=State)
    graph.node(name="work", local=True)(_tidy)
    graph.node(name="sweep")(holds.graph.code["hold"].function)
    graph.node(name="lock-up")(_tidy)
    graph.edge(START, "work")
    graph.finally_("sweep", "lock-up")
    async with stage.run(graph) as run:
        await eventually(lambda: holds.started)
        await run.cancel(reason="too late to be how it ended")
        await run.cancel(mode="now")
        view = await run.ended()
        assert "sweep completed" not in view.values["log"]


async def cancelled_natively_while_it_waits(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d")) as run:
        await run.waiting()
        await run.handle.cancel()
        await run.ended("cancelled")


async def cancelled_natively_while_a_node_runs(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.handle.cancel()
        await run.ended("cancelled")


async def signals_without_an_argument(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.handle.signal("pause")
        await run.until("paused")
        await run.handle.signal("resume")
        await run.waiting()
        await run.handle.signal("cancel")
        await run.ended("cancelled")


async def signals_before_the_first_task(stage: Stage) -> None:
    site = stage.site(gated())
    # A conversation is claimed by a worker, and there is none yet.
    run = await stage.started(site, conversation_id=None)
    await run.handle.signal("pause")
    await run.handle.signal("steer", {"message_id": "early", "text": "hello"})
    async with site.worker():
        await run.until("paused")
        await run.resume()
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


async def a_signal_that_is_refused(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.handle.signal("pause", {"timeout": "1h", "on_timeout": "goto:nowhere"})
        await run.answer(approve=YES)
        await run.ended()


async def signals_that_nobody_can_read(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        broken = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"stop it"))
        await run.handle.signal("pause", {"mood": "now"})
        await run.handle.signal("cancel", broken)
        await run.handle.signal("steer", broken)
        await eventually(lambda: _has_rejected(run))
        assert not (await run.waiting()).paused
        await run.answer(approve=YES)
        await run.ended()


async def _has_rejected(run: Played) -> bool:
    return [note.code for note in (await run.waiting()).rejected] == ["invalid_message"]


async def paused_natively(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.pause_natively()
        await run.handle.signal("steer", {"message_id": "meanwhile", "text": "hello"})
        await run.unpause_natively()
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


async def reset_by_an_operator(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.pause()
        await run.resume()
        before = await run.execution()
        await run.reset()

        async def is_another() -> bool:
            return await run.execution() != before

        await eventually(is_another)
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


async def a_finally_node_that_takes_too_long(stage: Stage) -> None:
    held = threading.Event()
    graph = Graph("slow", state=State)
    graph.node(name="work")(_tidy)

    @graph.node(name="sweep", timeout="500ms", retries=0)
    def sweep(state: State) -> dict[str, Any]:
        held.wait(20)
        return {}

    graph.edge(START, "work")
    graph.finally_("sweep")
    async with stage.run(graph) as run:
        await run.ended()
        held.set()


async def _tidy(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [f"{ctx.node} {ctx.outcome}"]}


async def evicted_while_it_waits(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.say("m0")
        await run.handle.execute_update("evict")
        view = await run.ended("halted")
        assert view.reason == "evicted"


async def in_a_conversation(stage: Stage) -> None:
    async with stage.run(gated(), conversation_id="talk") as run:
        await run.waiting()
        await run.answer(approve={"approved": True})
        await run.ended()


SCENARIOS: tuple[Scenario, ...] = (
    evicted_while_it_waits,
    in_a_conversation,
    paused_while_it_waits,
    still_paused,
    paused_after_the_node,
    paused_now,
    paused_and_resumed_again_and_again,
    pause_deadline_resumes,
    pause_deadline_halts,
    pause_deadline_goes_elsewhere,
    cancelled_while_it_waits,
    cancelled_while_it_is_paused,
    cancelled_while_a_node_runs,
    cancelled_with_a_node_that_will_not_stop,
    cancelled_now,
    cancelled_gracefully_and_then_now,
    cancelled_before_the_node_was_begun,
    cancelled_while_a_local_node_runs,
    cancelled_in_the_finally_nodes,
    cancelled_natively_while_it_waits,
    cancelled_natively_while_a_node_runs,
    blocked_until_a_worker_starts_that_has_the_code,
    migrated_while_it_waits,
    signals_without_an_argument,
    signals_before_the_first_task,
    a_signal_that_is_refused,
    signals_that_nobody_can_read,
    paused_natively,
    reset_by_an_operator,
    a_finally_node_that_takes_too_long,
)
