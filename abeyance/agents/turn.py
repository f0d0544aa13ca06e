"""One turn of an agent's model: the request, the response, and the calls that follow.

The turn reads the conversation from outside the history and appends to it. The model's calls become a
fan-out with one visit for each; a call that does not run (unknown tool, invalid arguments, cancelled by a
hook) has its result at once. A retry after a lost worker repeats the model request: nothing has seen its
first response.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from abeyance.agents import tool_results, transcript
from abeyance.agents.agent import MODEL_NODE, Agent
from abeyance.agents.model_errors import ModelDown, ModelRefused, ModelUnusable
from abeyance.agents.model_request import name_of
from abeyance.agents.output import TOO_EARLY, Calls, Correction, Output, Write, as_it_is
from abeyance.agents.prompts import Input, user_part
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool_dispatch import MUST_ASK, RequestedCall, TurnCalls, within_limits
from abeyance.agents.tool_results import blobs_of
from abeyance.authoring.context import Context
from abeyance.core.budgets import why_stopped
from abeyance.core.events import Message
from abeyance.core.json import Json, size
from abeyance.core.outcome import Finished
from abeyance.errors import (
    AgentFailed,
    Blocked,
    BlockedCode,
    FailureCode,
    SettingsError,
    Unavailable,
)
from abeyance.storage.converter import storage_code

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

Prompt: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Input]]
"""Makes the first prompt from the input of a visit of the agent."""

_CONTINUE: Final = "Go on."
_RESPONSE: Final = "response"
_MAX_KEPT_BYTES: Final = 200_000
"""A larger response is not kept in the journal while the storage is unavailable."""


class Turn:
    """The code of an agent's model node. `prompt` makes the first prompt of a visit."""

    def __init__(self, agent: Agent, prompt: Prompt, write: Write = as_it_is) -> None:
        self._agent = agent
        self._prompt = prompt
        self._write = write

    async def take(self, state: AgentValues, ctx: Context, inbox: Sequence[Message]) -> Finished:
        """Take the next turn. Raises Blocked if the model or the conversation store is unavailable."""
        agent = self._agent
        try:
            return await self._take(state, ctx, inbox)
        except ModelRefused as error:
            raise AgentFailed(FailureCode.NODE_FAILED, str(error)) from error
        except (ModelDown, ModelUnusable) as error:
            raise Blocked(
                str(error), code=BlockedCode.MODEL_UNAVAILABLE, retry_after=error.retry_after
            ) from error
        except (SettingsError, Unavailable, transcript.TranscriptError) as error:
            message = (
                f"the conversation of the agent {agent.name!r} cannot be read or stored: {error}"
            )
            raise Blocked(message, code=storage_code(error)) from error

    async def _take(self, state: AgentValues, ctx: Context, inbox: Sequence[Message]) -> Finished:
        calls = TurnCalls(self._agent, ctx, AgentState(state.agent_state))
        stopped = why_stopped(ctx.input.own_answers)
        results = await calls.collect(state.known)
        if waiting := [RequestedCall(**each) for each in state.waiting]:
            dispatched = await calls.dispatch(waiting, results)
            if dispatched.sends is not None:
                heard = [*state.heard, *inbox]
                patch = {**dispatched.patch, "heard": heard}
                return replace(dispatched, patch=patch)
            # None of the waiting calls runs, so the model continues at once.
            results = dispatched.patch["known"]
        before = await transcript.read(blobs_of(ctx), state.transcript)
        added = await self._request_messages(state, ctx, inbox, before, results)
        if stopped is not None:
            await self._save_partial(state, ctx, added)
            raise AgentFailed(FailureCode.BUDGET_EXHAUSTED, stopped)
        if state.turns >= self._agent.max_turns and not _asks_for_turns(self._agent, ctx):
            await self._save_partial(state, ctx, added)
            message = (
                f"the agent {self._agent.name!r} has no output after {state.turns} turns, the limit of "
                f"max_turns={self._agent.max_turns}"
            )
            raise AgentFailed(FailureCode.MAX_TURNS, message)
        response = await self._get_response(state, ctx, before, added)
        try:
            return await self._finish(state, ctx, added, response, calls)
        except (SettingsError, Unavailable):
            await _keep(ctx, response)
            raise

    async def _request_messages(
        self,
        state: AgentValues,
        ctx: Context,
        inbox: Sequence[Message],
        before: Sequence[ModelMessage],
        results: Mapping[str, Mapping[str, Json]],
    ) -> list[ModelMessage]:
        from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

        parts = await tool_results.result_parts(blobs_of(ctx), before, results)
        if state.input is not None:
            parts.append(UserPromptPart(await self._prompt(state.input)))
        parts += [user_part(message) for message in (*state.heard, *inbox)]
        if not parts and (not before or isinstance(before[-1], ModelResponse)):
            parts.append(UserPromptPart(_CONTINUE))
        return [ModelRequest(parts=parts)] if parts else []

    async def _get_response(
        self,
        state: AgentValues,
        ctx: Context,
        before: Sequence[ModelMessage],
        added: Sequence[ModelMessage],
    ) -> ModelResponse:
        if (kept := ctx.runtime.journal.get_marker(_RESPONSE)) is not None:
            return _kept(kept)
        partial: list[ModelResponse] = []
        try:
            speak = functools.partial(ctx.runtime.speak, state.turns + 1)
            return await self._agent.request(ctx, before, [*before, *added], partial.append, speak)
        except asyncio.CancelledError:
            await self._save_partial(state, ctx, [*added, *partial])
            raise
        except ModelRefused:
            await self._save_partial(state, ctx, added)
            raise

    async def _save_partial(
        self, state: AgentValues, ctx: Context, messages: Sequence[ModelMessage]
    ) -> None:
        """Store the messages so far, in case the run ends before the turn does."""
        if messages:
            head = await transcript.append(blobs_of(ctx), ctx.run_id, state.transcript, messages)
            ctx.runtime.journal.partial_patch = {"transcript": head}

    async def _finish(
        self,
        state: AgentValues,
        ctx: Context,
        request_messages: Sequence[ModelMessage],
        response: ModelResponse,
        calls: TurnCalls,
    ) -> Finished:
        agent = self._agent
        try:
            reading = agent.output.read(response, self._write)
        except ModelRefused:
            await self._save_partial(state, ctx, request_messages)
            raise
        added: list[ModelMessage] = [*request_messages, response]
        patch: dict[str, Json] = {
            "input": None,
            "turns": state.turns + 1,
            "usage": _sum(state.usage, response),
            "corrections": 0,
            "known": {},
            "waiting": [],
            "heard": [],
        }
        if isinstance(reading, Correction):
            added.append(reading.message)
            patch["corrections"] = state.corrections + 1
        patch["transcript"] = await transcript.append(
            blobs_of(ctx), ctx.run_id, state.transcript, added
        )
        summary: dict[str, Json] = {
            "turn": state.turns + 1,
            "model": response.model_name or name_of(agent.model),
            "calls": [call.tool_name for call in response.tool_calls],
            "usage": _sum({}, response) | _price(ctx, response),
            "finish_reason": response.finish_reason,
        }
        match reading:
            case Output(value=value):
                patch |= {"output": value, "agent_state": calls.memory.changes()}
                return Finished(patch=patch, turn=summary)
            case Correction(faults=faults):
                if state.corrections >= agent.max_corrections:
                    message = (
                        f"the agent {agent.name!r} gave no valid output {state.corrections + 1} "
                        f"times in a row; the last time: {'; '.join(faults)}"
                    )
                    ctx.runtime.journal.partial_patch = {"transcript": patch["transcript"]}
                    raise AgentFailed(FailureCode.NODE_FAILED, message)
                patch["agent_state"] = calls.memory.changes()
                return Finished(patch=patch, goto=MODEL_NODE, turn=summary)
            case Calls(calls=called, early=early):
                within, rejected = within_limits([_requested(part) for part in called])
                results = rejected | {
                    part.tool_call_id: tool_results.error(TOO_EARLY) for part in early
                }
                dispatched = await calls.dispatch(within, results)
                return replace(dispatched, patch={**patch, **dispatched.patch}, turn=summary)


