"""The memory of an agent: its next visit continues the conversation, also one that was cut."""

from __future__ import annotations

from typing import Any

from scripted_agents import Case, Script, call, prompts

from abeyance import END, START, Agent, Fatal, Graph, tool
from abeyance.testing import InMemoryRun

REMEMBERS: Any = "run"


def looping(agent: Agent, rounds: int = 2, **about: Any) -> Graph:
    """Return a graph that visits the agent `rounds` times."""
    graph = Graph("g", state=Case, **about)
    graph.agent("review", agent, input=lambda state: f"round {state.rounds + 1}", output="report")

    @graph.node
    async def count(state: Case) -> dict[str, Any]:
        return {"rounds": state.rounds + 1}

    graph.edge(START, "review")
    graph.edge("review", "count")
    graph.route(
        "count", lambda state: "review" if state.rounds < rounds else END, to=["review", END]
    )
    return graph


async def run_of(graph: Graph) -> InMemoryRun:
    run = InMemoryRun(graph)
    await run.start()
    return run


async def test_an_agent_with_a_memory_goes_on_with_its_conversation() -> None:
    script = Script("said one", "said two")
    run = await run_of(looping(Agent("clerk", model=script, memory=REMEMBERS)))

    assert prompts(script.seen[-1]) == ["round 1", "round 2"]
    assert run.values["report"] == "said two"


async def test_turns_are_counted_anew_in_each_visit() -> None:
    script = Script("said")
    run = await run_of(
        looping(Agent("clerk", model=script, memory=REMEMBERS, max_turns=1), rounds=3)
    )

    assert (run.status, len(script.seen)) == ("completed", 3)


async def test_a_conversation_that_was_cut_has_a_result_for_every_call_when_it_goes_on() -> None:
    @tool
    async def fail() -> str:
        message = "the books are wrong"
        raise Fatal(message)

    @tool
    async def look() -> str:
        return "fine"

    script = Script([call("fail", "c1"), call("look", "c2")], "I see")
    agent = Agent("clerk", model=script, tools=[fail, look], memory=REMEMBERS)
    graph = Graph("g", state=Case, on_error="interrupt")
    graph.agent("review", agent, input="question", output="report")
    graph.edge(START, "review")
    run = await run_of(graph)
    assert [each.kind for each in await run.interrupts()] == ["error"]
    await run.respond("error", {"action": "retry"})

    assert (run.status, run.values["report"]) == ("completed", "I see")
    told = script.told()
    assert list(told) == ["c1", "c2"]
    assert {outcome for outcome, _ in told.values()} == {"interrupted"}
    assert "may or may not have been done" in told["c1"][1]


async def test_a_final_result_is_answered_when_the_conversation_goes_on() -> None:
    script = Script(call("final_result", "f1", result=3), call("final_result", "f2", result=4))
    agent = Agent("clerk", model=script, output=int, memory=REMEMBERS)
    run = await run_of(looping(agent))

    assert (run.status, run.values["report"]) == ("completed", 4)
    assert script.told() == {"f1": ("success", "This result was taken.")}
