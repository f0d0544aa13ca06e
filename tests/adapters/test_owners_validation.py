"""The framework judges the arguments of its tools, in a node as it does alone."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from foreign_hooks import PLACES, Guard, hooked
from foreign_office import FRAMEWORKS, Office, started
from pydantic import NaiveDatetime

from abeyance import Refusal

GIVEN: dict[str, dict[str, Any]] = {
    "as declared": {"x": 5},
    "a number as text": {"x": "5"},
    "a whole number with a point": {"x": 5.0},
    "one more": {"x": 5, "note": "soon"},
    "no number": {"x": "five"},
    "none": {},
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
async def test_a_framework_takes_the_arguments_that_it_takes_alone_and_they_are_shown_as_sent(
    framework: str, given: str
) -> None:
    its, arguments = hooked(framework), GIVEN[given]
    alone, ours = (Office([("c1", "pay", arguments)], "Done.") for _ in range(2))
    place = next(iter(PLACES[framework]))
    await its.alone(its.agent(alone, place, Guard("nothing")))
    rules = {"pay": {"approve": True}}
    agent = its.wrap(lambda: its.agent(ours, place, Guard("nothing")), tools=rules)
    run = await started(agent)
    for question in await run.interrupts():
        assert question.reason["arguments"] == arguments
        await run.respond(question.id, {"approved": True, "arguments": arguments})

    assert ours.lines == alone.lines
    assert run.status == "completed"


TYPED: dict[str, tuple[Any, list[Any]]] = {
    "datetime": (datetime, ["2026-01-31T10:00:00", "2026-01-31T10:00:00Z", 1769853600, "soon"]),
    "naive": (NaiveDatetime, ["2026-01-31T10:00:00", "2026-01-31T10:00:00Z"]),
    "date": (date, ["2026-01-31", "2026-01-31T00:00:00", "31.1."]),
    "time": (time, ["10:00", "10:00:00Z", "late"]),
    "timedelta": (timedelta, ["PT1H", "-PT1H", "01:00:00", 60, 0.5, "an hour"]),
    "bool": (bool, [True, "true", "no", 1, "perhaps"]),
    "Decimal": (Decimal, ["12.50", 12.5, "12345678901234567.89", "much"]),
    "UUID": (UUID, ["6ba7b8109dad11d180b400c04fd430c8", "none"]),
}
"""The values that models send, by type."""


def office_for(type_: Any, given: list[Any]) -> Office:
    """Return an office that pays with one argument of a type; its model sends each value once."""

    class Typed(Office):
        def pay(self, x: Any) -> str:
            self.note(f"pay {x!r}")
            return f"paid {x!r}"

    Typed.pay.__annotations__["x"] = type_
    calls = [(f"c{number}", "pay", {"x": each}) for number, each in enumerate(given)]
    return Typed(calls, "Done.")


@pytest.mark.parametrize("type_", TYPED)
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
async def test_a_framework_reads_what_models_write_of_a_type_as_it_does_alone(
    framework: str, type_: str
) -> None:
    its, (alone, ours) = hooked(framework), (office_for(*TYPED[type_]) for _ in range(2))
    place = next(iter(PLACES[framework]))
    await its.alone(its.agent(alone, place, Guard("nothing")))
    rules = {"pay": {"approve": True}}
    agent = its.wrap(lambda: its.agent(ours, place, Guard("nothing")), tools=rules)
    run = await started(agent)
    while questions := await run.interrupts():
        for question in questions:
            arguments = question.reason["arguments"]
            await run.respond(question.id, {"approved": True, "arguments": arguments})

    assert sorted(ours.lines) == sorted(alone.lines)
    assert run.status == "completed"
    if framework == "agent_framework":
        # Alone, the framework tells its model only that the arguments do not fit.
        assert str(ours.heard).count("because its arguments do not fit") == str(alone.heard).count(
            "Error: "
        )
    else:
        assert sorted(ours.heard) == sorted(alone.heard)


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
async def test_an_edit_that_the_framework_takes_is_made_as_the_approver_wrote_it(
    framework: str,
) -> None:
    office = Office([("c1", "pay", 1)], "Done.")
    run = await started(FRAMEWORKS[framework](office))
    (question,) = await run.interrupts()
    await run.respond(question.id, {"approved": True, "arguments": {"x": "7"}})

    assert office.lines == ["turn 1", "pay 7", "turn 2"]


WORDS = {
    "agent_framework": "Input should be a valid integer",
    "langgraph": "Input should be a valid integer",
    "openai_agents": "An error occurred while running the tool",
    "pydantic_ai": "Input should be a valid integer",
    "strands": "Input should be a valid integer",
}
"""The words of each framework about `seven`. ADK does not judge plain values."""
AT_ONCE = {"agent_framework", "pydantic_ai"}
"""These frameworks validate when an answer is accepted."""


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS.keys() & WORDS.keys()))
async def test_an_edit_that_the_framework_rejects_is_refused_in_its_words(
    framework: str,
) -> None:
    office = Office([("c1", "pay", 1)], "Done.")
    run = await started(FRAMEWORKS[framework](office))
    (question,) = await run.interrupts()
    edit = {"approved": True, "arguments": {"x": "seven"}}
    if framework in AT_ONCE:
        with pytest.raises(Refusal, match=WORDS[framework]) as refused:
            await run.respond(question.id, edit)
        assert refused.value.details["errors"][0]["pointer"].startswith("/arguments")
        assert [each.id for each in await run.interrupts()] == [question.id]
    else:
        await run.respond(question.id, edit)
        assert WORDS[framework] in "\n".join(office.heard)
        assert run.status == "completed"

    assert "pay seven" not in office.lines