async def _keep(ctx: Context, response: ModelResponse) -> None:
    """Keep a response in the journal while it cannot be stored, so that the request is not repeated."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    kept = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    if size(kept) <= _MAX_KEPT_BYTES:
        await ctx.runtime.journal.persist_marker(_RESPONSE, kept)


def _kept(kept: Json) -> ModelResponse:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    (response,) = ModelMessagesTypeAdapter.validate_python(kept)
    return response  # type: ignore[return-value]


def _requested(call: ToolCallPart) -> RequestedCall:
    return RequestedCall(
        tool=call.tool_name,
        call_id=call.tool_call_id,
        arguments=call.args or {},
        approve=(call.provider_details or {}).get(MUST_ASK, False),
    )


def _asks_for_turns(agent: Agent, ctx: Context) -> bool:
    """Return whether the run asks a person for more turns. A run with an older graph has no budget."""
    return agent.budget is not None and agent.budget.limits.turns is not None and ctx.input.metered


def _price(ctx: Context, response: ModelResponse) -> dict[str, Json]:
    """Return the price of a response that counts towards a budget, if it is known."""
    price = price_of(response) if ctx.input.metered else None
    return {} if price is None else {"usd": price}


def _sum(before: Mapping[str, int], response: ModelResponse) -> dict[str, int]:
    usage = response.usage
    return {
        "requests": before.get("requests", 0) + 1,
        "input_tokens": before.get("input_tokens", 0) + usage.input_tokens,
        "output_tokens": before.get("output_tokens", 0) + usage.output_tokens,
    }


def price_of(response: ModelResponse) -> float | None:
    """Return the price of a response in US dollars, by the model library's price list; None if the list
    does not have the model.
    """
    name = response.model_name or ""
    # Frameworks name models in their own ways, such as `openai:gpt-5` and `models/gemini-2.5`.
    for spelling in dict.fromkeys([name, name.rpartition("/")[2].rpartition(":")[2]]):
        try:
            return float(replace(response, model_name=spelling or "?").cost().total_price)
        except (LookupError, ValueError):
            continue
    return None
