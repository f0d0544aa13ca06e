"""Agents that call agents, and agents that are nodes of a graph together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from scripted_agents import Script, answered, call, started

from abeyance import (
    END,
    START,
    Agent,
    Graph,
    Refusal,
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
        "expert": deepest or Script(call("unlock", "e1", door="north"), answered),
        "helper": Script(call("expert", "h1", task="open north"), answered),
        "clerk": Script(call("helper", "c1", task="get in"), answered),
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


# Several questions at once, by one that goes deep


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


async def test_an_agent_may_be_called_by_another_name() -> None:
    worker = Agent("worker", model=Script("done"))
    boss = Script(call("delegate", "c1", task="begin"), answered)
    run = await started(
        Agent("boss", model=boss, tools=[worker.as_tool(name="delegate", description="Works.")])
    )

    assert run.values["report"] == "done"
    assert "graph:g;node:review;agent:boss;tool:delegate:c1;agent:worker" in run.state.transcripts
