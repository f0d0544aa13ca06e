"""One call of a tool: hooks that asked, the approval, the tool itself, and what the model is told.

An approval is for one attempt. Before an approved tool begins, it is written down that it begins; when
it has ended, its result is. An attempt that finds a beginning without a result knows that a worker was
lost in the middle, and asks a person what became of the call, unless the tool says otherwise (Strands and
others run such a call again).
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
from abeyance.agents.hooks import AfterToolCall
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool import Tool, ToolContext
from abeyance.agents.tool_errors import CallError, ToolFailed
from abeyance.agents.tool_gate import ToolGate
from abeyance.agents.turn import blobs_of
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended, suspended_by
from abeyance.core.json import Json, size
from abeyance.core.outcome import Finished, key_of
from abeyance.errors import Blocked, FailureCode, Unavailable

_BEGUN: Final = "begun"
_MADE: Final = "made"
_OUTCOMES: Final = key_of("outcome", "")
_RESULT: Final = "/result"
_LARGEST_NOTE: Final = 200_000
"""In bytes: a larger result is not written down before it is reported."""
_logger = logging.getLogger("abeyance.agent")


async def _in_time(tool: Tool, work: Coroutine[Any, Any, Json], late: threading.Event) -> Json:
    """What a call comes to within its tool's timeout. Raises TimeoutError.

    A thread cannot be stopped: it is told that it is late, and left to itself. To wait for it would have
    the server take the whole attempt for lost, and the call be made once more beside it.
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
    """The visits of one tool of an agent."""

    def __init__(self, agent: Agent, node: str) -> None:
        self._agent = agent
        self._node = node

    async def run(self, state: AgentValues, ctx: Context) -> Finished:
        """Make the call that a visit is about."""
        name = str(ctx.item["tool"])
        server = self._agent.servers.get(self._node)
        tools = self._agent.tools if server is None else await server.available_tools()
        if name not in tools:
            gone = tool_results.error(f"There is no tool {name!r} any more.")
            return Finished(result=gone, tool_status="failed")
        return await _Call(self._agent, tools[name], state, ctx).make()


