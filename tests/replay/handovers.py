"""Scenarios: a run that goes on in a new history, in the middle of something."""

from __future__ import annotations

from typing import Any

from sample_graphs import Held, State, chain, gated, gates
from temporal_site import ANYBODY, eventually

from abeyance import START, Context, Graph
from abeyance.core.state import Limits
from tests.replay.stage import SHORT, Scenario, Stage, all_at_once
from tests.replay.waits import YES


async def handed_over_between_nodes(stage: Stage) -> None:
    async with stage.run(chain(5), limits=SHORT) as run:
        await run.ended()


async def handed_over_between_local_nodes(stage: Stage) -> None:
    async with stage.run(chain(12, local=True), limits=SHORT) as run:
        await run.ended()


async def handed_over_while_its_start_waits(stage: Stage) -> None:
    graph = chain(5)
    graph.interrupt("approve", prompt="Go on?")
    graph.edge("n4", "approve")
    options: dict[str, Any] = {"wait": 30, "until": frozenset({"awaiting-input"}), "limits": SHORT}
    async with stage.run(graph, **options) as run:
        await run.answer(approve=YES)
        await run.ended()


async def handed_over_while_it_waits(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d"), limits=SHORT) as run:
        await run.waiting()
        await run.hand_over()
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


async def handed_over_and_still_waiting(stage: Stage) -> None:
    async with stage.run(gates(2), limits=SHORT) as run:
        await run.waiting()
        await run.answer(gate0=0)
        await run.hand_over()
        await run.waiting()


async def handed_over_with_the_key_of_a_pause(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d"), limits=SHORT) as run:
        await run.waiting()
        await run.pause(reason="audit", key="k1")
        await run.resume()
        await run.hand_over()
        await run.pause(reason="audit", key="k1")
        assert not (await run.waiting()).paused
        await run.handle.signal("cancel", {"key": "k1"})
        await run.answer(approve=YES)
        await run.ended()


async def handed_over_while_it_is_answered(stage: Stage) -> None:
    async with stage.run(gates(6), limits=SHORT) as run:
        asked = (await run.waiting()).interrupts
        await all_at_once(
            [
                run.site.client.run(run.id).respond({entry.id: number}, principal=ANYBODY)
                for number, entry in enumerate(asked)
            ]
        )
        await run.ended()


async def handed_over_while_it_is_steered(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph, limits=SHORT) as run:
        await eventually(lambda: held.started)
        for number in range(30):
            await run.say(f"m{number}")
            if held.started > 1:
                break
        await eventually(lambda: held.started > 1)
        assert await run.take("graph:held;node:hold", 2) == ["m0", "m1"]
        held.release.set()
        await run.ended()


async def handed_over_while_it_is_paused(stage: Stage) -> None:
    async with stage.run(gated(), limits=SHORT) as run:
        await run.waiting()
        await run.hand_over()
        await run.pause(timeout="4h")
        before = await run.execution()
        for number in range(10):
            await run.say(f"m{number}")
        assert await run.execution() != before
        await run.resume()
        await run.cancel()
        await run.ended("cancelled")


async def answered_after_a_hand_over(stage: Stage) -> None:
    # The answer and what follows it are in one history, which began with the question open.
    async with stage.run(gated(timeout="2d"), limits=Limits(continue_as_new_after=30)) as run:
        await run.waiting()
        await run.hand_over()
        before = await run.execution()
        await run.answer(approve=YES)
        await run.ended()
        assert await run.execution() == before


async def rule_answered_after_a_hand_over(stage: Stage) -> None:
    graph = Graph("ruled", state=State)
    for name in ("work", "next"):
        graph.node(name=name)(_work)
    graph.edge(START, "work")
    graph.edge("work", "next")
    asks = {"kind": "interrupt", "prompt": "Sure?", "response": bool}
    graph.rule("sure", when={"node": "work"}, then=[asks])
    async with stage.run(graph, limits=Limits(continue_as_new_after=30)) as run:
        await run.waiting()
        await run.hand_over()
        before = await run.execution()
        await run.answer(sure=True)
        view = await run.ended()
        assert view.values["log"] == ["work", "next"]
        assert await run.execution() == before


async def handed_over_before_a_deadline(stage: Stage) -> None:
    # On a machine that is busy, a hand-over takes some seconds.
    async with stage.run(gated(timeout="15s", on_timeout="goto:late"), limits=SHORT) as run:
        await run.waiting()
        await run.hand_over()
        await run.ended()


async def _work(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [ctx.node]}


SCENARIOS: tuple[Scenario, ...] = (
    handed_over_between_nodes,
    handed_over_between_local_nodes,
    handed_over_while_its_start_waits,
    handed_over_while_it_waits,
    handed_over_and_still_waiting,
    handed_over_with_the_key_of_a_pause,
    handed_over_while_it_is_answered,
    handed_over_while_it_is_steered,
    handed_over_while_it_is_paused,
    answered_after_a_hand_over,
    rule_answered_after_a_hand_over,
    handed_over_before_a_deadline,
)
