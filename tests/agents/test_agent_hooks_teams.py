"""Hooks treat the call of an agent like the call of a tool: they ask, edit, cancel and see the result."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import Script, Watching, answered, call, started

from abeyance import AfterToolCall, Agent, BeforeToolCall

CLERK = "graph:g;node:review;agent:clerk"
HELPER = f"{CLERK};tool:helper:c1;agent:helper"
YES = {"approved": True}


class Asking:
    """Asks people with the capability `helpers` about each call, and does what they answer."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        answer = await event.interrupt("sure", reason=event.args, requested_capability="helpers")
        if answer == "no":
            event.cancel_tool = "a person said no"
        if isinstance(answer, dict):
            event.args.update(answer)
        event.agent_state["asked"] = answer


class Marking:
    async def after_tool_call(self, event: AfterToolCall) -> None:
        event.result = f"{event.result}, seen"


class Team:
    """A clerk that calls a helper with the given calls."""

    def __init__(self, *calls: Any, helped: Any = "helped", **options: Any) -> None:
        self.inner = Script(helped)
        helper = Agent("helper", model=self.inner)
        self.script = Script(list(calls) or [call("helper", "c1", task="look")], "done")
        about = options.pop("about", {})
        tools = [helper.as_tool(description="Helps.", **about)]
        self.clerk = Agent("clerk", model=self.script, tools=tools, asks="helpers", **options)


async def test_a_hook_asks_before_an_agent_is_called_and_lets_it_through() -> None:
    team = Team(hooks=[Asking()])
    run = await started(team.clerk)
    (entry,) = await run.interrupts()
    assert (entry.address, entry.reason) == (
        f"{CLERK};tool:helper:c1;process:Asking",
        {"task": "look"},
    )
    assert (run.status, team.inner.seen) == ("awaiting-input", [])
    await run.respond("sure", "yes")

    assert (run.status, team.inner.heard(0)) == ("completed", ["look"])
    assert team.script.told() == {"c1": ("success", "helped")}
    inner = [
        event.address async for event in run.events(follow=False) if event.type == "model.turn"
    ]
    assert f"{HELPER};node:model" in inner
    assert run.state.scopes.keys() == {"graph:g"}


async def test_a_called_agent_gets_the_task_that_a_hook_changed() -> None:
    class Edit:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.args["task"] += ", please"

    team = Team(hooks=[Edit()])
    await started(team.clerk)
    assert team.inner.heard(0) == ["look, please"]

    watching = Watching()
    team = Team(hooks=[Edit(), Asking(), watching])
    run = await started(team.clerk)
    assert (await run.interrupts())[0].reason == {"task": "look, please"}
    await run.respond("sure", {"task": "look twice"})
    assert team.inner.heard(0) == ["look twice"]
    assert watching.seen == [("c1", {"task": "look twice"}, "helped", False, False)]


async def test_a_hook_that_leaves_a_task_that_does_not_fit_keeps_the_agent_out() -> None:
    team = Team(hooks=[Asking()])
    run = await started(team.clerk)
    await run.respond("sure", {"task": 7})

    assert team.inner.seen == []
    outcome, text = team.script.told()["c1"]
    assert (outcome, "do not fit any more" in text) == ("denied", True)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (YES, ("success", "helped")),
        ({"approved": True, "arguments": {"task": "look hard"}}, ("success", "helped")),
        (
            {"approved": False, "reason": "not today"},
            ("denied", "The call was rejected by a person, so it was not run: not today"),
        ),
    ],
)
async def test_an_approval_is_asked_for_after_what_a_hook_asked_about_an_agent(
    answer: Any, told: Any
) -> None:
    team = Team(hooks=[Asking()], about={"approve": True})
    run = await started(team.clerk)
    await run.respond("sure", {"task": "look twice"})
    (entry,) = await run.interrupts()
    assert (entry.kind, entry.reason["arguments"]) == ("approval", {"task": "look twice"})
    assert (entry.address, team.inner.seen) == (f"{CLERK};tool:helper:c1", [])
    await run.respond("approve", answer)

    assert team.script.told() == {"c1": told}
    expected = [] if told[0] == "denied" else [answer.get("arguments", {"task": "look twice"})]
    assert [team.inner.heard(n)[0] for n in range(len(team.inner.seen))] == [
        each["task"] for each in expected
    ]


async def test_an_after_hook_sees_that_an_agent_failed() -> None:
    watching = Watching()
    endless = Agent("helper", model=Script(call("nothing", "n")), max_turns=1)
    script = Script(call("helper", "c1", task="look"), "done")
    tools = [endless.as_tool(description="Helps.")]
    await started(Agent("clerk", model=script, tools=tools, hooks=[watching]))

    ((_, _, text, is_error, is_cancelled),) = watching.seen
    assert (is_error, is_cancelled, "max_turns=1" in text) == (True, False, True)


async def test_an_after_hook_sees_large_tasks_and_what_large_ones_came_to() -> None:
    class OnlyOne:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.cancel_tool = event.call_id != "c1" and "one is enough"

    watching, large = Watching(), "long " * 1_000
    calls = [call("helper", id_, task=f"{id_} {large}") for id_ in ("c1", "c2")]
    team = Team(*calls, helped=large, hooks=[OnlyOne(), watching, Marking()])
    run = await started(team.clerk)

    assert (len(team.inner.seen), run.status) == (1, "completed")
    assert team.script.told() == {
        "c1": ("success", f"{large}, seen"),
        "c2": ("denied", "one is enough, seen"),
    }
    assert {each[1]["task"] for each in watching.seen} == {f"c1 {large}", f"c2 {large}"}
    assert {each[2] for each in watching.seen} == {large, "one is enough"}


async def test_an_agent_may_be_called_by_another_name() -> None:
    worker = Agent("worker", model=Script("done"))
    boss = Script(call("delegate", "c1", task="begin"), answered)
    run = await started(
        Agent("boss", model=boss, tools=[worker.as_tool(name="delegate", description="Works.")])
    )

    assert run.values["report"] == "done"
    assert "graph:g;node:review;agent:boss;tool:delegate:c1;agent:worker" in run.state.transcripts