class _Call:
    def __init__(self, agent: Agent, tool: Tool, state: AgentValues, ctx: Context) -> None:
        self._agent = agent
        self._tool = tool
        self._ctx = ctx
        self._id = str(ctx.item["call_id"])
        self._arguments: dict[str, Json] = dict(ctx.item["args"])
        self._memory = AgentState(state.agent_state)

    async def make(self) -> Finished:
        """Make the call, and let the hooks look at what it came to."""
        ctx, saved, made = (
            self._ctx,
            self._ctx.saved_state,
            self._ctx.runtime.journal.get_marker(_MADE),
        )
        result: dict[str, Json] | None = ctx.item.get("known")
        try:
            if isinstance(saved, Mapping) and _RESULT in saved:
                # The tool has run, and a hook asked about what it gave.
                self._recall(saved)
                result = await tool_results.load(blobs_of(ctx), saved[_RESULT])
            elif made is not None:
                self._recall(made)
                result = made["result"]
            elif result is None:
                result = await self._result()
            return await self._after(result)
        except Unavailable as error:
            if result is not None:
                await self._note(result)
            message = f"the result of the tool {self._tool.name!r} cannot be read or kept: {error}"
            raise Blocked(message, code=FailureCode.MODEL_UNAVAILABLE) from error

    async def _note(self, result: dict[str, Json]) -> None:
        """Write down what the tool has come to, so that it is not run again to be told."""
        made = {"result": result, **self._known()}
        if size(made) <= _LARGEST_NOTE:
            await self._ctx.runtime.journal.persist_marker(_MADE, made)

    def _known(self) -> dict[str, Json]:
        return {"args": self._arguments, "state": self._memory.changes()}

    def _recall(self, known: Mapping[str, Json]) -> None:
        self._arguments = known["args"]
        self._memory.update(known["state"])

    async def _result(self) -> dict[str, Json]:
        admission = ToolGate(self._agent, self._tool, self._ctx, self._memory)
        refused = await admission.refused()
        self._memory, self._arguments = admission.memory, admission.arguments
        if refused is not None:
            return refused
        return await self._once() if admission.is_asked else await self._run()

    async def _once(self) -> dict[str, Json]:
        ctx, tool, book = self._ctx, self._tool, self._ctx.runtime.journal
        begun = int(book.get_marker(_BEGUN) or 0)
        told = [answer for key, answer in ctx.targets.items() if key.startswith(_OUTCOMES)]
        if begun > len(told):
            match tool.on_unknown:
                case "ask":
                    asked = outcome_question(tool, self._arguments)
                    name = OUTCOME if not told else f"{OUTCOME}.{len(told) + 1}"
                    raise Suspended([replace(asked, question=replace(asked.question, name=name))])
                case "retry":
                    pass
                case _:
                    return tool_results.error(
                        f"The worker that ran {tool.name!r} was lost. The call may have been done."
                    )
        elif told:
            try:
                match outcome_of(tool, told[-1]):
                    case Done(result=result):
                        return tool_results.content(result)
                    case FailCall(text=text):
                        return tool_results.error(text)
                    case RetryCall():
                        pass
            except CallError as wrong:
                return tool_results.error(wrong.text)
        await book.persist_marker(_BEGUN, begun + 1)
        try:
            result = await self._run()
        except BaseException as error:
            if suspended_by(error) is not None:
                # It waits for people in good order, and begins anew when they have answered.
                book.set_marker(_BEGUN, begun)
            raise
        await self._note(result)
        return result

    async def _run(self) -> dict[str, Json]:
        ctx, tool = self._ctx, self._tool
        memory = self._memory.fork()
        late = threading.Event()
        told = replace(ctx, is_cancelled=lambda: late.is_set() or ctx.is_cancelled())
        context = ToolContext.of(
            told, tool=tool.name, call_id=self._id, agent=self._agent.name, agent_state=memory
        )
        try:
            found = await _in_time(tool, tool.run(context, self._arguments), late)
        except ToolFailed as failed:
            is_once = ctx.call is not None and ctx.call.once
            if ctx.attempt - ctx.runtime.infrastructure_failures <= tool.retries and not is_once:
                raise
            # The model is told in a sentence; who has to mend the tool finds the rest here.
            _logger.warning(
                "run=%s address=%s | the tool failed, and the model is told so",
                ctx.run_id,
                ctx.address,
                exc_info=failed.__cause__ or failed,
            )
            return tool_results.error(failed.text)
        except CallError as wrong:
            _logger.warning(
                "run=%s address=%s | the model is told: %s", ctx.run_id, ctx.address, wrong.text
            )
            return tool_results.error(wrong.text)
        except TimeoutError:
            return tool_results.error(
                f"{tool.name!r} took longer than its timeout of {tool.timeout:g} s. The call may have "
                "been done."
            )
        self._memory = memory
        return tool_results.content(found)

    async def _after(self, result: dict[str, Json]) -> Finished:
        ctx, tool = self._ctx, self._tool
        is_error = "error" in result
        event = AfterToolCall(
            tool=tool.name,
            args=self._arguments,
            call_id=self._id,
            agent_state=self._memory,
            result=result.get("error") if is_error else result.get("content"),
            error=is_error,
            cancelled=bool(result.get("denied")),
        )
        outcome = await run_hooks(self._agent.hooks, event, ctx.targets, check=tool.told)
        blobs = blobs_of(ctx)
        if outcome.asked:
            kept = await tool_results.store(blobs, ctx.run_id, result)
            ctx.runtime.journal.set_marker(_MADE, None)
            raise Suspended(outcome.asked, {_RESULT: kept, **self._known()})
        if outcome.denied is not None:
            result = tool_results.error(outcome.denied, is_denied=True)
        else:
            after = outcome.event
            self._memory = after.agent_state
            result = tool_results.of_event(after)
        return Finished(
            patch={"agent_state": self._memory.changes()} if self._memory.changes() else {},
            result=await tool_results.store(blobs, ctx.run_id, result),
            tool_status=tool_results.to_model_text(result)[0],
        )
