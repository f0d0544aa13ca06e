"""How a call of a tool runs, and what the model is told of the result."""

from __future__ import annotations

import asyncio
import queue
import threading
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel
from scripted_agents import Script, call, started
from tool_calls import calling

from abeyance import Agent, Fatal, Interrupt
from abeyance.agents.tool import ToolContext
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ResultError, ToolFailed
from abeyance.authoring.interrupts import Suspended


class Payee(BaseModel):
    iban: str
    name: str = "?"


async def test_a_coroutine_runs_on_the_loop_and_a_plain_function_in_a_thread() -> None:
    @tool
    async def on_loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    @tool
    def in_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await on_loop.run(calling(), {}) is True
    assert await in_thread.run(calling(), {}) is False


async def test_the_model_reads_a_tools_error_without_its_traceback() -> None:
    @tool
    def fail(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(ToolFailed) as failed:
        await fail.run(calling(), {"text": "no such order"})
    assert failed.value.text == "LookupError: no such order"
    assert isinstance(failed.value.__cause__, LookupError)
    with pytest.raises(ToolFailed) as failed:
        await fail.run(calling(), {"text": "x" * 5_000})
    assert failed.value.text == f"LookupError: {'x' * 2_000}"[:1_997] + "..."


async def test_the_model_reads_the_errors_in_an_exception_group() -> None:
    async def broken() -> None:
        message = "no such order"
        raise LookupError(message)

    @tool
    async def fetch() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(broken())

    with pytest.raises(ToolFailed, match=r"ExceptionGroup: .*: LookupError: no such order"):
        await fetch.run(calling(), {})


async def test_a_tool_can_choose_the_models_error_text() -> None:
    @tool
    def fail() -> None:
        message = "The shop is closed; try tomorrow."
        raise ToolFailed(message)

    with pytest.raises(ToolFailed) as failed:
        await fail.run(calling(), {})
    assert failed.value.text == "The shop is closed; try tomorrow."


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()])
async def test_an_error_that_would_end_the_process_ends_only_the_call(error: BaseException) -> None:
    @tool
    def fail() -> None:
        raise error

    with pytest.raises(ToolFailed, match="RuntimeError"):
        await fail.run(calling(), {})


async def test_a_base_exception_of_a_tool_fails_the_call() -> None:
    class Stop(BaseException):
        pass

    @tool
    async def fail(ctx: ToolContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.interrupt("which"))
            group.create_task(broken())

    async def broken() -> None:
        raise Stop

    with pytest.raises(ToolFailed, match="Stop"):
        await fail.run(calling(), {})


async def test_a_cancel_from_outside_is_a_cancel() -> None:
    begun = asyncio.Event()

    @tool
    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(long.run(calling(), {}))
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_asking_a_person_and_giving_up_pass_through() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        return f"they said {await ctx.interrupt('sure', response=bool)}"

    @tool
    def raise_it(what: str) -> None:
        if what == "group":
            raise ExceptionGroup("", [Interrupt("a"), Interrupt("b")])
        raise Interrupt("a") if what == "interrupt" else Fatal("no")

    with pytest.raises(Suspended):
        await ask.run(calling(), {})
    assert await ask.run(calling(own_answers={"sure": True}), {}) == "they said True"
    for what, error in (("interrupt", Interrupt), ("fatal", Fatal), ("group", ExceptionGroup)):
        with pytest.raises(error):
            await raise_it.run(calling(), {"what": what})


async def test_a_result_is_json_and_not_too_large() -> None:
    @tool(max_result=100)
    def give(what: str) -> Any:
        given: dict[str, Any] = {
            "model": Payee(iban="X"),
            "date": date(2026, 3, 2),
            "nothing": None,
            "object": object(),
            "nan": float("nan"),
            "large": "x" * 99,
            "surrogate": "\ud800",
        }
        return given[what]

    assert await give.run(calling(), {"what": "model"}) == {"iban": "X", "name": "?"}
    assert await give.run(calling(), {"what": "date"}) == "2026-03-02"
    assert await give.run(calling(), {"what": "nothing"}) is None
    for what, told in (
        ("object", "'give' has run, but its result, a object, is not JSON"),
        ("nan", "is not JSON"),
        ("surrogate", "is not JSON"),
        ("large", "'give' has run, but its result takes 101 bytes of at most 100"),
    ):
        with pytest.raises(ResultError) as refused:
            await give.run(calling(), {"what": what})
        assert told in refused.value.text


async def test_a_tool_may_remember_things_in_the_agents_state() -> None:
    @tool
    def remember(ctx: ToolContext, key: str, value: Any) -> None:
        ctx.agent_state[key] = value

    @tool
    def spoil(ctx: ToolContext) -> None:
        ctx.agent_state["seen"].append(object())

    here = calling({"seen": [1]})
    await remember.run(here, {"key": "trusted", "value": ["anna"]})
    assert here.agent_state.changes() == {"trusted": ["anna"]}
    with pytest.raises(ToolFailed, match="the value of 'seen' in the agent's state is not JSON"):
        await spoil.run(calling({"seen": [1]}), {})


async def test_a_tool_in_a_thread_is_cancelled_cooperatively_at_its_timeout() -> None:
    told: queue.Queue[None] = queue.Queue()
    stopped: queue.Queue[bool] = queue.Queue()

    # The timeout is long enough for a thread to begin.
    @tool(timeout=0.5)
    def hang(ctx: ToolContext) -> None:
        told.get(timeout=30)
        stopped.put(ctx.cancelled)

    script = Script(call("hang", "c1"), "done")
    await started(Agent("clerk", model=script, tools=[hang]))
    told.put(None)

    outcome, text = script.told()["c1"]
    assert (outcome, "timeout of 0.5 s" in text) == ("failed", True)
    assert stopped.get(timeout=30)
