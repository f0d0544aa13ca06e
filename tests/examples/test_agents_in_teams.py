"""Several agents and one person: a question of a nested agent is answered at the root."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from abeyance import Refusal
from abeyance.testing import InMemoryRun
from examples.agents import deep_agent, plan_execute_replan, supervised_planning, supervisor

YES: Mapping[str, Any] = {"approved": True}
NO: Mapping[str, Any] = {"approved": False, "reason": "no early trains"}


async def addresses(run: InMemoryRun) -> list[str]:
    return [entry.address for entry in await run.interrupts()]


async def test_a_question_of_a_nested_agent_opens_at_the_root() -> None:
    run = InMemoryRun(supervisor.graph)
    await run.start()
    (asked,) = await run.interrupts()

    assert asked.prompt == "Transfer 1000 from savings to checking?"
    assert asked.requested_capability == "money:transfer"
    assert asked.address == (
        "graph:supervisor;node:serve;agent:supervisor;tool:cashier:call_2;"
        "agent:cashier;tool:transfer:call_1"
    )
    # The other agent did not wait for the answer.
    finished = [
        event.address async for event in run.events(follow=False) if event.type == "tool.finished"
    ]
    assert len([each for each in finished if each and "agent:accountant;tool:balance" in each]) == 2

    await run.respond(asked.id, YES)
    assert run.values["reply"] == (
        "savings: 5000, checking: 300 | 1000 were transferred from savings to checking"
    )


async def test_a_plan_is_changed_when_a_person_rejects_a_step() -> None:
    run = InMemoryRun(plan_execute_replan.graph)
    await run.start()
    assert [entry.prompt for entry in await run.interrupts()] == ["Book the 06:10 train to Lyon?"]
    await run.respond("approve", NO)

    assert [entry.prompt for entry in await run.interrupts()] == ["Book the 10:10 train to Lyon?"]
    await run.respond("approve", YES)
    assert run.status == "completed"
    assert run.values["plan"]["answer"] == "Your train to Lyon is booked."
    assert run.values["report"] == "booked: the 10:10 train to Lyon"


async def test_several_questions_are_one_interrupt_and_none_of_them_may_be_left_out() -> None:
    run = InMemoryRun(deep_agent.graph)
    await run.start()
    (asked,) = await run.interrupts()
    assert asked.prompt.splitlines() == [
        "period: Which months is it about?",
        "reader: Who is going to read it?",
    ]
    # The call beside the questions is done already.
    finished = [e.address async for e in run.events(follow=False) if e.type == "tool.finished"]
    assert any("tool:write_todos" in str(address) for address in finished)

    with pytest.raises(Refusal, match="reader"):
        await run.respond("questions", {"period": "last winter"})
    await run.respond("questions", {"period": "last winter", "reader": "the board"})
    assert run.status == "completed"
    assert run.values["text"] == "A brief. For the board: 1298 kWh in three months."


async def test_a_graph_of_agents_below_a_supervisor_asks_at_the_root_too() -> None:
    run = InMemoryRun(supervised_planning.graph)
    await run.start()
    assert await addresses(run) == [
        (
            "graph:supervised_planning;node:journeys;graph:plan_execute_replan;"
            "node:execute;agent:executor;tool:book_train:call_1"
        )
    ]
    await run.respond("approve", YES)

    assert run.status == "completed"
    assert run.values["decision"]["text"] == (
        "journeys says: Your train to Lyon is booked.; lodgings says: a room at the Auberge du Lac"
    )


ALL_WITH_ANOTHER_MODEL = """
import asyncio, logging
from abeyance.testing import InMemoryRun
from examples.agents.graphs import graphs

# What comes to the mind of this model is not what the tools can do.
logging.getLogger("abeyance.agent").setLevel(logging.ERROR)

async def main():
    for graph in graphs:
        run = InMemoryRun(graph)
        await run.start()
        told = [event async for event in run.events(follow=False)]
        turns = [event.data["model"] for event in told if event.type == "model.turn"]
        print(graph.name, run.status, *{*turns})

asyncio.run(main())
"""


@pytest.mark.slow
def test_every_example_runs_with_another_model(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(
        "of a model that calls every tool once, with what comes to its mind"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", ALL_WITH_ANOTHER_MODEL],
        cwd=root,
        env={
            "PATH": "",
            "PYTHONPATH": str(root),
            "EXAMPLE_MODEL": "test",
            "EXAMPLE_FOLDER": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 10
    # The model `test` makes up plans that do not fit, again and again; it can do the rest.
    failed = {name for name, status, *_ in lines if status not in {"awaiting-input", "completed"}}
    assert failed == {"plan_execute_replan", "supervised_planning"}
    assert {model for _, _, *models in lines for model in models} == {"test"}
