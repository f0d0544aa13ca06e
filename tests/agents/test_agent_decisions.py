"""An approver may change the arguments of a call, or give a result in its place."""

from __future__ import annotations

from typing import Any

from scripted_agents import Script, answered, call, call_items, started
from tool_calls import Purse, paying

from abeyance import AfterToolCall, Agent, Principal
from abeyance.testing import InMemoryRun

ADA = Principal(subject="ada")
EDIT = {"approved": True, "arguments": {"amount": 3}}
RESULT = {"approved": False, "result": {"paid": "in cash"}}


async def test_the_model_reads_a_result_in_place_of_the_call_which_is_not_made() -> None:
    purse = Purse()
    run, script = await paying(purse)
    await run.respond("approve", RESULT, principal=ADA)

    assert (purse.paid, run.status) == ([], "completed")
    assert script.told() == {"c1": ("success", {"paid": "in cash"})}
    (entry,) = await call_items(run)
    assert (entry.decision, entry.answered_by, entry.result) == (
        "respond",
        "ada",
        {"paid": "in cash"},
    )


async def test_the_model_and_the_transcript_get_an_approvers_edit() -> None:
    purse = Purse()
    run, script = await paying(purse)
    await run.respond("approve", EDIT, principal=ADA)

    assert purse.paid == [(3, "bob")]
    assert script.told() == {"c1": ("success", "paid 3")}
    assert script.heard()[-1] == (
        "ada changed the arguments of your call 'c1' of 'pay' before it was run, to "
        '{"amount":3,"to":"bob"}'
    )
    (entry,) = await call_items(run)
    assert (entry.decision, entry.answered_by, entry.arguments) == (
        "edit",
        "ada",
        {"amount": 3, "to": "bob"},
    )
    items = await run.transcript(min(run.state.transcripts, key=len))
    assert [(item.role, item.text) for item in items if item.text == script.heard()[-1]] == [
        ("system", script.heard()[-1])
    ]


async def test_after_hooks_see_the_result_of_a_person_and_may_change_it() -> None:
    class Redact:
        async def after_tool_call(self, event: AfterToolCall) -> None:
            seen.append((event.result, event.error))
            event.result = "redacted"

    seen: list[Any] = []
    run, script = await paying(Purse(), hooks=[Redact()])
    await run.respond("approve", RESULT, principal=ADA)

    assert seen == [({"paid": "in cash"}, False)]
    assert script.told() == {"c1": ("success", "redacted")}
    (entry,) = await call_items(run)
    assert (entry.decision, entry.answered_by) == ("respond", "ada")


async def test_the_call_of_an_agent_is_decided_in_the_same_way() -> None:
    class Watch:
        async def after_tool_call(self, event: AfterToolCall) -> None:
            pass

    async def asked(answer: Any) -> tuple[InMemoryRun, Script]:
        helper = Agent("helper", model=Script(lambda messages: "helped"))
        script = Script(call("helper", "c1", task="look"), answered)
        boss = Agent(
            "boss",
            model=script,
            tools=[helper.as_tool(description="Helps.", approve=True)],
            hooks=[Watch()],
        )
        run = await started(boss)
        await run.respond("approve", answer, principal=ADA)
        return run, script

    run, script = await asked({"approved": False, "result": "done already"})
    assert script.told() == {"c1": ("success", "done already")}
    assert (await call_items(run))[0].answered_by == "ada"

    run, script = await asked({"approved": True, "arguments": {"task": "find"}})
    assert script.told() == {"c1": ("success", "helped")}
    assert script.heard()[-1].startswith("ada changed the arguments of your call 'c1' of 'helper'")
    assert (await call_items(run))[0].decision == "edit"
