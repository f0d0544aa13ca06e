"""The visit of a tool call: the gate, the tool itself, its result, and the after-hooks.

An approval is for one attempt. The journal records the start of an approved tool, and then its result. An
attempt that finds a start without a result follows a lost worker or a stopped run: it asks an operator
about the outcome, unless the tool declares another `on_unknown`.
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
from abeyance.agents.agent import ENTRY_NODE, Agent
from abeyance.agents.approvals import outcome_question, reported_result
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool import Tool
from abeyance.agents.tool_errors import CallError, ToolFailed
from abeyance.agents.tool_gate import GRANTED, STARTED, ToolCall, VisitGate
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended, suspended_by
from abeyance.core.json import Json, size
from abeyance.core.outcome import Finished, key_of
from abeyance.errors import Blocked, Unavailable
from abeyance.storage.converter import storage_code

_RESULT_MARK: Final = "made"
_OUTCOMES: Final = key_of("outcome", "")
_MAX_SAVED_BYTES: Final = 200_000
"""A larger result is not saved in the journal before it is reported."""
_logger = logging.getLogger("abeyance.agent")


async def _with_timeout(tool: Tool, work: Coroutine[Any, Any, Json], late: threading.Event) -> Json:
    """Run a call within its tool's timeout. Raises TimeoutError.

    A thread cannot be stopped: `late` tells its code to stop, and nothing waits for it. Otherwise
    Temporal would count the attempt as lost and start the call again beside it.
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
    """The code of a node that makes the calls of a tool, of a server's tools, or of sub-agents."""

    def __init__(self, agent: Agent, node: str) -> None:
        self._agent = agent
        self._node = node

    async def run(self, state: AgentValues, ctx: Context) -> Finished:
        """Make the call of a visit."""
        name = str(ctx.item["tool"])
        tools: Mapping[str, Tool] = self._agent.tools
        if self._node == ENTRY_NODE:
            tools = {called: entry.tool for called, entry in self._agent.agents.items()}
        elif self._node in self._agent.servers:
            tools = await self._agent.servers[self._node].available_tools()
        if name not in tools:
            missing = tool_results.error(f"There is no tool {name!r} any more.")
            return Finished(result=missing, tool_status="failed")
        call = ToolCall(
            self._agent,
            tools[name],
            str(ctx.item["call_id"]),
            dict(ctx.item["args"]),
            AgentState(state.agent_state),
        )
        visit = _Visit(call, ctx)
        return await (visit.enter() if self._node == ENTRY_NODE else visit.make())


class _Visit:
    def __init__(self, call: ToolCall, ctx: Context) -> None:
        self._call = call
        self._ctx = ctx
        self._gate = VisitGate(call, ctx)

    async def enter(self) -> Finished:
        """Enter the called sub-agent, or return the result of a denied call."""
        call = self._call
        denial = await self._gate.denial()
        is_edited = call.arguments != self._ctx.item["args"]
        edited = {"args": call.arguments, **self._call.edit} if is_edited else None
        if denial is None:
            return Finished(patch=self._patch(), goto=call.tool.name, result=edited)
        return Finished(
            patch=self._patch(),
            result={**(edited or {}), **await tool_results.store(self._ctx, denial)},
            tool_status=tool_results.to_model_text(denial)[0],
        )

    async def make(self) -> Finished:
        """Make the call, and run the after-hooks on its result."""
        recorded = self._ctx.runtime.journal.get_marker(_RESULT_MARK)
        result: dict[str, Json] | None = None
        try:
            if recorded is None:
                result = await self._result()
            else:
                self._call.arguments = recorded["args"]
                self._call.memory.update(recorded["state"])
                result = recorded["result"]
            return await self._after(result)
        except Unavailable as error:
            if result is not None:
                await self._save_result(result)
            name = self._call.tool.name
            message = f"the result of the tool {name!r} cannot be read or kept: {error}"
            raise Blocked(message, code=storage_code(error)) from error

    def _patch(self) -> dict[str, Json]:
        changes = self._call.memory.changes()
        return {"agent_state": changes} if changes else {}

    async def _save_result(self, result: dict[str, Json]) -> None:
        """Save the result in the journal, so that a retry does not run the tool again."""
        call = self._call
        record = {"result": result, "args": call.arguments, "state": call.memory.changes()}
        if size(record) <= _MAX_SAVED_BYTES:
            await self._ctx.runtime.journal.persist_marker(_RESULT_MARK, record)

    async def _result(self) -> dict[str, Json]:
        if self._gate.is_open:
            return await self._run()
        denial = await self._gate.denial()
        return await self._once() if denial is None else denial

    async def _once(self) -> dict[str, Json]:
        ctx, tool, journal = self._ctx, self._call.tool, self._ctx.runtime.journal
        starts = int(journal.get_marker(STARTED) or 0)
        answers = {
            key.removeprefix(_OUTCOMES): answer
            for key, answer in ctx.targets.items()
            if key.startswith(_OUTCOMES)
        }
        if starts > len(answers):
            match tool.on_unknown:
                case "ask":
                    arguments = self._call.arguments
                    raise Suspended([outcome_question(tool, arguments, len(answers) + 1)])
                case "retry":
                    pass
                case _:
                    text = f"The call of {tool.name!r} was cut off. It may have been done."
                    return {**tool_results.error(text), **self._call.edit}
        elif answers:
            name, answer = list(answers.items())[-1]
            if (reported := reported_result(tool, answer)) is not None:
                by = ctx.answered_by(name)
                return {**reported, **tool_results.report(by, self._call.edit)}
        await journal.persist_marker(STARTED, starts + 1)
        try:
            result = {**await self._run(), **self._call.edit}
        except BaseException as error:
            if suspended_by(error) is not None:
                # The call waits for an answer and then starts anew, so this start does not count.
                journal.set_marker(STARTED, starts)
            raise
        await self._save_result(result)
        return result

    async def _run(self) -> dict[str, Json]:
        ctx, call, tool = self._ctx, self._call, self._call.tool
        memory = call.memory.fork()
        late = threading.Event()
        bounded = replace(ctx, is_cancelled=lambda: late.is_set() or ctx.is_cancelled())
        work = tool.run(call.context(bounded, memory), call.arguments)
        try:
            returned = await _with_timeout(tool, work, late)
        except CallError as error:
            cause = (error.__cause__ or error) if isinstance(error, ToolFailed) else None
            is_once = ctx.call is not None and ctx.call.once
            pause = tool.retry.pause_after(ctx.runtime.attempts())
            if isinstance(cause, tool.retry_on) and pause is not None and not is_once:
                raise
            # The model gets one sentence; the traceback is for the author of the tool.
            _logger.warning(
                "run=%s address=%s | the model gets the error: %s",
                ctx.run_id,
                ctx.address,
                error.text,
                exc_info=cause,
            )
            return tool_results.error(error.text)
        except TimeoutError:
            return tool_results.error(
                f"{tool.name!r} took longer than its timeout of {tool.timeout:g} s. The call may have "
                "been done."
            )
        call.memory = memory
        return tool_results.content(returned)

    async def _after(self, result: dict[str, Json]) -> Finished:
        result, granted = (
            await self._call.after(result),
            self._ctx.runtime.journal.get_marker(GRANTED),
        )
        if granted is not None:
            result |= tool_results.approval(granted)
        return Finished(
            patch=self._patch(),
            result=await tool_results.store(self._ctx, result),
            tool_status=tool_results.to_model_text(result)[0],
            granted=granted,
        )
