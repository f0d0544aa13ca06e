"""Agents of other frameworks in memory: one table for all of them."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest
from foreign_office import FRAMEWORKS, THREE, Office, Recorder, started
from pydantic import BaseModel, Field, computed_field

from abeyance import START, Budget, Graph, Principal
from abeyance.adapters import (
    CallResult,
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    TurnTaken,
)
from abeyance.agents.foreign import warn_untested
from abeyance.agents.hooks import BeforeToolCall
from abeyance.agents.tool_errors import ToolDeclarationError
from abeyance.testing import InMemoryRun, run

CLERK = "graph:desk;node:clerk;agent:clerk"
ADA = Principal(subject="ada", capabilities=("*",))
YES = {"approved": True}
RULES = {"pay": {"requested_capability": "refunds:approve", "timeout": "P2D"}}

Make = Callable[..., ForeignAgent]


@pytest.fixture(params=sorted(FRAMEWORKS))
def make(request: pytest.FixtureRequest) -> Make:
    return FRAMEWORKS[request.param]


async def ids(run: InMemoryRun) -> dict[str, str]:
    """Return the id of each open question, by the last part of its address."""
    return {each.address.rsplit(":", 1)[-1]: each.id for each in await run.interrupts()}


async def test_a_frameworks_question_is_an_approval_and_free_calls_run_at_once(
    make: Make,
) -> None:
    office = Office(THREE, "Done.")
    run = await started(make(office, tools=RULES))
    one, three = await run.interrupts()

    assert [one.address, three.address] == [f"{CLERK};tool:pay:c1", f"{CLERK};tool:pay:c3"]
    assert (one.kind, one.name, one.requested_capability) == (
        "approval",
        "approve",
        "refunds:approve",
    )
    assert one.reason == {"tool": "pay", "arguments": {"x": 1}}
    assert one.payload["digest"] != three.payload["digest"]
    assert one.deadline is not None
    assert one.created_at is not None
    assert (one.deadline - one.created_at).days == 2
    assert office.lines == ["turn 1", "look 2"]


async def test_answers_come_in_any_order_and_nothing_runs_again(make: Make) -> None:
    office = Office(THREE, "Done.")
    run = await started(make(office))
    open_ = await ids(run)

    await run.respond(open_["c3"], {"approved": False, "reason": "not today"})
    assert list(await ids(run)) == ["c1"]
    assert (await ids(run))["c1"] == open_["c1"]
    await run.respond(open_["c1"], {"approved": True, "arguments": {"x": 9}})

    assert (run.status, run.values["reply"]) == ("completed", "Done.")
    assert sorted(office.lines) == ["look 2", "pay 9", "turn 1", "turn 2"]
    told = "\n".join(office.heard)
    assert "paid 9" in told
    assert "looked 2" in told
    assert "not run: not today" in told
    assert '{"x":9}' in told


async def test_a_repeated_turn_does_not_request_the_model_again(
    make: Make,
) -> None:
    office = Office(THREE, "Done.")
    framework = make(office).framework
    journal = Recorder().journal
    turn = ForeignTurn(state=None, results={}, prompts=["Pay what is due."], journal=journal)
    one, two = await framework.turn(turn), await framework.turn(turn)

    assert office.lines == ["turn 1"]
    assert one.calls == two.calls
    assert (two.model, two.input_tokens, two.output_tokens) == (one.model, 7, 3)
    results = {call.id: CallResult(content="It is done.") for call in two.calls}
    ended = await framework.turn(replace(turn, state=two.state, results=results, journal=_once))
    assert (ended.output, office.lines) == ("Done.", ["turn 1", "turn 2"])


async def _once(_: str, function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()


async def test_a_used_up_budget_asks_a_person_before_the_next_turn(
    make: Make,
) -> None:
    office = Office([("c1", "look", 1)], [("c2", "look", 2)], "Done.")
    run = await started(make(office, budget=Budget(tokens=1, turns=1)))
    (asked,) = await run.interrupts()
    assert (asked.kind, office.lines) == ("budget", ["turn 1", "look 1"])
    assert asked.reason["by"]["look"]["calls"] == 1
    assert asked.reason["reached"] == ["tokens", "turns"]
    await run.respond(asked.id, {"raise_to": {"tokens": 1_000_000, "turns": 9}})

    assert (run.status, run.values["reply"]) == ("completed", "Done.")
    assert office.lines == ["turn 1", "look 1", "turn 2", "look 2", "turn 3"]


async def test_a_result_may_be_given_in_place_of_a_call(make: Make) -> None:
    office = Office([("c1", "pay", 1)], "Done.")
    run = await started(make(office))
    (question,) = (await ids(run)).values()
    await run.respond(question, {"approved": False, "result": "It was paid by hand."})

    assert office.lines == ["turn 1", "turn 2"]
    assert "It was paid by hand." in "\n".join(office.heard)


async def test_a_message_reaches_the_next_turn_after_the_results_and_says_who_wrote_it(
    make: Make,
) -> None:
    office = Office([("a1", "pay", 1)], [("b1", "pay", 2)], "Done.")
    run = await started(make(office))
    await run.send("Be quick.", principal=ADA)
    await run.respond((await ids(run))["a1"], YES)
    heard = office.heard
    assert "Be quick." in heard[-1]
    assert 'from="ada"' in heard[-1]
    assert "paid 1" in "\n".join(heard[:-1])

    # The later turns still know the message, and know it once.
    await run.respond((await ids(run))["b1"], YES)
    assert sum("Be quick." in text for text in office.heard) == 1
    assert run.status == "completed"


async def test_a_rule_makes_a_tool_ask_that_the_framework_lets_run(make: Make) -> None:
    office = Office([("c1", "look", 1)], "Done.")
    agent = make(office, tools={"look": {"approve": lambda arguments: arguments["x"] == 1}})
    run = await started(agent)
    assert office.lines == ["turn 1"]
    await run.respond((await ids(run))["c1"], YES)
    assert office.lines == ["turn 1", "look 1", "turn 2"]


def test_a_rule_for_a_tool_that_the_agent_does_not_have_is_refused(make: Make) -> None:
    for name in ("refund", "interrupt"):
        with pytest.raises(TypeError, match=r"no such tool; it has 'pay', 'look'$"):
            make(Office("Done."), tools={name: {"timeout": "P2D"}})


def test_a_rule_about_the_approval_of_a_tool_that_asks_nobody_is_refused(make: Make) -> None:
    rules: list[dict[str, Any]] = [
        {"requested_capability": "refunds:approve"},
        {"timeout": "P2D"},
        {"prompt": "Look?"},
        {"decisions": ["approve"]},
        {"assignees": ["ada"]},
    ]
    for rule in rules:
        with pytest.raises(ToolDeclarationError, match="no effect without an approval"):
            make(Office("Done."), tools={"look": rule})
        make(Office("Done."), tools={"look": {"approve": True, **rule}})


@pytest.mark.parametrize("given", ["clerk", lambda: None], ids=["text", "function"])
@pytest.mark.parametrize(
    ("module", "adapter"),
    [
        ("agent_framework", "agent_framework_agent"),
        ("google_adk", "google_adk_agent"),
        ("langgraph", "langgraph_agent"),
        ("openai_agents", "openai_agent"),
        ("pydantic_ai", "pydantic_ai_agent"),
    ],
)
def test_an_object_that_is_not_an_agent_of_the_framework_is_refused(
    module: str, adapter: str, given: object
) -> None:
    if module not in FRAMEWORKS:
        pytest.skip(f"{module} is not installed")
    wrap = getattr(importlib.import_module(f"abeyance.adapters.{module}"), adapter)
    with pytest.raises(TypeError, match="pass one, or a function that makes one"):
        wrap(given)


class _Asking:
    """A framework that asks about each second call that its model makes."""

    name = "clerk"

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tools(self) -> list[ForeignTool]:
        schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
        return [ForeignTool(name="pay", description="Pay.", parameters=schema)]

    def output(self) -> Any:
        return None

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        if turn.state is not None:
            return TurnTaken(state={}, output="Done.")
        calls = [
            ForeignCall(id=f"c{x}", tool="pay", arguments={"x": x}, approve=x % 2 == 0)
            for x in (1, 2, 3, 4)
        ]
        return TurnTaken(state={}, calls=calls)

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> str:
        self.lines.append(f"pay {arguments['x']}")
        return "paid"


class _Reply(BaseModel, extra="forbid"):
    kind: str = Field(alias="class")

    @computed_field
    def length(self) -> int:
        return len(self.kind)


class _Typed(_Asking):
    def output(self) -> Any:
        return _Reply

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        return TurnTaken(state={}, output=_Reply.model_validate({"class": "high"}))


async def test_the_output_that_a_framework_accepted_is_taken_as_its_type_reads_it() -> None:
    graph = Graph("desk")
    graph.agent("clerk", ForeignAgent(_Typed()), input="letter", output="reply")
    graph.edge(START, "clerk")
    ended = await run(graph, {"letter": "Pay."})

    assert (ended.status, ended.values["reply"]) == ("completed", {"class": "high"})


class _Sure:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.args["x"] == 2:
            await event.interrupt("sure", response=bool)


@pytest.mark.parametrize(
    "options",
    [{}, {"tool_execution": "sequential"}, {"hooks": [_Sure()]}],
    ids=lambda each: [*each],
)
async def test_a_call_that_the_framework_asks_about_waits_for_an_approval(
    options: dict[str, Any],
) -> None:
    framework = _Asking()
    run = await started(ForeignAgent(framework, **options))
    approved: set[str] = set()
    while asked := await run.interrupts():
        assert {*framework.lines} <= {"pay 1", "pay 3", *approved}
        if asked[0].kind == "approval":
            approved.add(f"pay {asked[0].reason['arguments']['x']}")
        await run.respond(asked[0].id, YES if asked[0].kind == "approval" else True)

    assert approved == {"pay 2", "pay 4"}
    assert sorted(framework.lines) == ["pay 1", "pay 2", "pay 3", "pay 4"]


def test_a_version_that_no_test_has_seen_is_warned_of_with_both_numbers() -> None:
    tested = r"is tested with 99\.0 up to, but not including, 100\.0"
    with pytest.warns(match=rf"pydantic {version('pydantic')} is installed, .* {tested}"):
        warn_untested("pydantic", "99.0", "100.0")
    # Any warning would fail this test.
    warn_untested("pydantic", "2.0", "100.0")


async def test_a_call_id_that_the_model_uses_twice_is_another_call(make: Make) -> None:
    office = Office([("1", "pay", 1)], [("1", "pay", 2)], "Done.")
    run = await started(make(office))
    await run.respond((await ids(run))["1"], YES)
    assert list(await ids(run)) == ["1-2"]
    await run.respond((await ids(run))["1-2"], YES)
    assert office.lines == ["turn 1", "pay 1", "turn 2", "pay 2", "turn 3"]


async def test_calls_of_one_turn_with_the_same_id_are_made_once_each(make: Make) -> None:
    office = Office([("1", "pay", 1), ("1", "look", 2)], "Done.")
    run = await started(make(office))
    await run.respond((await run.interrupts())[0].id, YES)

    assert (run.status, run.values["reply"]) == ("completed", "Done.")
    assert office.lines == ["turn 1", "look 2", "pay 1", "turn 2"]
    told = "\n".join(office.heard)
    assert "paid 1" in told
    assert "looked 2" in told
