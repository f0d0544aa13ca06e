"""One turn of an agent's model: what it is told, what it answers, and what follows.

The conversation is read from outside the history and one turn is added to it. What the model calls
becomes a fan-out, one visit for each call; a call that nothing has to be run for (an unknown tool, wrong
arguments, a hook that cancelled it) has its result at once. Where a turn is tried again, because the
worker died, the model is asked again: nothing that it said before was seen by anybody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from abeyance import agentgate, transcript
from abeyance.agent import MODEL_NODE, Agent
from abeyance.agentprompt import Prompt
from abeyance.agentresults import answers_to
from abeyance.agentstate import AgentState
from abeyance.agentvalues import AgentValues
from abeyance.blobs import Blobs
from abeyance.context import Context
from abeyance.core.canonical import Json
from abeyance.core.events import Message, Send
from abeyance.errors import AgentFailed, Blocked, FailureCode, Unavailable
from abeyance.hookrun import run_hooks
from abeyance.hooks import AfterModelCall, BeforeModelCall
from abeyance.injected import user_part
from abeyance.modelcall import name_of, request
from abeyance.modelfailure import ModelDown, ModelRefused, ModelUnusable
from abeyance.output import Calls, Correction, Output
from abeyance.returned import Returned

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

_LEFT: Final = "You were called again after you had ended. What follows is new."


class Turn:
    """A turn of `agent`'s model. `prompt` says what a visit of its node begins with."""

    def __init__(self, agent: Agent, prompt: Prompt) -> None:
        self._agent = agent
        self._prompt = prompt

    async def __call__(self, state: AgentValues, ctx: Context, inbox: Sequence[Message]) -> Returned:
        """Take the turn. Raises Blocked where the model, or what keeps conversations, is not there."""
        try:
            return await self._take(state, ctx, inbox)
        except Unavailable as error:
            message = f"the conversation of the agent {self._agent.name!r} cannot be reached: {error}"
            raise Blocked(message, code=FailureCode.MODEL_UNAVAILABLE) from error

    async def _take(self, state: AgentValues, ctx: Context, inbox: Sequence[Message]) -> Returned:
        if state.waiting:
            return await self._next_in_line(state, ctx)
        agent, blobs = self._agent, _blobs(ctx)
        if state.turns >= agent.max_turns:
            message = (
                f"the agent {agent.name!r} has taken {state.turns} turns without an output, and its "
                f"max_turns={agent.max_turns} allow no more"
            )
            raise AgentFailed(FailureCode.MAX_TURNS, message)
        before = await transcript.read(blobs, state.transcript)
        said = await self._said(state, ctx, inbox, before)
        memory = AgentState(state.agent_state)
        messages = [*before, *said]
        kept = ctx.saved_state if ctx.resumed else None
        asked = await run_hooks(
            agent.hooks, BeforeModelCall(messages=messages, turn=state.turns + 1, agent_state=memory),
            ctx.targets,
        )
        return await self._go_on(asked, kept)


def _blobs(ctx: Context) -> Blobs:
    assert ctx.blobs is not None  # noqa: S101 whoever runs visits hands them in
    return ctx.blobs
