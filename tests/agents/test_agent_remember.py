"""Approvals that a person may remember: the declaration, the answer, and the calls that run unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from scripted_agents import Script, call, call_items, started

from abeyance import Agent, Principal, Refusal, Remember, tool
from abeyance.agents.tool_dispatch import MUST_ASK
from abeyance.agents.tool_errors import ToolDeclarationError
from abeyance.errors import Code
from abeyance.testing import InMemoryRun

ADA = Principal(subject="ada", capabilities=("pay",))
WEEK = Remember(most="7d", where=["run", "graph"], same=["to"], below={"amount": 200})
YES = {"approved": True, "remember": {"for": "8h", "where": "run"}}


class Purse:
    """The tool `pay`, whose approvals may be remembered, and the payments that it made."""

    def __init__(self, remember: Remember | None = WEEK, **options: Any) -> None:
        self.paid: list[tuple[int, str]] = []

        @tool(approve=True, requested_capability="pay", remember=remember, **options)
        async def pay(amount: int, to: str, note: str = "") -> str:
            self.paid.append((amount, to))
            return f"paid {amount}{note}"

        self.tool = pay


async def paying(purse: Purse, *calls: tuple[int, str]) -> tuple[InMemoryRun, Script]:
    turns = [
        call("pay", f"c{number}", amount=amount, to=to)
        for number, (amount, to) in enumerate(calls, start=1)
    ]
    script = Script(*turns, "done")
    return await started(Agent("clerk", model=script, tools=[purse.tool])), script


async def told(run: InMemoryRun, *wanted: str) -> list[Any]:
    return [event.data async for event in run.events(follow=False) if event.type in wanted]


async def test_a_call_that_a_remembered_yes_covers_runs_unasked_and_says_so() -> None:
    purse = Purse()
    run, script = await paying(purse, (500, "bob"), (199, "bob"))
    (question,) = await run.interrupts()
    assert question.remember is not None
    assert question.remember.model_dump() == {
        "most": 7 * 86_400.0,
        "where": ["run", "graph"],
        "same": ["to"],
        "below": {"amount": 200.0},
    }
    await run.respond("approve", YES, principal=ADA)

    assert (run.status, purse.paid) == ("completed", [(500, "bob"), (199, "bob")])
    assert script.told() == {"c2": ("success", "paid 199")}
    (made, used) = await told(run, "approval.remembered", "approval.granted")
    assert (made["tool"], made["where"], made["uses"]) == ("pay", "run", None)
    approval = {"grant": made["grant"], "by": "ada"}
    assert used == {**approval, "approval": approval, "tool": "pay", "call": "c2"}
    assert [item.approval for item in await call_items(run)] == [None, approval]


async def test_the_audit_of_a_call_that_ran_unasked_has_what_somebody_would_have_been_shown() -> (
    None
):
    purse = Purse(prompt="Pay {amount} to {to}?")
    run, _ = await paying(purse, (5, "bob"), (6, "bob"))
    await run.respond("approve", YES, principal=ADA)

    lines = [json.loads(line) for line in (await run.audit()).splitlines()]
    (asked,) = [each["shown"] for each in lines if each["type"] == "interrupt.opened"]
    (unasked,) = [each["shown"] for each in lines if each["type"] == "approval.granted"]
    assert unasked["prompt"] == "Pay 6 to bob?"
    assert unasked["reason"] == {"tool": "pay", "arguments": {"amount": 6, "to": "bob", "note": ""}}
    assert unasked["prompt_values"] == [[4, 5], [9, 12]]
    assert unasked["reason"].keys() == asked["reason"].keys()


async def test_a_call_whose_arguments_nobody_could_be_shown_runs_unasked_without_them() -> None:
    purse = Purse()
    script = Script(
        call("pay", "c1", amount=5, to="bob"),
        call("pay", "c2", amount=6, to="bob", note="x" * 200_000),
        "done",
    )
    run = await started(Agent("clerk", model=script, tools=[purse.tool]))
    await run.respond("approve", YES, principal=ADA)

    lines = [json.loads(line) for line in (await run.audit()).splitlines()]
    (unasked,) = [each for each in lines if each["type"] == "approval.granted"]
    assert (purse.paid, "shown" in unasked) == ([(5, "bob"), (6, "bob")], False)


async def test_a_grant_with_one_use_lets_one_call_run() -> None:
    purse = Purse()
    run, _ = await paying(purse, (5, "bob"), (6, "bob"), (7, "bob"))
    answer = {"approved": True, "remember": {"for": "8h", "where": "run", "uses": 1}}
    await run.respond("approve", answer, principal=ADA)

    assert (run.status, purse.paid) == ("awaiting-input", [(5, "bob"), (6, "bob")])


async def test_a_call_with_a_preview_runs_unasked_and_without_one() -> None:
    previews = []

    async def preview(amount: int) -> dict[str, str]:
        previews.append(amount)
        return {"summary": f"pays {amount}"}

    purse = Purse(preview=preview)
    run, _ = await paying(purse, (5, "bob"), (6, "bob"))
    await run.respond("approve", YES, principal=ADA)

    assert (run.status, purse.paid) == ("completed", [(5, "bob"), (6, "bob")])
    assert {*previews} == {5}


async def test_a_call_for_which_a_framework_wants_an_approval_is_asked_about() -> None:
    purse = Purse()
    wanted = replace(call("pay", "c2", amount=6, to="bob"), provider_details={MUST_ASK: True})
    script = Script(call("pay", "c1", amount=5, to="bob"), wanted, "done")
    run = await started(Agent("clerk", model=script, tools=[purse.tool]))
    await run.respond("approve", YES, principal=ADA)

    assert (run.status, purse.paid) == ("awaiting-input", [(5, "bob")])


async def refused(purse: Purse, answer: Any, principal: Principal = ADA) -> Refusal:
    run, _ = await paying(purse, (5, "bob"))
    before = run.state
    with pytest.raises(Refusal) as error:
        await run.respond("approve", answer, principal=principal)
    assert run.state is before
    return error.value


async def test_an_approval_is_remembered_only_if_the_author_allows_it() -> None:
    run, _ = await paying(Purse(remember=None), (5, "bob"))
    (question,) = await run.interrupts()
    assert (question.remember, "remember" in question.response_schema["properties"]) == (
        None,
        False,
    )


@pytest.mark.parametrize(
    ("remember", "pointer"),
    [
        ({"for": "soon", "where": "run"}, "/remember/for"),
        ({"for": 0, "where": "run"}, "/remember/for"),
        ({"for": "1h", "where": "everywhere"}, "/remember/where"),
        ({"for": "1h", "where": "run", "uses": 0}, "/remember/uses"),
        ({"for": "1h"}, "/remember"),
    ],
)
async def test_an_unreadable_remember_is_an_invalid_answer(remember: Any, pointer: str) -> None:
    refusal = await refused(Purse(), {"approved": True, "remember": remember})
    assert refusal.code is Code.INVALID_ANSWER
    assert refusal.details["errors"][0]["pointer"] == pointer


async def test_a_no_is_not_remembered() -> None:
    refusal = await refused(Purse(), {**YES, "approved": False})
    assert refusal.code is Code.INVALID_ANSWER


def test_an_agent_as_a_tool_has_no_approvals_that_are_remembered() -> None:
    helper = Agent("helper", model=Script("done"))
    options: dict[str, Any] = {"remember": WEEK}
    with pytest.raises(
        ToolDeclarationError, match="a task says anything: declare it for the tools"
    ):
        helper.as_tool(description="helps", approve=True, **options)
