"""Hooks after a tool call, and events that a hook does not listen to."""

from __future__ import annotations

from typing import Any

from hooked_calls import Named, call, pay

from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.hooks import (
    AfterToolCall,
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
