"""Hooks around a tool call: the changes that they may make, and the questions that they may ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from hooked_calls import Named, call, keys, pay

from abeyance.agents.hook_runner import processes, run_hooks
from abeyance.agents.hooks import AfterToolCall, BeforeToolCall, hook_faults, listens
from abeyance.agents.tool_errors import CallError
from abeyance.core.spec import Default


class ApprovalHook:
    """Asks about each call, until a person answers `t`."""

    def __init__(self) -> None:
        self.runs = 0

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        self.runs += 1
        if event.agent_state.get("trust") == "t":
            return
        answer = await event.interrupt(
            "approval",
            reason={"tool": event.tool, "args": event.args},
            response=Literal["y", "n", "t"],
            requested_capability="money:send",
        )
        if answer == "n":
            event.cancel_tool = "User denied permission"
        event.agent_state["trust"] = answer


async def test_a_hook_asks_is_run_again_with_the_answer_and_may_cancel() -> None:
    hook = ApprovalHook()
    first = await run_hooks([hook], call())

    assert keys(first) == ["ApprovalHook/approval"]
    assert first.denied is None
    asked = first.asked[0]
    assert asked.question.reason == {"tool": "pay", "args": {"amount": 5, "to": ["X"]}}
    assert asked.question.requested_capability == "money:send"
    assert asked.question.response_schema == {"enum": ["y", "n", "t"], "type": "string"}

    denied = await run_hooks([hook], call(), {"ApprovalHook/approval": "n"})
    assert (keys(denied), denied.cancelled) == ([], "User denied permission")
    allowed = await run_hooks([hook], call(), {"ApprovalHook/approval": "y"})
    assert (keys(allowed), allowed.cancelled, allowed.denied) == ([], None, None)
    assert hook.runs == 3


async def test_all_hooks_run_and_what_they_ask_is_listed_together() -> None:
    ran: list[str] = []

    async def ask(name: str, event: BeforeToolCall) -> None:
        ran.append(name)
        await event.interrupt("approve")

    async def only_look(event: BeforeToolCall) -> None:
        ran.append("look")

    hooks = [Named("a", partial(ask, "a")), Named("look", only_look), Named("b", partial(ask, "b"))]
    first = await run_hooks(hooks, call())
    assert (keys(first), ran) == (["a/approve", "b/approve"], ["a", "look", "b"])
    second = await run_hooks(hooks, call(), {"b/approve": None})
    assert keys(second) == ["a/approve"]
    assert keys(await run_hooks(hooks, call(), {"b/approve": None, "a/approve": False})) == []


async def test_a_hook_may_ask_several_things_one_after_the_other() -> None:
    got: list[Any] = []

    async def ask(event: BeforeToolCall) -> None:
        got.append([await event.interrupt("first"), await event.interrupt("second")])

    hooks = [Named("h", ask)]
    assert keys(await run_hooks(hooks, call())) == ["h/first"]
    assert keys(await run_hooks(hooks, call(), {"h/first": 0})) == ["h/second"]
    assert keys(await run_hooks(hooks, call(), {"h/first": 0, "h/second": ""})) == []
    assert got == [[0, ""]]


def test_hooks_of_the_same_name_get_numbers() -> None:
    async def nothing(event: BeforeToolCall) -> None: ...

    hooks = [
        ApprovalHook(),
        Named("x", nothing),
        ApprovalHook(),
        Named("ApprovalHook.2", nothing),
        ApprovalHook(),
    ]
    assert [name for name, _ in processes(hooks)] == [
        "ApprovalHook",
        "x",
        "ApprovalHook.2",
        "ApprovalHook.2.2",
        "ApprovalHook.3",
    ]


async def test_edits_are_made_in_order_each_on_those_before_it() -> None:
    async def double(event: BeforeToolCall) -> None:
        event.args["amount"] *= 2

    async def replace(event: BeforeToolCall) -> None:
        event.args = {**event.args, "amount": str(event.args["amount"] + 1), "to": []}
        event.tool = "other"

    given = call()
    outcome = await run_hooks([Named("a", double), Named("b", replace)], given, check=pay.read)

    assert outcome.event.args == {"amount": 11, "to": []}
    assert outcome.event.tool == "pay"
    assert given == call()


async def test_changes_of_hooks_are_dropped_while_a_hook_asks() -> None:
    async def edit(event: BeforeToolCall) -> None:
        event.args["to"].append("Y")
        event.agent_state["seen"] = True
        event.cancel_tool = True

    async def ask(event: BeforeToolCall) -> None:
        event.args["amount"] = 0
        await event.interrupt("sure")

    hooks = [Named("edit", edit), Named("ask", ask)]
    waiting = await run_hooks(hooks, call())
    assert waiting.event == call()
    assert (waiting.cancelled, waiting.event.agent_state.changes()) == (None, {})
    done = await run_hooks(hooks, call(), {"ask/sure": 1})
    assert done.event.args == {"amount": 0, "to": ["X", "Y"]}
    assert done.event.agent_state.changes() == {"seen": True}
    assert done.cancelled == "cancelled by hook edit"


async def test_the_first_hook_that_cancels_says_why() -> None:
    def cancelling(said: Any) -> Callable[[BeforeToolCall], Any]:
        async def cancel(event: BeforeToolCall) -> None:
            event.cancel_tool = said

        return cancel

    hooks = [
        Named("a", cancelling("no")),
        Named("b", cancelling("never")),
        Named("c", cancelling(False)),
    ]
    assert (await run_hooks(hooks, call())).cancelled == "no"
    assert (await run_hooks(hooks[2:], call())).cancelled is None
    assert (
        await run_hooks([Named("d", cancelling(""))], call())
    ).cancelled == "cancelled by hook d"


async def test_a_question_may_have_a_deadline_with_a_default() -> None:
    async def ask(event: BeforeToolCall) -> None:
        await event.interrupt("sure", timeout="1h", on_timeout={"default": "n"})

    question = (await run_hooks([Named("h", ask)], call())).asked[0].question
    assert (question.timeout, question.on_timeout) == (3600.0, Default(answer="n"))


def test_a_hook_has_async_methods_that_take_an_event() -> None:
    class Wrong:
        name = "a/b"

        def before_tool_call(self, event: BeforeToolCall) -> None: ...

        async def after_tool_call(self) -> None: ...

        async def before_tool_cal(self, event: BeforeToolCall) -> None: ...

        async def beforeToolCall(self, event: Any) -> None: ...  # noqa: N802

        async def on_after_tool_call(self, event: Any) -> None: ...

        async def before_lunch(self, event: Any) -> None: ...

    assert hook_faults(ApprovalHook()) == []
    methods = "before_tool_call, after_tool_call"
    *faults, name = hook_faults(Wrong())
    assert "has the invalid name 'a/b': use a text" in name
    assert faults == [
        f"the hook Wrong {fault}"
        for fault in (
            "has before_tool_call, which is not async: write `async def before_tool_call(self, event)`",
            "has after_tool_call, which must take one event: write (self, event)",
            "has beforeToolCall, which is never called; is it before_tool_call?",
            f"has before_lunch, which is never called; there are {methods}",
            "has before_tool_cal, which is never called; is it before_tool_call?",
            "has on_after_tool_call, which is never called; is it after_tool_call?",
        )
    ]


def test_a_hook_may_have_a_name() -> None:
    async def nothing(event: BeforeToolCall) -> None: ...

    assert hook_faults(Named("x", nothing)) == []
    assert "use a text that is not empty" in hook_faults(Named("", nothing))[0]


class NoMethod:
    after_tool_call = 5


def test_an_object_without_hook_methods_is_a_fault() -> None:
    assert hook_faults(ApprovalHook) == [
        "ApprovalHook is a class; a hook is an object: write ApprovalHook()"
    ]
    assert "has after_tool_call, which is not a method but 5" in hook_faults(NoMethod())[0]
    assert "int has none of the methods before_tool_call, after" in hook_faults(3)[0]


# The events, and what is checked after them


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


async def test_a_check_may_deny_a_call_in_its_own_words() -> None:
    async def edit(event: BeforeToolCall) -> None:
        event.args["amount"] = 7

    def refuse(args: Any) -> Any:
        message = f"{args['amount']} is unlucky"
        raise CallError(message)

    denied = (await run_hooks([Named("h", edit)], call(), check=refuse)).denied
    assert denied is not None
    assert "7 is unlucky" in denied
