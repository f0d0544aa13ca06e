"""One agent and one person: each test drives an example to its end as a person would."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from abeyance import Refusal
from abeyance.testing import InMemoryRun
from examples.agents import approval, feedback_loop, follow_up, review_and_edit
from examples.agents.graphs import graphs


async def test_a_ticket_is_booked_when_a_person_has_approved_it() -> None:
    run = InMemoryRun(approval.graph)
    await run.start()

    (asked,) = await run.interrupts()
    assert (asked.kind, asked.prompt) == (
        "approval",
        "Book a ticket to Beijing on 2026-12-01 for Martin?",
    )
    assert asked.address == "graph:approval;node:book;agent:booker;tool:book_ticket:call_1"
    assert "tool.started" not in [event.type async for event in run.events(follow=False)]

    await run.respond("approve", {"approved": True})
    assert run.status == "completed"
    assert "to Beijing on 2026-12-01 for Martin" in run.values["answer"]
    assert run.values["answer"].startswith("Done: ticket ")


async def test_a_person_lowers_an_amount_and_the_reply_names_it() -> None:
    run = InMemoryRun(review_and_edit.graph)
    await run.start()
    (asked,) = await run.interrupts()
    assert asked.prompt == "Refund 120 euros for the order A-7?"

    await run.respond("approve", {"approved": True, "arguments": {"order": "A-7", "amount": 90}})
    assert run.status == "completed"
    assert run.values["reply"] == "We are sorry. 90 euros are on their way to you."


async def test_a_text_is_written_again_with_what_a_person_says_until_they_are_content() -> None:
    run = InMemoryRun(feedback_loop.graph)
    await run.start()
    drafts = []
    for wish in ("Shorter, please.", "Funnier!"):
        drafts.append((await run.interrupts())[0].prompt)
        await run.respond("review", {"content": False, "feedback": wish})
    drafts.append((await run.interrupts())[0].prompt)

    assert drafts[0].startswith("The board says ten")
    assert drafts[1].endswith("(draft 2: Write it again. Shorter, please.)")
    assert drafts[2].endswith("(draft 3: Write it again. Funnier!)")
    assert [entry.address for entry in await run.interrupts()] == [
        "graph:feedback_loop;node:review:3"
    ]

    await run.respond("review", {"content": True})
    assert (run.status, run.values["draft"]) == ("completed", drafts[2])


async def test_an_agent_asks_one_thing_after_the_other_and_each_question_is_its_own() -> None:
    run = InMemoryRun(follow_up.graph)
    await run.start()
    (where,) = await run.interrupts()
    assert where.prompt == "Where would you like to go?"

    await run.respond("answer", "the mountains")
    (nights,) = await run.interrupts()
    assert nights.prompt == "For how many nights?"
    assert nights.id != where.id
    with pytest.raises(Refusal, match="three"):
        await run.respond("answer", "three")
    await run.respond("answer", 3)
    assert run.values["plan"] == "Your trip: Hotel Edelweiss, the mountains, 3 nights."


def test_the_table_of_examples_names_each_file_and_answers_that_it_takes() -> None:
    page = (Path(approval.__file__).parent / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)\.py` \| [^|]+ \| (.*`.*) \|$", page, re.MULTILINE)

    assert {name for name, _ in rows} == {graph.name for graph in graphs}
    for name, answers in rows:
        module = import_module(f"examples.agents.{name}")
        assert module.graph.name == name
        assert f"abeyance run {name} --run-id " in (module.__doc__ or "")
        for answer in re.findall(r"`([^`]+)`", answers):
            json.loads(answer)
