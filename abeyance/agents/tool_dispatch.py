"""Dispatching the calls of a model turn: validation, the gate, and the visits to schedule.

All of this happens in the turn: an ungated call costs only its own activity, and a gated one is not
scheduled before its answers arrive. The gate then decides again in the activity of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from abeyance.agents import tool_results
from abeyance.agents.agent import ENTRY_NODE, Agent, Offer
from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.hooks import AfterToolCall, listens
from abeyance.agents.state import AgentState
from abeyance.agents.tool import Tool
from abeyance.agents.tool_errors import CallError
from abeyance.agents.tool_gate import Ask, Deny, ToolGate, after_event
from abeyance.core.json import Json
from abeyance.core.outcome import Call, Send

MUST_ASK: Final = {"abeyance": "approve"}
"""The details of the part of a call that needs an approval, whatever its tool says."""
MAX_CALLS: Final = 64
MAX_BYTES: Final = 500_000
"""The arguments of a turn are copied together. A call beyond a limit is an error for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCall:
    """One call of a turn, as the model wrote it. With `approve` it needs an approval."""

    tool: str
    call_id: str
    arguments: Json
    approve: bool = False


@dataclass(slots=True, kw_only=True)
class Dispatched:
    """The outcome of dispatching calls: `results` of those that do not run, `sends` for the others."""

    results: dict[str, dict[str, Json]] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)


def within_limits(
    calls: Sequence[RequestedCall],
) -> tuple[list[RequestedCall], dict[str, dict[str, Json]]]:
    """Return the calls of a turn within the limits, and the results of the others."""
    accepted: list[RequestedCall] = []
    rejected: dict[str, dict[str, Json]] = {}
    total = 0
    for requested in calls:
        size = len(str(requested.arguments).encode(errors="replace"))
        if len(accepted) >= MAX_CALLS:
            rejected[requested.call_id] = tool_results.error(
                f"Not run: one turn may call {MAX_CALLS} tools. Call this again in the next."
            )
        elif total + size > MAX_BYTES:
            rejected[requested.call_id] = tool_results.error(
                f"Not run: the arguments of this call take {size} bytes, those before it in this turn "
                f"{total}, and all of one turn may take {MAX_BYTES}. Send less in one turn."
            )
        else:
            total += size
            accepted.append(requested)
    return accepted, rejected


class ToolDispatch:
    """Dispatches calls of an agent to their tools. Hooks change `memory`, the agent's state."""

    def __init__(self, agent: Agent, memory: AgentState) -> None:
        self._agent = agent
        self._offered: Mapping[str, Offer] = {}
        self.memory = memory

    async def admit(self, calls: Sequence[RequestedCall]) -> Dispatched:
        """Dispatch calls in order. Raises Blocked while an MCP server is unavailable."""
        self._offered = await self._agent.available_tools()
        dispatched = Dispatched()
        for requested in calls:
            outcome = await self._admit(requested)
            if isinstance(outcome, Send):
                dispatched.sends.append(outcome)
            else:
                dispatched.results[requested.call_id] = outcome
        return dispatched

    async def _admit(self, requested: RequestedCall) -> Send | dict[str, Json]:
        offer = self._offered.get(requested.tool)
        if offer is None:
            return tool_results.error(self._unknown(requested.tool))
        tool = offer.tool
        try:
            arguments = tool.read(requested.arguments)
        except CallError as error:
            return tool_results.error(error.text)
        gate = ToolGate(self._agent, tool, requested.call_id, arguments, self.memory)
        decision = await gate.decide(approve=requested.approve)
        self.memory, arguments = gate.memory, gate.arguments
        if isinstance(decision, Deny):
            return await self._deny(tool, requested, arguments, decision.result)
        return self._send(tool, requested, arguments, decision)

    async def _deny(
        self,
        tool: Tool,
        requested: RequestedCall,
        arguments: dict[str, Json],
        result: dict[str, Json],
    ) -> Send | dict[str, Json]:
        """Run the after-hooks of a call that does not run."""
        event = after_event(tool.name, requested.call_id, arguments, self.memory, result)
        outcome = await run_hooks(self._agent.hooks, event, check=tool.checked_result)
        if outcome.asked and requested.tool in self._agent.agents:
            # The call of an agent has no code that could wait for the answer: the next turn asks.
            return {**result, tool_results.UNSEEN: {"tool": tool.name, "args": arguments}}
        if outcome.asked:
            return self._send(tool, requested, arguments, Ask(outcome.asked), denied=result)
        self.memory = outcome.event.agent_state
        return tool_results.of_hooks(outcome, result)

    def _send(
        self,
        tool: Tool,
        requested: RequestedCall,
        arguments: Mapping[str, Json],
        ask: Ask | None,
        *,
        denied: Json = None,
    ) -> Send:
        item: dict[str, Json] = {
            "tool": tool.name,
            "call_id": requested.call_id,
            "args": dict(arguments),
            **({"approve": True} if requested.approve else {}),
        }
        if denied is not None:
            item["known"] = denied
        elif ask is not None and ask.digest is None:
            item["hooked"] = True
        elif ask is not None:
            item["digest"] = ask.digest
        # An approval, by a question of a hook too, is for one attempt.
        once = ask is not None and denied is None
        asked = () if ask is None else ask.asked
        call = Call(tool=tool.name, id=requested.call_id, interrupts=asked, once=once)
        node = self._offered[tool.name].node
        if tool.name in self._agent.agents and (
            # Its gate decides again, or shows a preview; after-hooks must see the approved arguments.
            "hooked" in item
            or (ask is not None and ask.digest is not None and not asked)
            or (asked and any(listens(hook, AfterToolCall) for hook in self._agent.hooks))
        ):
            node = ENTRY_NODE
        return Send(node=node, item=item, call=call)

    def _unknown(self, name: str) -> str:
        names = ", ".join(map(repr, self._offered)) or "none"
        is_plural = len(self._offered) > 1
        return f"There is no tool {name!r}. There {'are' if is_plural else 'is'} {names}."
