"""Scenarios: questions, their answers, and deadlines that pass."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sample_graphs import Held, State, gated, gates
from temporal_site import ANYBODY, eventually

from abeyance import END, START, Calendar, Escalation, Graph, Principal, Refusal, commands
from abeyance.errors import Code
from tests.replay.stage import Scenario, Stage, all_at_once

YES = {"approved": True}
NO = {"approved": False}


async def waiting(stage: Stage) -> None:
    async with stage.run(gated(), {"amount": 3}) as run:
        await run.waiting()


async def waiting_until_a_deadline(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d", capability="pay"), {"amount": 3}) as run:
        await run.waiting()


async def answered(stage: Stage) -> None:
    async with stage.run(gated(), {"amount": 3}) as run:
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


async def answered_before_the_deadline(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d", capability="pay")) as run:
        await run.waiting()
        await run.answer(approve=NO)
        await run.ended()


async def answered_through_temporal(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.handle.execute_update("respond", {"response": YES})
        await run.ended()


async def several_answered_in_one_call(stage: Stage) -> None:
    async with stage.run(gates(5)) as run:
        await run.waiting()
        await run.answer(**{f"gate{number}": number for number in range(5)})
        await run.ended()


async def several_answered_one_by_one(stage: Stage) -> None:
    async with stage.run(gates(3)) as run:
        await run.waiting()
        for name in ("gate2", "gate0", "gate1"):
            await run.answer(**{name: None})
        await run.ended()


async def several_answered_at_the_same_time(stage: Stage) -> None:
    async with stage.run(gates(8)) as run:
        asked = (await run.waiting()).interrupts
        await all_at_once(
            [
                run.site.client.run(run.id).respond({entry.id: False}, principal=ANYBODY)
                for entry in asked
            ]
        )
        await run.ended()


async def more_questions_than_are_shown(stage: Stage) -> None:
    graph = gates(60, capability="a-capability-with-a-long-name")
    async with stage.run(graph) as run:
        view = await run.waiting()
        await run.answer(**{entry.name: "yes" for entry in view.interrupts[:30]})
        await run.answer(**{entry.name: "yes" for entry in view.interrupts[30:]})
        await run.ended()


async def repeated_and_refused_answers(stage: Stage) -> None:
    async with stage.run(gates(2, capability="pay")) as run:
        first, second = (entry.id for entry in (await run.waiting()).interrupts)
        respond = run.site.client.run(run.id).respond
        await refused(Code.CAPABILITY_REQUIRED, respond({first: 1}, principal=BOB))
        await respond({first: 1}, principal=ANYBODY)
        (again,) = await respond({first: 1}, principal=ANYBODY)
        assert again.replayed
        await refused(Code.ALREADY_ANSWERED, respond({first: 2}, principal=ANYBODY))
        await refused(Code.UNKNOWN_INTERRUPT, respond({f"{run.id}.0": 1}, principal=BOB))
        # One that is known already beside one that is new.
        await respond({first: 1, second: 2}, principal=ANYBODY)
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
        await refused(Code.NOT_ASSIGNED, handle.respond({asked.id: YES}, principal=BOB))
        await handle.respond(asked.id, YES, principal=Principal(subject="carol"))
        await run.ended()


async def deadline_halts(stage: Stage) -> None:
    async with stage.run(gated(timeout="1s")) as run:
        await run.waiting()
        await run.ended("halted")


async def deadline_goes_elsewhere(stage: Stage) -> None:
    async with stage.run(gated(timeout="1s", on_timeout="goto:late")) as run:
        await run.waiting()
        await run.ended()


async def deadline_answers(stage: Stage) -> None:
    async with stage.run(gated(timeout="1s", on_timeout={"default": NO})) as run:
        await run.waiting()
        await run.ended()


async def deadlines_one_after_another(stage: Stage) -> None:
    async with stage.run(_two_deadlines()) as run:
        await run.waiting()
        view = await run.ended()
        assert view.values["log"] == ["sooner", "later"]


async def deadline_after_days(stage: Stage) -> None:
    async with stage.run(gated(timeout="2d", on_timeout="goto:late")) as run:
        await run.waiting()
        await run.pass_over(timedelta(days=1))
        await run.say("still-there")
        await run.pass_over(timedelta(days=1, seconds=1))
        await run.ended()


async def answered_too_late(stage: Stage) -> None:
    graph = gated(timeout="1s", on_timeout={"default": NO})
    site = stage.site(graph)
    async with site.worker():
        run = await stage.started(site)
        (asked,) = (await run.waiting()).interrupts

    async def has_fired() -> bool:
        history = await run.handle.fetch_history()
        return any(event.HasField("timer_fired_event_attributes") for event in history.events)

    # Nobody works while the timer fires; then an answer and a worker come.
    await eventually(has_fired)
    answer = site.client.run(run.id).respond({asked.id: YES}, principal=ANYBODY)
    async with site.worker():
        await refused(Code.ALREADY_ANSWERED, answer)
        await run.ended()


async def edited_values(stage: Stage) -> None:
    graph = gated()
    async with stage.run(graph, {"amount": 3}) as run:
        view = await run.waiting()
        edit = run.site.client.run(run.id, graph).edit_values
        patch = {"amount": 4.5}
        await edit(patch, version=view.version, principal=ANYBODY)
        stale = edit(patch, version=view.version, principal=ANYBODY)
        await refused(Code.STALE, stale)
        await run.answer(approve=YES)
        await run.ended()


async def edited_deadline(stage: Stage) -> None:
    async with stage.run(gated(timeout="1h")) as run:
        (asked,) = (await run.waiting()).interrupts
        edit = run.site.client.run(run.id).edit
        for fields in (
            {"timeout": "2d"},
            {"deadline": None},
            {"timeout": "1s", "on_timeout": "goto:late"},
        ):
            order = commands.EditDeadline(interrupt_id=asked.id, principal=ANYBODY, **fields)
            await edit(order)
        await run.ended()


async def reminded_and_escalated(stage: Stage) -> None:
    graph = Graph("reminding", state=State)
    graph.interrupt(
        "approve",
        prompt="Pay?",
        timeout="2bd",
        remind=["200ms", "-1bh"],
        escalate=Escalation(after="400ms", to=["group:directors"]),
        calendar=Calendar(country="DE", timezone="Europe/Berlin"),
    )
    graph.edge(START, "approve")
    async with stage.run(graph) as run:
        await run.waiting()

        async def escalated() -> bool:
            return bool(await run.site.events(run.id, "interrupt.escalated"))

        await eventually(escalated)
        await run.answer(approve=True)
        await run.ended()


async def routed_after_an_answer(stage: Stage) -> None:
    graph = Graph("routed", state=State)
    graph.interrupt("more", prompt="Go on?", answer_to="amount")
    graph.node(name="work", local=True)(_working)
    graph.edge(START, "more")
    graph.route("more", lambda state: "work" if state.amount else END, to=["work", END])
    graph.edge("work", "more")
    async with stage.run(graph) as run:
        for amount in (1, 2, 0):
            await run.waiting()
            await run.answer(more=amount)
        await run.ended()


async def asked_while_a_node_runs(stage: Stage) -> None:
    held = Held()
    held.graph.interrupt("beside", prompt="Go on?")
    held.graph.edge(START, "beside")
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.answer(beside=True)
        held.release.set()
        await run.ended()


BOB = Principal(subject="bob")


async def refused(code: Code, call: Any) -> None:
    """Await a call that has to be refused with this code."""
    try:
        await call
    except Refusal as refusal:
        assert refusal.code is code, refusal
    else:
        message = f"this was not refused as {code}"
        raise AssertionError(message)


async def _working(state: State) -> dict[str, Any]:
    return {"log": [f"worked {state.amount}"]}


def _two_deadlines() -> Graph:
    graph = Graph("two", state=State)
    for name, timeout in (("later", "2s"), ("sooner", "1s")):
        graph.interrupt(f"ask-{name}", prompt="?", timeout=timeout, on_timeout=f"goto:{name}")
        graph.node(name=name, local=True)(_writes(name))
        graph.edge(START, f"ask-{name}")
        graph.edge(f"ask-{name}", END)
    return graph


def _writes(name: str) -> Any:
    async def write(state: State) -> dict[str, Any]:
        return {"log": [name]}

    return write


SCENARIOS: tuple[Scenario, ...] = (
    waiting,
    waiting_until_a_deadline,
    answered,
    answered_before_the_deadline,
    answered_through_temporal,
    several_answered_in_one_call,
    several_answered_one_by_one,
    several_answered_at_the_same_time,
    more_questions_than_are_shown,
    repeated_and_refused_answers,
    held_and_taken_back,
    claimed_and_reassigned,
    deadline_halts,
    deadline_goes_elsewhere,
    deadline_answers,
    deadlines_one_after_another,
    deadline_after_days,
    answered_too_late,
    edited_values,
    edited_deadline,
    reminded_and_escalated,
    routed_after_an_answer,
    asked_while_a_node_runs,
)
