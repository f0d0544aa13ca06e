"""The other events: after a tool call, around a model call, before a node."""

from __future__ import annotations

from typing import Any

import pytest
from hooked_calls import Named, call, keys, pay
from pydantic_ai.messages import ModelRequest

from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.hooks import (
    AfterModelCall,
    AfterToolCall,
    BeforeModelCall,
    BeforeNode,
    BeforeToolCall,
    listens,
)
from abeyance.agents.tool_errors import CallError


async def test_after_a_call_its_result_may_be_replaced_within_its_bounds() -> None:
    class Redact:
        def __init__(self, result: Any) -> None:
            self.result = result

        async def after_tool_call(self, event: AfterToolCall) -> None:
            event.result = self.result if event.result == "secret" else event.result
            event.error = not event.error

    def given(result: Any) -> AfterToolCall:
        return AfterToolCall(tool="pay", args={}, call_id="c1", result=result)

    done = await run_hooks([Redact(["hidden"])], given("secret"), check=pay.checked_result)
    assert (done.event.result, done.event.error, done.denied) == (["hidden"], True, None)
    twice = await run_hooks([Redact("x"), Redact("y")], given("secret"), check=pay.checked_result)
    assert (twice.event.result, twice.event.error) == ("x", False)
    for result, told in ((object(), "is not JSON"), ("x" * 100_000, "of at most 100000")):
        refused = await run_hooks([Redact(result)], given("secret"), check=pay.checked_result)
        assert refused.denied is not None
        assert told in refused.denied


async def test_an_error_flag_that_is_none_denies() -> None:
    class Unsure:
        async def after_tool_call(self, event: AfterToolCall) -> None:
            event.error = None  # type: ignore[assignment]

    given = AfterToolCall(tool="pay", args={}, call_id="c1", cancelled=True)
    denied = (await run_hooks([Unsure()], given)).denied
    assert denied == "denied by hook Unsure: it set error to None, which is neither True nor False"


async def test_before_the_model_is_asked_messages_may_be_added_and_replaced() -> None:
    class Remind:
        async def before_model_call(self, event: BeforeModelCall) -> None:
            event.messages.append(ModelRequest.user_text_prompt(f"turn {event.turn}"))
            event.agent_state["reminded"] = True

    class Forget:
        async def before_model_call(self, event: BeforeModelCall) -> None:
            event.messages = event.messages[1:]

    a, b = ModelRequest.user_text_prompt("a"), ModelRequest.user_text_prompt("b")
    given = BeforeModelCall(messages=[a, b], turn=2)
    done = await run_hooks([Remind(), Forget()], given)
    assert (done.event.messages[0], given.messages) == (b, [a, b])
    assert done.event.messages[1].parts[0].content == "turn 2"
    assert done.event.agent_state.changes() == {"reminded": True}


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ((), "it set messages to a tuple, which is not a list"),
        (["be brief"], "it put a str among the messages, each of which is a ModelRequest or"),
        ([], "it left no message for the model"),
    ],
)
async def test_messages_that_no_model_can_be_asked_with_deny(left: Any, why: str) -> None:
    class Spoil:
        async def before_model_call(self, event: BeforeModelCall) -> None:
            event.messages = left

    given = BeforeModelCall(messages=[ModelRequest.user_text_prompt("a")], turn=2)
    denied = (await run_hooks([Spoil()], given)).denied
    assert str(denied).startswith(f"denied by hook Spoil: {why}")


async def test_after_the_model_has_answered_a_hook_may_ask_and_remember() -> None:
    class Watch:
        async def after_model_call(self, event: AfterModelCall) -> None:
            event.agent_state["tokens"] = event.usage["tokens"]
            if await event.interrupt("go-on", response=bool):
                event.agent_state["asked"] = event.turn

    given = AfterModelCall(response=object(), usage={"tokens": 9}, turn=1)
    assert keys(await run_hooks([Watch()], given)) == ["Watch.after/go-on"]
    done = await run_hooks([Watch()], given, {"Watch.after/go-on": True})
    assert done.event.agent_state.changes() == {"tokens": 9, "asked": 1}
    assert done.event.response is given.response


async def test_a_hook_may_ask_the_same_before_and_after_and_gets_an_answer_for_each() -> None:
    class Twice:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            await event.interrupt("sure")

        async def after_tool_call(self, event: AfterToolCall) -> None:
            event.result = await event.interrupt("sure")

    given = AfterToolCall(tool="pay", args={}, call_id="c1", result=1)
    assert keys(await run_hooks([Twice()], call())) == ["Twice/sure"]
    assert keys(await run_hooks([Twice()], given, {"Twice/sure": "y"})) == ["Twice.after/sure"]
    done = await run_hooks([Twice()], given, {"Twice/sure": "y", "Twice.after/sure": "n"})
    assert done.event.result == "n"


async def test_before_a_node_a_hook_may_ask_and_cancel() -> None:
    class Gate:
        async def before_node(self, event: BeforeNode) -> None:
            if await event.interrupt("run-it", reason=event.node) == "no":
                event.cancel_node = "not today"

    values = {"x": [1]}
    given = BeforeNode(node="pay", address="graph:g;node:pay", values=values)
    assert keys(await run_hooks([Gate()], given)) == ["Gate.node/run-it"]
    assert (await run_hooks([Gate()], given, {"Gate.node/run-it": "no"})).cancelled == "not today"
    assert (await run_hooks([Gate()], given, {"Gate.node/run-it": "yes"})).cancelled is None


async def test_a_hook_runs_only_at_the_events_that_it_listens_to() -> None:
    async def nothing(event: BeforeToolCall) -> None: ...

    hook = Named("h", nothing)
    given = AfterToolCall(tool="pay", args={}, call_id="c1", result=1)

    assert (listens(hook, BeforeToolCall), listens(hook, AfterToolCall)) == (True, False)
    outcome = await run_hooks([hook], given)
    assert (outcome.asked, outcome.denied, outcome.event) == ((), None, given)


async def test_what_is_checked_may_be_refused_in_the_callers_own_words() -> None:
    async def edit(event: BeforeToolCall) -> None:
        event.args["amount"] = 7

    def refuse(args: Any) -> Any:
        message = f"{args['amount']} is unlucky"
        raise CallError(message)

    denied = (await run_hooks([Named("h", edit)], call(), check=refuse)).denied
    assert denied is not None
    assert "7 is unlucky" in denied
