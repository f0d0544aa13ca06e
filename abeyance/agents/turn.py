"""One turn of an agent's model: what it is told, what it answers, and what follows.

The conversation is read from outside the history and one turn is added to it. What the model calls
becomes a fan-out, one visit for each call; a call that nothing has to be run for (an unknown tool, wrong
arguments, a hook that cancelled it) has its result at once. Where a turn is tried again, because the
worker died, the model is asked again: nothing that it said before was seen by anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from abeyance.agents import tool_results, transcript
from abeyance.agents.agent import MODEL_NODE, Agent
from abeyance.agents.hook_runner import HooksOutcome, run_hooks
from abeyance.agents.hooks import AfterModelCall, BeforeModelCall, BeforeNode, HookEvent
from abeyance.agents.model_errors import ModelDown, ModelRefused, ModelUnusable
from abeyance.agents.model_request import name_of, request
from abeyance.agents.output import Calls, Correction, Output
from abeyance.agents.prompts import NOTE, Input, user_part
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool_dispatch import DispatchedCall, ToolDispatch, bounded
from abeyance.agents.tool_gate import AfterHooks
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.address import Address
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.spec import END
from abeyance.errors import AgentFailed, Blocked, FailureCode, SettingsError, Unavailable
from abeyance.storage.blobs import Blobs

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

Prompt: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Input]]
"""What the model is told first, made of what a visit of the agent was entered with."""

_GO_ON: Final = "Go on."


class Turn:
    """The turns of one agent. `prompt` says what a visit of its node begins with."""

    def __init__(self, agent: Agent, prompt: Prompt) -> None:
        self._agent = agent
        self._prompt = prompt

    async def take(self, state: AgentValues, ctx: Context, inbox: Sequence[Message]) -> Finished:
        """Take the next turn.

        Raises Blocked where the model, or what keeps conversations, is not there.
        """
        agent = self._agent
        try:
            return await self._take(state, ctx, inbox)
        except ModelRefused as error:
            raise AgentFailed(FailureCode.NODE_FAILED, str(error)) from error
        except ModelDown as error:
            raise Blocked(
                str(error), code=FailureCode.MODEL_UNAVAILABLE, retry_after=error.retry_after
            ) from error
        except ModelUnusable as error:
            raise Blocked(str(error), code=FailureCode.MODEL_UNAVAILABLE) from error
        except (SettingsError, Unavailable, transcript.TranscriptError) as error:
            message = (
                f"the conversation of the agent {agent.name!r} cannot be read or kept: {error}"
            )
            raise Blocked(message, code=FailureCode.MODEL_UNAVAILABLE) from error

    async def _take(self, state: AgentValues, ctx: Context, inbox: Sequence[Message]) -> Finished:
        blobs = blobs_of(ctx)
        aftermath = AfterHooks(self._agent, ctx, blobs, AgentState(state.agent_state))
        if state.input is not None and (cancelled := await self._before_node(state, ctx)):
            return cancelled
        known = await aftermath.of_gathered(state)
        waiting = [DispatchedCall(**each) for each in state.waiting]
        if waiting:
            gate = ToolDispatch(self._agent, aftermath.memory)
            following = await self._follow(waiting, known, gate, ctx)
            if following.sends is not None:
                heard = [*state.heard, *inbox]
                patch = {**following.patch, "heard": heard}
                return replace(following, patch=patch, exempt_from_max_visits=True)
            # Nothing of what waited had to be run, so the model can go on at once.
            aftermath.memory = gate.memory
            known = await aftermath.of_known(following.patch["known"])
        before = await transcript.read(blobs, state.transcript)
        said = await self._said(state, ctx, inbox, before, known)
        if state.turns >= self._agent.max_turns:
            await self._left(state, ctx, said)
            message = (
                f"the agent {self._agent.name!r} has taken {state.turns} turns and come to no end, and "
                f"max_turns={self._agent.max_turns} allows no more"
            )
            raise AgentFailed(FailureCode.MAX_TURNS, message)
        asking = await self._hooks(
            BeforeModelCall(
                messages=[*before, *said], turn=state.turns + 1, agent_state=aftermath.memory
            ),
            ctx,
            left=lambda: self._left(state, ctx, said),
        )
        messages = asking.event.messages
        if all(a is b for a, b in zip(messages, before, strict=False)) and len(messages) > len(
            before
        ):
            # What hooks put to the end was said, and stays; what they did to the past is for this once.
            said = messages[len(before) :]
        response = await self._response(state, ctx, before, said, messages)
        asked = await self._hooks(
            AfterModelCall(
                response=response,
                usage=response.usage,
                turn=state.turns + 1,
                agent_state=asking.event.agent_state,
            ),
            ctx,
            saved=lambda: self._saved(ctx, response),
            left=lambda: self._left(state, ctx, [*said, response]),
        )
        return await self._read(state, ctx, said, response, asked.event.agent_state)

    async def _before_node(self, state: AgentValues, ctx: Context) -> Finished | None:
        around = Address.parse(ctx.address).parent
        node = None if around is None else around.parent
        assert node is not None  # noqa: S101 an agent is always entered through a node
        event = BeforeNode(
            node=node.segments[-1].id, address=str(node), values=state.input["values"]
        )
        outcome = await self._hooks(event, ctx)
        if outcome.cancelled is None:
            return None
        ctx.logger.info("the agent is not run: %s", outcome.cancelled)
        # Not by the edges: an unread message would have it take a turn after all. The input stays, which
        # says that no turn was taken.
        return Finished(goto=END, inbox_unread=True)

    async def _hooks(
        self,
        event: Any,
        ctx: Context,
        *,
        saved: Callable[[], Awaitable[Json]] | None = None,
        left: Callable[[], Awaitable[None]] | None = None,
    ) -> HooksOutcome[Any]:
        """What hooks make of an event of the whole turn: they may ask, and may stop the agent."""
        outcome: HooksOutcome[HookEvent] = await run_hooks(self._agent.hooks, event, ctx.targets)
        if left is not None and (outcome.denied is not None or outcome.asked):
            await left()
        if outcome.denied is not None:
            message = f"the agent {self._agent.name!r} was stopped: {outcome.denied}"
            raise AgentFailed(FailureCode.NODE_FAILED, message)
        if outcome.asked:
            raise Suspended(outcome.asked, None if saved is None else await saved())
        return outcome

    async def _said(
        self,
        state: AgentValues,
        ctx: Context,
        inbox: Sequence[Message],
        before: Sequence[ModelMessage],
        known: Mapping[str, Mapping[str, Json]],
    ) -> list[ModelMessage]:
        from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

        parts = await tool_results.result_parts(blobs_of(ctx), before, known)
        guidance = [] if ctx.guidance is None else [ctx.guidance]
        if state.input is not None:
            parts.append(UserPromptPart(await self._prompt(state.input)))
            guidance += [state.input["guidance"]] if state.input.get("guidance") else []
        parts += [
            UserPromptPart(f"A person says, to have it done again: {text}") for text in guidance
        ]
        parts += [user_part(message) for message in (*state.heard, *inbox)]
        if not parts and (not before or isinstance(before[-1], ModelResponse)):
            parts.append(UserPromptPart(_GO_ON))
        return [ModelRequest(parts=parts)] if parts else []

    async def _response(
        self,
        state: AgentValues,
        ctx: Context,
        before: Sequence[ModelMessage],
        said: Sequence[ModelMessage],
        messages: Sequence[ModelMessage],
    ) -> ModelResponse:
        agent, blobs = self._agent, blobs_of(ctx)
        if isinstance(ctx.saved_state, str):
            (response,) = await transcript.read(blobs, ctx.saved_state)
            return response  # type: ignore[return-value]
        partial: list[ModelResponse] = []
        try:
            return await request(
                agent.model,
                messages,
                before=before,
                tools=[each.spec for each in (await agent.available_tools()).values()],
                output=agent.output.tool,
                instructions="\n\n".join(filter(None, (agent.instructions, NOTE))),
                settings=agent.model_settings,
                on_partial=partial.append,
            )
        except asyncio.CancelledError:
            await self._left(state, ctx, [*said, *partial])
            raise
        except ModelRefused:
            await self._left(state, ctx, said)
            raise

    async def _left(self, state: AgentValues, ctx: Context, left: Sequence[ModelMessage]) -> None:
        """Keep what was said by now, should the run end before the turn does."""
        if left:
            head = await transcript.append(blobs_of(ctx), ctx.run_id, state.transcript, left)
            ctx.runtime.journal.partial_patch = {"transcript": head}

    async def _saved(self, ctx: Context, response: ModelResponse) -> Json:
        """Where a response is found again whose hooks ask people: the model is not asked twice."""
        return await transcript.append(blobs_of(ctx), ctx.run_id, None, [response])

    async def _read(
        self,
        state: AgentValues,
        ctx: Context,
        said: Sequence[ModelMessage],
        response: ModelResponse,
        memory: AgentState,
    ) -> Finished:
        agent = self._agent
        try:
            reading = agent.output.read(response)
        except ModelRefused:
            await self._left(state, ctx, said)
            raise
        added: list[ModelMessage] = [*said, response]
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
        about: dict[str, Json] = {
            "turn": state.turns + 1,
            "model": response.model_name or name_of(agent.model),
            "calls": [call.tool_name for call in response.tool_calls],
            "usage": _sum({}, response),
            "finish_reason": response.finish_reason,
        }
        match reading:
            case Output(value=value):
                patch |= {"output": value, "agent_state": memory.changes()}
                return Finished(patch=patch, turn=about)
            case Correction(faults=faults):
                if state.corrections >= agent.max_corrections:
                    message = (
                        f"the agent {agent.name!r} gave no output that fits, {state.corrections + 1} "
                        f"times in a row; the last time: {'; '.join(faults)}"
                    )
                    ctx.runtime.journal.partial_patch = {"transcript": patch["transcript"]}
                    raise AgentFailed(FailureCode.NODE_FAILED, message)
                patch["agent_state"] = memory.changes()
                return Finished(patch=patch, goto=MODEL_NODE, turn=about)
            case Calls(calls=calls, rejected=early):
                called, beyond = bounded([_called(each) for each in calls])
                known = beyond | {
                    each.tool_call_id: tool_results.error(str(each.content)) for each in early
                }
                following = await self._follow(
                    called, known, ToolDispatch(self._agent, memory), ctx
                )
                return replace(following, patch={**patch, **following.patch}, turn=about)

    async def _follow(
        self,
        called: Sequence[DispatchedCall],
        known: Mapping[str, dict[str, Json]],
        gate: ToolDispatch,
        ctx: Context,
    ) -> Finished:
        """Send calls to their tools: all together, or, of a sequence, the first that is to be run."""
        size = 1 if self._agent.is_sequential else len(called)
        found = dict(known)
        rest = list(called)
        sends: list[Any] = []
        while rest and not sends:
            admitted = await gate.admit(rest[:size])
            rest = rest[size:]
            sends = admitted.sends
            for call_id, result in admitted.known.items():
                found[call_id] = await tool_results.store(blobs_of(ctx), ctx.run_id, result)
        patch: dict[str, Json] = {
            "known": found,
            "waiting": [
                {"tool": each.tool, "call_id": each.call_id, "arguments": each.arguments}
                for each in rest
            ],
            "agent_state": gate.memory.changes(),
        }
        if not sends:
            return Finished(patch=patch, goto=MODEL_NODE)
        return Finished(patch=patch, sends=tuple(sends))


def blobs_of(ctx: Context) -> Blobs:
    """Where a visit keeps what is large."""
    assert ctx.runtime.blobs is not None  # noqa: S101 whoever runs visits hands them in
    return ctx.runtime.blobs


def _called(call: ToolCallPart) -> DispatchedCall:
    return DispatchedCall(tool=call.tool_name, call_id=call.tool_call_id, arguments=call.args or {})


def _sum(before: Mapping[str, int], response: ModelResponse) -> dict[str, int]:
    usage = response.usage
    return {
        "requests": before.get("requests", 0) + 1,
        "input_tokens": before.get("input_tokens", 0) + usage.input_tokens,
        "output_tokens": before.get("output_tokens", 0) + usage.output_tokens,
    }
