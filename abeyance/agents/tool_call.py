"""The visit of a tool call: the gate, the tool itself, its result, and the after-hooks.

An approval is for one attempt. The journal records the start of an approved tool, and then its result. An
attempt that finds a start without a result follows a lost worker: it asks an operator about the outcome,
unless the tool declares another `on_unknown`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from abeyance.agents import tool_results
from abeyance.agents.agent import Agent
from abeyance.agents.approvals import (
    OUTCOME,
    Done,
    FailCall,
    RetryCall,
    outcome_of,
    outcome_question,
)
from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool import Tool, ToolContext
from abeyance.agents.tool_errors import CallError, ToolFailed
from abeyance.agents.tool_gate import ToolGate, after_event, needs_answers
from abeyance.agents.tool_results import blobs_of
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended, suspended_by
from abeyance.core.json import Json, size
from abeyance.core.outcome import CALL_STARTED, Finished, key_of
from abeyance.errors import Blocked, Unavailable
from abeyance.storage.converter import storage_code

_STARTED: Final = CALL_STARTED.removeprefix("/")
_RESULT_MARK: Final = "made"
_OUTCOMES: Final = key_of("outcome", "")
_RESULT: Final = "/result"
_MAX_SAVED_BYTES: Final = 200_000
"""A larger result is not saved in the journal before it is reported."""
_logger = logging.getLogger("abeyance.agent")


async def _with_timeout(tool: Tool, work: Coroutine[Any, Any, Json], late: threading.Event) -> Json:
    """Run a call within its tool's timeout. Raises TimeoutError.

    A thread cannot be stopped: `late` cancels it cooperatively, and nothing waits for it. Otherwise the
    server would count the attempt as lost and start the call again beside it.
    """
    if tool.timeout is None or inspect.iscoroutinefunction(tool.function):
        async with asyncio.timeout(tool.timeout):
            return await work
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=tool.timeout)
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    if task.done():
        return task.result()
    late.set()
    task.cancel()
    raise TimeoutError


class ToolVisit:
    """The code of a tool's node, or of an MCP server's."""

    def __init__(self, agent: Agent, node: str) -> None:
        self._agent = agent
        self._node = node

    async def run(self, state: AgentValues, ctx: Context) -> Finished:
        """Make the call of a visit."""
        name = str(ctx.item["tool"])
        server = self._agent.servers.get(self._node)
        tools = self._agent.tools if server is None else await server.available_tools()
        if name not in tools:
            missing = tool_results.error(f"There is no tool {name!r} any more.")
            return Finished(result=missing, tool_status="failed")
        return await _Call(self._agent, tools[name], state, ctx).make()


class _Call:
    def __init__(self, agent: Agent, tool: Tool, state: AgentValues, ctx: Context) -> None:
        self._agent = agent
        self._tool = tool
        self._ctx = ctx
        self._id = str(ctx.item["call_id"])
        self._arguments: dict[str, Json] = dict(ctx.item["args"])
        self._memory = AgentState(state.agent_state)
        self._edit: dict[str, Json] = {}

    async def make(self) -> Finished:
        """Make the call, and run the after-hooks on its result."""
        ctx, saved, recorded = (
            self._ctx,
            self._ctx.saved_state,
            self._ctx.runtime.journal.get_marker(_RESULT_MARK),
        )
        result: dict[str, Json] | None = ctx.item.get("known")
        try:
            if isinstance(saved, Mapping) and _RESULT in saved:
                # The tool has run, and an after-hook asked.
                self._restore(saved)
                result = await tool_results.load(blobs_of(ctx), saved[_RESULT])
            elif recorded is not None:
                self._restore(recorded)
                result = recorded["result"]
            elif result is None:
                result = await self._result()
            return await self._after(result)
        except Unavailable as error:
            if result is not None:
                await self._save_result(result)
            message = f"the result of the tool {self._tool.name!r} cannot be read or kept: {error}"
            raise Blocked(message, code=storage_code(error)) from error

    async def _save_result(self, result: dict[str, Json]) -> None:
        """Save the result in the journal, so that a retry does not run the tool again."""
        record = {"result": result, **self._changes()}
        if size(record) <= _MAX_SAVED_BYTES:
            await self._ctx.runtime.journal.persist_marker(_RESULT_MARK, record)

    def _changes(self) -> dict[str, Json]:
        edit = {"edit": self._edit} if self._edit else {}
        return {"args": self._arguments, "state": self._memory.changes(), **edit}

    def _restore(self, changes: Mapping[str, Json]) -> None:
        self._arguments = changes["args"]
        self._edit = changes.get("edit", {})
        self._memory.update(changes["state"])

    async def _result(self) -> dict[str, Json]:
        gate = ToolGate(self._agent, self._tool, self._id, self._arguments, self._memory)
        denial = await gate.decide_in_call(self._ctx)
        self._memory, self._arguments, self._edit = gate.memory, gate.arguments, gate.edit
        if denial is not None:
            return denial
        return await self._once() if needs_answers(self._ctx) else await self._run()

    async def _once(self) -> dict[str, Json]:
        ctx, tool, journal = self._ctx, self._tool, self._ctx.runtime.journal
        starts = int(journal.get_marker(_STARTED) or 0)
        answers = {
            key.removeprefix(_OUTCOMES): answer
            for key, answer in ctx.targets.items()
            if key.startswith(_OUTCOMES)
        }
        if starts > len(answers):
            match tool.on_unknown:
                case "ask":
                    question = outcome_question(tool, self._arguments)
                    name = OUTCOME if not answers else f"{OUTCOME}.{len(answers) + 1}"
                    raise Suspended(
                        [replace(question, question=replace(question.question, name=name))]
                    )
                case "retry":
                    pass
                case _:
                    return tool_results.error(
                        f"The call of {tool.name!r} was cut off. It may have been done."
                    )
        elif answers:
            name, answer = list(answers.items())[-1]
            if (reported := self._reported(answer)) is not None:
                by = ctx.answered_by(name)
                return {**reported, **tool_results.report(by, self._edit)}
        await journal.persist_marker(_STARTED, starts + 1)
        try:
            result = await self._run()
        except BaseException as error:
            if suspended_by(error) is not None:
                # It waits for an answer, and starts anew when that arrives.
                journal.set_marker(_STARTED, starts)
            raise
        await self._save_result(result)
        return result

    def _reported(self, answer: Json) -> dict[str, Json] | None:
        """Return the result that an operator reported, None to run the call again."""
        try:
            match outcome_of(self._tool, answer):
                case Done(result=result):
                    return tool_results.content(result)
                case FailCall(text=text):
                    return tool_results.error(text)
                case RetryCall():
                    return None
        except CallError as error:
            return tool_results.error(error.text)

    async def _run(self) -> dict[str, Json]:
        ctx, tool = self._ctx, self._tool
        memory = self._memory.fork()
        late = threading.Event()
        bounded = replace(ctx, is_cancelled=lambda: late.is_set() or ctx.is_cancelled())
        context = ToolContext.of(
            bounded, tool=tool.name, call_id=self._id, agent=self._agent.name, agent_state=memory
        )
        try:
            returned = await _with_timeout(tool, tool.run(context, self._arguments), late)
        except ToolFailed as failed:
            is_once = ctx.call is not None and ctx.call.once
            is_worth_it = isinstance(failed.__cause__ or failed, tool.retry_on)
            pause = tool.retry.pause_after(ctx.runtime.attempts())
            if is_worth_it and pause is not None and not is_once:
                raise
            # The model gets one sentence; the traceback is for the author of the tool.
            _logger.warning(
                "run=%s address=%s | the tool failed, and the model gets the error",
                ctx.run_id,
                ctx.address,
                exc_info=failed.__cause__ or failed,
            )
            return tool_results.error(failed.text)
        except CallError as error:
            _logger.warning(
                "run=%s address=%s | the model gets the error: %s",
                ctx.run_id,
                ctx.address,
                error.text,
            )
            return tool_results.error(error.text)
        except TimeoutError:
            return tool_results.error(
                f"{tool.name!r} took longer than its timeout of {tool.timeout:g} s. The call may have "
                "been done."
            )
        self._memory = memory
        return tool_results.content(returned)

    async def _after(self, result: dict[str, Json]) -> Finished:
        ctx, tool = self._ctx, self._tool
        event = after_event(tool.name, self._id, self._arguments, self._memory, result)
        outcome = await run_hooks(self._agent.hooks, event, ctx.targets, check=tool.checked_result)
        blobs = blobs_of(ctx)
        if outcome.asked:
            stored = await tool_results.store(blobs, ctx.run_id, result)
            ctx.runtime.journal.set_marker(_RESULT_MARK, None)
            raise Suspended(outcome.asked, {_RESULT: stored, **self._changes()})
        self._memory = outcome.event.agent_state
        said = tool_results.marks(result) or self._edit
        result = {**tool_results.of_hooks(outcome, result), **said}
        return Finished(
            patch={"agent_state": self._memory.changes()} if self._memory.changes() else {},
            result=await tool_results.store(blobs, ctx.run_id, result),
            tool_status=tool_results.to_model_text(result)[0],
        )
