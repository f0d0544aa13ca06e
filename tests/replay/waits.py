"""Scenarios: questions that the graph asks, their answers, and deadlines that pass."""

from __future__ import annotations

import asyncio
from typing import Any

from sample_graphs import State, gated, gates
from temporal_site import ANYBODY, eventually, refused

from abeyance import END, START, Calendar, Context, Escalation, Graph, Principal, commands
from abeyance.errors import Code
from tests.replay.stage import Scenario, Stage

YES = {"approved": True}
NO = {"approved": False}
BOB = Principal(subject="bob")


async def waiting(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d", capability="pay"), {"amount": 3}) as run:
        await run.waiting()


async def answered_before_the_deadline(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d", capability="pay")) as run:
        (asked,) = (await run.waiting()).interrupts
        respond = run.site.client.run(run.id).respond
        assert (
            await refused(respond({asked.id: NO}, principal=BOB))
        ).code is Code.CAPABILITY_REQUIRED
        await respond({asked.id: NO}, principal=ANYBODY)
        await run.ended()


async def several_answered_at_the_same_time(stage: Stage) -> None:
    async with stage.run(gates(6)) as run:
        asked = (await run.waiting()).interrupts
        respond = run.site.client.run(run.id).respond
        await respond({asked[4].id: 1, asked[5].id: 2}, principal=ANYBODY)
        (again,) = await respond({asked[4].id: 1}, principal=ANYBODY)
        assert again.replayed
        await asyncio.gather(*(respond({each.id: False}, principal=ANYBODY) for each in asked[:4]))
        await run.ended()


async def held_and_taken_back(stage: Stage) -> None:
    async with stage.run(gated(hold="1s")) as run:
        (asked,) = (await run.waiting()).interrupts
        handle = run.site.client.run(run.id)
        await handle.respond(asked.id, YES, principal=BOB)
        await handle.take_back(asked.id, principal=BOB, note="too fast")
        await handle.respond(asked.id, YES, principal=BOB)
        await run.ended()


async def claimed_and_reassigned(stage: Stage) -> None:
    terms: dict[str, Any] = {"assignees": ["bob"], "assignees_only": True, "not_by": "@starter"}
    async with stage.run(gated(**terms)) as run:
        (asked,) = (await run.waiting()).interrupts
        handle = run.site.client.run(run.id)
        await handle.claim(asked.id, principal=BOB)
        await handle.release(asked.id, principal=BOB)
        await handle.reassign(asked.id, ["carol", "group:finance"], note="away", principal=BOB)
        assert (
            await refused(handle.respond({asked.id: YES}, principal=BOB))
        ).code is Code.NOT_ASSIGNED
        await handle.respond(asked.id, YES, principal=Principal(subject="carol"))
        await run.ended()


async def reminded_and_escalated_until_an_edited_deadline(stage: Stage) -> None:
    graph = gated(
        timeout="2bd",
        on_timeout="goto:late",
        remind=["200ms", "-1bh"],
        escalate=Escalation(after="400ms", to=["group:directors"]),
        calendar=Calendar(country="DE", timezone="Europe/Berlin"),
    )
    async with stage.run(graph) as run:
        (asked,) = (await run.waiting()).interrupts

        async def escalated() -> bool:
            return bool(await run.site.events(run.id, "interrupt.escalated"))

        await eventually(escalated)
        for fields in ({"deadline": None}, {"timeout": "1s", "on_timeout": "goto:late"}):
            order = commands.EditDeadline(interrupt_id=asked.id, principal=ANYBODY, **fields)
            await run.site.client.run(run.id).edit(order)
        view = await run.ended()
        assert view.values["log"][-1] == "late"


async def deadlines_answer_and_halt(stage: Stage) -> None:
    graph = Graph("two", state=State)
    graph.interrupt("soon", prompt="?", timeout="500ms", on_timeout={"default": True})
    graph.interrupt("later", prompt="?", timeout="1s")
    graph.edge(START, "soon")
    graph.edge("soon", "later")
    async with stage.run(graph) as run:
        await run.ended("halted")


async def edited_values(stage: Stage) -> None:
    graph = gated()
    async with stage.run(graph, {"amount": 3}) as run:
        view = await run.waiting()
        edit = run.site.client.run(run.id, graph).edit_values
        patch = {"amount": 4.5}
        await edit(patch, version=view.version, principal=ANYBODY)
        assert (
            await refused(edit(patch, version=view.version, principal=ANYBODY))
        ).code is Code.STALE
        await run.answer(approve=YES)
        await run.ended()


async def rules_ask(stage: Stage) -> None:
    graph = Graph("ruled", state=State)
    for name in ("work", "next", "other"):
        graph.node(name=name)(_work)
    graph.edge(START, "work")
    graph.edge("work", "next")
    for name in ("next", "other"):
        graph.edge(name, END)
    asks = {"kind": "interrupt", "prompt": "Sure?", "timeout": "2d"}
    graph.rule("r", when={"node": "work"}, then=[asks, {"kind": "goto", "node": "other"}])
    graph.rule("s", when={"node": "work"}, then=[{"kind": "interrupt", "prompt": "Really?"}])
    async with stage.run(graph) as run:
        await run.waiting()
        await run.answer(s=True)
        await run.answer(r=True)
        view = await run.ended()
        assert view.values["log"] == ["work", "other"]


async def _work(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [ctx.node]}


SCENARIOS: tuple[Scenario, ...] = (
    waiting,
    answered_before_the_deadline,
    several_answered_at_the_same_time,
    held_and_taken_back,
    claimed_and_reassigned,
    reminded_and_escalated_until_an_edited_deadline,
    deadlines_answer_and_halt,
    edited_values,
    rules_ask,
)
