"""Agents that call agents, and agents that are nodes of a graph together."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from agent_scripts import Script, answered, call, ran, respond, started
from pydantic import BaseModel, Field

from abeyance import (
    END,
    START,
    Agent,
    Graph,
    Interrupt,
    Refusal,
    ToolContext,
    append,
    tool,
)
from abeyance.core.policy import Principal
from abeyance.testing import InMemoryRun

YES = {"approved": True}
CLERK = "graph:g;node:review;agent:clerk"


class Vault:
    def __init__(self, **about: Any) -> None:
        self.opened: list[str] = []
        vault = self

        @tool(**{"approve": True, **about})
        async def unlock(door: str) -> str:
            """Open a door."""
            vault.opened.append(door)
            return f"{door} is open"

        self.tool = unlock


def team(vault: Vault, *, deepest: Script | None = None) -> tuple[Agent, dict[str, Script]]:
    """A clerk who asks a helper who asks an expert, who opens doors."""
    scripts = {
        "expert": deepest or Script(call("unlock", "e1", door="north"), answered("e1")),
        "helper": Script(call("expert", "h1", task="open north"), answered("h1")),
        "clerk": Script(call("helper", "c1", task="get in"), answered("c1")),
    }
    expert = Agent("expert", model=scripts["expert"], tools=[vault.tool])
    helper = Agent("helper", model=scripts["helper"], tools=[expert.as_tool(description="Opens.")])
    clerk = Agent("clerk", model=scripts["clerk"], tools=[helper.as_tool(description="Helps.")])
    return clerk, scripts


async def test_what_is_asked_three_levels_deep_is_asked_at_the_root_with_all_its_parents() -> None:
    vault = Vault(requested_capability="doors:open")
    clerk, scripts = team(vault)
    run = await started(clerk)

    helper = f"{CLERK};tool:helper:c1;agent:helper"
    (entry,) = await run.interrupts()
    assert entry.address == f"{helper};tool:expert:h1;agent:expert;tool:unlock:e1"
    assert [parent.address for parent in entry.parents] == [
        f"{helper};tool:expert:h1",
        f"{CLERK};tool:helper:c1",
        "graph:g;node:review",
    ]
    assert (run.status, vault.opened, entry.reason["arguments"]) == (
        "awaiting-input",
        [],
        {"door": "north"},
    )
    with pytest.raises(Refusal) as refused:
        await run.respond(entry.parents[1].id, YES)
    assert refused.value.code == "not_root_cause"
    with pytest.raises(Refusal) as refused:
        await run.respond(entry.id, YES, principal=Principal(subject="eve"))
    assert refused.value.code == "capability_required"
    await run.respond(entry.id, YES)

    assert (run.status, run.values["report"]) == ("completed", "north is open")
    assert vault.opened == ["north"]
    assert [len(script.seen) for script in scripts.values()] == [2, 2, 2]
    assert scripts["expert"].heard(0) == ["open north"]
    assert scripts["helper"].heard(0) == ["get in"]


async def test_an_agent_may_have_to_be_approved_and_its_task_may_be_edited() -> None:
    script = Script("done as told")
    helper = Agent("helper", model=script)
    as_tool = helper.as_tool(description="Helps.", approve=True)
    clerk = Agent(
        "clerk",
        model=Script(call("helper", "c1", task="sell all"), answered("c1")),
        tools=[as_tool],
    )
    run = await started(clerk)
    (entry,) = await run.interrupts()
    assert entry.reason == {"tool": "helper", "arguments": {"task": "sell all"}}
    assert script.seen == []
    with pytest.raises(Refusal) as refused:
        await run.respond(entry.id, {"approved": True, "arguments": {"task": 7}})
    assert refused.value.code == "invalid_answer"
    await run.respond(entry.id, {"approved": True, "arguments": {"task": "sell nothing"}})

    assert script.heard() == ["sell nothing"]
    assert run.values["report"] == "done as told"


async def test_agents_are_called_side_by_side_and_wait_for_themselves() -> None:
    vault = Vault()
    expert = Script(_door, answered("e1"))
    agent = Agent("expert", model=expert, tools=[vault.tool])
    caller = Script(
        [call("expert", "c1", task="north"), call("expert", "c2", task="south")], "both are open"
    )
    run = await started(Agent("clerk", model=caller, tools=[agent.as_tool(description="Opens.")]))
    assert len(await run.interrupts()) == 2
    await respond(run, "c2", YES)
    assert (vault.opened, len(caller.seen)) == (["south"], 1)
    await respond(run, "c1", YES)

    assert vault.opened == ["south", "north"]
    assert caller.told() == {
        "c1": ("success", "north is open"),
        "c2": ("success", "south is open"),
    }


def _door(messages: Any) -> Any:
    from agent_scripts import heard

    return call("unlock", "e1", door=heard(messages)[0])


# Several questions at once, by one that goes deep


async def test_a_tool_of_a_deep_agent_asks_several_things_in_one_interrupt() -> None:
    @tool
    async def clarify(ctx: ToolContext, topics: list[str]) -> dict[str, str]:
        """Ask about each topic."""
        answers: dict[str, str] = await ctx.interrupts(
            [Interrupt(topic, prompt=f"What about {topic}?", response=str) for topic in topics]
        )
        return answers

    researcher = Script(
        call("clarify", "r1", topics=["market", "period", "depth"]), lambda m: str(_answers(m))
    )
    writer = Agent("writer", model=researcher, tools=[clarify])
    planner = Agent(
        "planner",
        model=Script(call("writer", "p1", task="report"), answered("p1")),
        tools=[writer.as_tool(description="Writes.")],
    )
    run = await started(planner)
    assert [each.name for each in await run.interrupts()] == ["market", "period", "depth"]
    assert {each.address for each in await run.interrupts()} == {
        "graph:g;node:review;agent:planner;tool:writer:p1;agent:writer;tool:clarify:r1"
    }
    ids = [each.id for each in await run.interrupts()]
    await run.respond("period", "2025")
    assert [each.id for each in await run.interrupts()] == [ids[0], ids[2]]
    assert len(researcher.seen) == 1
    await run.respond("depth", "full")
    await run.respond("market", "Norway")

    assert (await ran(run)).count("tool:clarify:r1") == 2
    assert researcher.told()["r1"] == (
        "success",
        {"market": "Norway", "period": "2025", "depth": "full"},
    )


def _answers(messages: Any) -> Any:
    from agent_scripts import told

    return told(messages)["r1"][1]


# Agents as nodes


async def test_a_writer_and_a_reviewer_go_round_until_the_reviewer_is_content() -> None:
    class Draft(BaseModel):
        text: str = ""
        verdict: str = ""

    texts = iter(["a draft", "a better draft", "the final text"])
    verdicts = iter(["too long", "still too long", "good"])
    writer = Agent("writer", model=Script(lambda messages: next(texts)), memory="run")
    reviewer = Agent("reviewer", model=Script(lambda messages: next(verdicts)))
    graph = Graph("press", state=Draft)
    graph.agent(
        "write", writer, input=lambda state: state.verdict or "write about bread", output="text"
    )
    graph.agent("judge", reviewer, input="text", output="verdict")
    graph.edge(START, "write")
    graph.edge("write", "judge")
    graph.edge("judge", END, when={"verdict": "good"})
    graph.edge("judge", "write", when="else")
    run = InMemoryRun(graph)
    await run.start()

    assert run.status == "completed"
    assert run.values == {"text": "the final text", "verdict": "good"}
    assert list(run.state.transcripts) == [
        f"graph:press;node:{node}{ordinal};agent:{agent}"
        for ordinal in ("", ":2", ":3")
        for node, agent in (("write", "writer"), ("judge", "reviewer"))
    ]


async def test_an_agent_is_entered_for_every_item_of_a_fan_out() -> None:
    from abeyance import Send

    class Batch(BaseModel):
        items: list[str] = ["a", "b"]
        found: Annotated[list[str], append] = Field(default_factory=list)

    vault = Vault()
    expert = Agent(
        "expert",
        model=Script(_door, "open"),
        tools=[vault.tool],
    )
    graph = Graph("all", state=Batch)

    @graph.node(to=["each"])
    async def spread(state: Batch) -> list[Send]:
        return [Send("each", item) for item in state.items]

    graph.agent("each", expert, input=lambda state: "a door", output=None)

    @graph.node
    async def end(state: Batch) -> dict[str, Any]:
        return {"found": ["end"]}

    graph.edge(START, "spread")
    graph.edge(["each"], "end")
    run = InMemoryRun(graph)
    await run.start()
    assert [each.address for each in await run.interrupts()] == [
        "graph:all;node:each;agent:expert;tool:unlock:e1",
        "graph:all;node:each:2;agent:expert;tool:unlock:e1",
    ]
    for entry in await run.interrupts():
        await run.respond(entry.id, YES)

    assert (run.status, vault.opened) == ("completed", ["a door", "a door"])


async def test_a_supervisor_gives_work_to_agents_that_remember_within_its_visit() -> None:
    clerk = Script("first", "second")
    worker = Agent("worker", model=clerk, memory="run")
    boss = Script(
        call("worker", "c1", task="begin"), call("worker", "c2", task="go on"), answered("c2")
    )
    run = await started(Agent("boss", model=boss, tools=[worker.as_tool(description="Works.")]))

    from agent_scripts import heard

    assert heard(clerk.seen[-1]) == ["begin", "go on"]
    assert run.values["report"] == "second"


async def test_an_agent_may_be_called_by_another_name() -> None:
    worker = Agent("worker", model=Script("done"))
    boss = Script(call("delegate", "c1", task="begin"), answered("c1"))
    run = await started(
        Agent("boss", model=boss, tools=[worker.as_tool(name="delegate", description="Works.")])
    )

    assert run.values["report"] == "done"
    assert "graph:g;node:review;agent:boss;tool:delegate:c1;agent:worker" in run.state.transcripts
