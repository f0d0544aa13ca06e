"""From what a model called to what is run: unknown tools, wrong arguments, hooks, approvals.

All of it happens in the model's turn, so a call that nobody gates costs no activity beside its own, and
one that somebody gates is not scheduled before they have said yes. Where a hook asks, it is run again,
with the answer, in the activity of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from abeyance.agents import tool_results
from abeyance.agents.agent import ENTRY_NODE, Agent, Offer
from abeyance.agents.approvals import approval_question, call_digest, needs_approval
from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.hooks import AfterToolCall, BeforeToolCall, listens
from abeyance.agents.state import AgentState
from abeyance.agents.tool import Tool
from abeyance.agents.tool_errors import CallError
from abeyance.core.json import Json
from abeyance.core.outcome import Asked, Call, Send

MAX_CALLS: Final = 64
MAX_BYTES: Final = 500_000
"""Of arguments, in one turn, because they travel together, more than once. What is beyond either bound is
an error that the model sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedCall:
    """One call of a turn, as the model wrote it."""

    tool: str
    call_id: str
    arguments: Json


@dataclass(slots=True, kw_only=True)
class AdmittedCall:
    """What becomes of calls: `known` are results that need nothing to be run, `sends` what is run."""

    known: dict[str, dict[str, Json]] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)


def bounded(
    calls: Sequence[DispatchedCall],
) -> tuple[list[DispatchedCall], dict[str, dict[str, Json]]]:
    """The calls of one turn that are looked at, and the results of those that are beyond the bounds."""
    looked_at: list[DispatchedCall] = []
    known: dict[str, dict[str, Json]] = {}
    taken = 0
    for each in calls:
        size = len(str(each.arguments).encode(errors="replace"))
        if len(looked_at) >= MAX_CALLS:
            known[each.call_id] = tool_results.error(
                f"Not run: one turn may call {MAX_CALLS} tools. Call this again in the next."
            )
        elif taken + size > MAX_BYTES:
            known[each.call_id] = tool_results.error(
                f"Not run: the arguments of this call take {size} bytes, those before it in this turn "
                f"{taken}, and all of one turn may take {MAX_BYTES}. Send less in one turn."
            )
        else:
            taken += size
            looked_at.append(each)
    return looked_at, known


class ToolDispatch:
    """The way of an agent's calls to their tools. `memory` is the agent's state, which hooks change."""

    def __init__(self, agent: Agent, memory: AgentState) -> None:
        self._agent = agent
        self._offered: Mapping[str, Offer] = {}
        self.memory = memory

    async def admit(self, calls: Sequence[DispatchedCall]) -> AdmittedCall:
        """Look at calls, one after the other. Raises Blocked while a server of tools is not there."""
        self._offered = await self._agent.available_tools()
        admitted = AdmittedCall()
        for each in calls:
            found = await self._admit(each)
            if isinstance(found, Send):
                admitted.sends.append(found)
            else:
                admitted.known[each.call_id] = found
        return admitted

    async def _admit(self, called: DispatchedCall) -> Send | dict[str, Json]:
        offer = self._offered.get(called.tool)
        if offer is None:
            return tool_results.error(self._unknown(called.tool))
        tool = offer.tool
        try:
            arguments = tool.read(called.arguments)
        except CallError as wrong:
            return tool_results.error(wrong.text)
        event = BeforeToolCall(
            tool=tool.name, args=arguments, call_id=called.call_id, agent_state=self.memory
        )
        outcome = await run_hooks(self._agent.hooks, event, check=tool.read)
        if outcome.denied is not None:
            return await self._unmade(tool, called, arguments, outcome.denied)
        if outcome.asked:
            return self._send(tool, called, arguments, asked=outcome.asked, is_hooked=True)
        self.memory = outcome.event.agent_state
        arguments = outcome.event.args
        if outcome.cancelled is not None:
            return await self._unmade(tool, called, arguments, outcome.cancelled)
        if not await needs_approval(tool, arguments):
            return self._send(tool, called, arguments)
        try:
            asked = approval_question(tool, arguments)
        except CallError as wrong:
            return await self._unmade(tool, called, arguments, wrong.text, is_denied=False)
        digest = call_digest(tool.name, arguments)
        return self._send(tool, called, arguments, asked=(asked,), digest=digest)

    async def _unmade(
        self,
        tool: Tool,
        called: DispatchedCall,
        arguments: dict[str, Json],
        text: str,
        *,
        is_denied: bool = True,
    ) -> Send | dict[str, Json]:
        """What becomes of a call that is not made: the after-hooks look at it all the same."""
        known = tool_results.error(text, is_denied=is_denied)
        event = AfterToolCall(
            tool=tool.name,
            args=arguments,
            call_id=called.call_id,
            agent_state=self.memory,
            result=text,
            error=True,
            cancelled=is_denied,
        )
        outcome = await run_hooks(self._agent.hooks, event, check=tool.told)
        if outcome.asked and called.tool in self._agent.agents:
            # It has no code that could wait for the answer, so the next turn asks.
            return {**known, tool_results.UNSEEN: {"tool": tool.name, "args": arguments}}
        if outcome.asked:
            return self._send(tool, called, arguments, asked=outcome.asked, known=known)
        if outcome.denied is not None:
            return tool_results.error(outcome.denied, is_denied=True)
        self.memory = outcome.event.agent_state
        return tool_results.of_event(outcome.event)

    def _send(
        self,
        tool: Tool,
        called: DispatchedCall,
        arguments: Mapping[str, Json],
        *,
        asked: tuple[Asked, ...] = (),
        is_hooked: bool = False,
        digest: str | None = None,
        known: Json = None,
    ) -> Send:
        item: dict[str, Json] = {
            "tool": tool.name,
            "call_id": called.call_id,
            "args": dict(arguments),
        }
        if is_hooked:
            item["hooked"] = True
        if digest is not None:
            item["digest"] = digest
        if known is not None:
            item["known"] = known
        # What a person was asked about first, be it by a hook, is for one attempt.
        once = digest is not None or is_hooked
        call = Call(tool=tool.name, id=called.call_id, interrupts=asked, once=once)
        node = self._offered[tool.name].node
        if tool.name in self._agent.agents and self._enters(is_hooked=is_hooked, asked=asked):
            node = ENTRY_NODE
        return Send(node=node, item=item, call=call)

    def _enters(self, *, is_hooked: bool, asked: tuple[Asked, ...]) -> bool:
        """Whether the call of an agent has code before it: that of hooks which asked, or which have to be
        told afterwards with which arguments a person let it through.
        """
        is_heard = any(listens(hook, AfterToolCall) for hook in self._agent.hooks)
        return is_hooked or (bool(asked) and is_heard)

    def _unknown(self, name: str) -> str:
        names = ", ".join(map(repr, self._offered)) or "none"
        is_plural = len(self._offered) > 1
        return f"There is no tool {name!r}. There {'are' if is_plural else 'is'} {names}."
