"""A hook that goes wrong lets no call through."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hooked_calls import Named, call, keys, pay

from abeyance import Interrupt
from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.hooks import BeforeToolCall
from abeyance.authoring.interrupts import Suspended


async def _raises(event: BeforeToolCall) -> None:
    message = "oops"
    raise TypeError(message)


async def _raises_interrupt(event: BeforeToolCall) -> None:
    raise Interrupt("sure")


async def _exits(event: BeforeToolCall) -> None:
    raise SystemExit(1)


async def _asks_twice(event: BeforeToolCall) -> None:
    await event.interrupt("known")
    await event.interrupt("known")


async def _asks_twice_and_goes_on(event: BeforeToolCall) -> None:
    await event.interrupt("known")
    try:
        await event.interrupt("known")
    except Exception:  # noqa: BLE001 as an author may write it
        return


async def _awaits_twice(event: BeforeToolCall) -> None:
    question = event.interrupt("known")
    await question
    await question


async def _does_not_wait(event: BeforeToolCall) -> None:
    event.interrupt("sure")


async def _asks_at_once(event: BeforeToolCall) -> None:
    await asyncio.gather(event.interrupt("a"), event.interrupt("b"), return_exceptions=True)


async def _asks_elsewhere(event: BeforeToolCall) -> None:
    raise Suspended([])


async def _goes_to_a_node(event: BeforeToolCall) -> None:
    await event.interrupt("sure", timeout=1, on_timeout="goto:pay")


async def _has_no_name_for_it(event: BeforeToolCall) -> None:
    await event.interrupt("a/b")


async def _takes_args_away(event: BeforeToolCall) -> None:
    event.args = None  # type: ignore[assignment]


async def _spoils_args(event: BeforeToolCall) -> None:
    event.args["amount"] = "much"


async def _adds_what_is_no_json(event: BeforeToolCall) -> None:
    event.args["to"].append(object())


async def _cancels_by_number(event: BeforeToolCall) -> None:
    event.cancel_tool = 1  # type: ignore[assignment]


async def _replaces_the_state(event: BeforeToolCall) -> None:
    event.agent_state = {"trust": "t"}  # type: ignore[assignment]


async def _spoils_the_state(event: BeforeToolCall) -> None:
    event.agent_state["x"] = []
    event.agent_state["x"].append(object())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (_raises, "TypeError: oops"),
        (
            _raises_interrupt,
            "it raised Interrupt; before a call, a hook asks by `await event.interrupt(",
        ),
        (_exits, "RuntimeError: the code called sys.exit("),
        (_asks_twice, "it asks 'known' twice at one event"),
        (_asks_twice_and_goes_on, "it asks 'known' twice at one event"),
        (_awaits_twice, "RuntimeError: cannot reuse already awaited coroutine"),
        (_does_not_wait, "it called interrupt('sure') without await"),
        (_asks_at_once, "it asks 'b' while 'a' is not answered"),
        (_asks_elsewhere, "a question that it did not ask by its event"),
        (_goes_to_a_node, "a hook has no node to go to"),
        (_has_no_name_for_it, "the name 'a/b'"),
        (_takes_args_away, "it set args to a NoneType"),
        (_spoils_args, "it edited the arguments, and they do not fit any more. 'pay' was not run"),
        (_adds_what_is_no_json, "they are not JSON any more"),
        (_cancels_by_number, "it cancels with 1: use True or a text"),
        (_replaces_the_state, "it put a dict in place of the agent's state"),
        (_spoils_the_state, "the value of 'x' in the agent's state is not JSON"),
    ],
)
async def test_a_hook_that_goes_wrong_denies_the_call_and_says_why(
    wrong: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def later(event: BeforeToolCall) -> None:
        ran.append("later")
        event.agent_state["seen"] = True
        await event.interrupt("sure")

    answers = {"wrong/known": "yes"}
    with caplog.at_level(logging.WARNING, "abeyance.hooks"):
        outcome = await run_hooks(
            [Named("wrong", wrong), Named("later", later)], call(), answers, check=pay.read
        )

    assert outcome.denied is not None
    assert outcome.denied.startswith("denied by hook wrong: ")
    assert told in outcome.denied
    assert told in caplog.text
    assert (outcome.asked, outcome.event, ran) == ((), call(), ["later"])


async def test_a_hook_that_cannot_read_an_answer_any_more_asks_again() -> None:
    async def count(event: BeforeToolCall) -> None:
        await event.interrupt("known", response=int)

    outcome = await run_hooks([Named("h", count)], call(), {"h/known": "yes"}, check=pay.read)

    assert outcome.denied is None
    assert [(each.question.name, each.misfit) for each in outcome.asked] == [
        ("known", "Input should be a valid integer, unable to parse string as an integer")
    ]


async def test_the_models_text_of_a_denial_is_bounded() -> None:
    async def fail(event: BeforeToolCall) -> None:
        raise ValueError("x" * 10_000)

    denied = (await run_hooks([Named("h", fail)], call())).denied
    assert denied is not None
    assert len(denied) < 2_100


async def test_a_hook_that_swallows_its_own_question_has_still_asked() -> None:
    async def swallow(event: BeforeToolCall) -> None:
        try:
            await event.interrupt("sure")
        except BaseException:  # noqa: BLE001 as an author may write it
            event.args["amount"] = 1_000

    outcome = await run_hooks([Named("h", swallow)], call())
    assert (keys(outcome), outcome.event.args["amount"]) == (["h/sure"], 5)


async def test_a_hook_may_ask_from_a_task_group() -> None:
    async def grouped(event: BeforeToolCall) -> None:
        async def ask() -> None:
            await event.interrupt("sure")

        async with asyncio.TaskGroup() as group:
            group.create_task(ask())

    assert keys(await run_hooks([Named("h", grouped)], call())) == ["h/sure"]
    assert keys(await run_hooks([Named("h", grouped)], call(), {"h/sure": 1})) == []


async def test_a_hook_that_ends_the_process_is_not_a_denial() -> None:
    async def stop(event: BeforeToolCall) -> None:
        raise BaseExceptionGroup("", [KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup):
        await run_hooks([Named("h", stop)], call())


async def test_a_hook_that_ended_can_ask_nobody() -> None:
    kept: list[BeforeToolCall] = []

    async def keep(event: BeforeToolCall) -> None:
        kept.append(event)

    outcome = await run_hooks([Named("h", keep)], call())
    with pytest.raises(Exception, match="after it has ended"):
        await kept[0].interrupt("late")
    kept[0].args["amount"] = 1_000
    kept[0].args["to"].append("Z")
    assert outcome.event == call()


async def test_checked_arguments_cannot_be_edited_afterwards() -> None:
    kept: list[BeforeToolCall] = []

    async def edit(event: BeforeToolCall) -> None:
        event.args["amount"] = 6
        kept.append(event)

    outcome = await run_hooks([Named("h", edit)], call())
    kept[0].args["to"].append("Z")
    assert outcome.event.args == {"amount": 6, "to": ["X"]}


async def test_a_method_that_is_not_async_denies() -> None:
    class Plain:
        def before_tool_call(self, event: BeforeToolCall) -> None: ...

    assert (await run_hooks([Plain()], call())).denied == (
        "denied by hook Plain: its before_tool_call is not async"
    )


async def test_a_cancel_stops_the_hooks() -> None:
    begun = asyncio.Event()

    async def long(event: BeforeToolCall) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_hooks([Named("h", long)], call()))
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
