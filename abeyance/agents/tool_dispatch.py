"""The calls of a model turn: their validation, the gate, the visits to schedule, and their results.

All of this happens in the turn: an ungated call costs only its own activity, and a gated one is not
scheduled before its answers arrive. The gate then decides again in the activity of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from abeyance.agents import tool_results
from abeyance.agents.agent import ENTRY_NODE, MODEL_NODE, Agent, Offer
from abeyance.agents.hook_runner import after_hooks
from abeyance.agents.hooks import AfterToolCall, listens
from abeyance.agents.state import AgentState
from abeyance.agents.tool_errors import CallError
from abeyance.agents.tool_gate import HOOKED, ToolCall, ask_in_turn
from abeyance.agents.tool_results import MadeCall, blobs_of
from abeyance.authoring.context import Context
from abeyance.core.json import Json
from abeyance.core.outcome import Call, Finished, Send

MUST_ASK: Final = "abeyance_approve"
"""A key in the details of a call part: the framework's reason why the call needs an approval, or True."""
MAX_CALLS: Final = 64
MAX_BYTES: Final = 500_000
"""A turn's arguments are copied together. The model gets an error for a call beyond a limit."""
_SEEN: Final = "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCall:
    """One call of a turn, as the model wrote it. With `approve` (True, or a text for the approver), it
    needs an approval, whatever its tool says.
    """

    tool: str
    call_id: str
    arguments: Json
    approve: bool | str = False


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


class TurnCalls:
    """The calls that a turn makes, and those whose results it collects.

    Hooks change `memory`, the agent's state.
    """

    def __init__(self, agent: Agent, ctx: Context, memory: AgentState) -> None:
        self._agent = agent
        self._ctx = ctx
        self._offers: Mapping[str, Offer] = {}
        self.memory = memory

    async def dispatch(
        self, calls: Sequence[RequestedCall], results: Mapping[str, dict[str, Json]]
    ) -> Finished:
        """Dispatch calls: all together, or for a sequential agent, up to the first one that runs.
        `results` are those so far. Raises Blocked while a server of tools is unavailable.
        """
        known, rest = dict(results), list(calls)
        sends: list[Send] = []
        if rest:
            self._offers = await self._agent.available_tools()
        while rest and not (sends and self._agent.is_sequential):
            requested = rest.pop(0)
            admitted = await self._admit(requested)
            if isinstance(admitted, Send):
                sends.append(admitted)
            else:
                known[requested.call_id] = await tool_results.store(self._ctx, admitted)
        patch: dict[str, Json] = {
            "known": known,
            "waiting": [asdict(call) for call in rest],
            "agent_state": self.memory.changes(),
        }
        if not sends:
            return Finished(patch=patch, goto=MODEL_NODE)
        return Finished(patch=patch, sends=tuple(sends))

    async def _admit(self, requested: RequestedCall) -> Send | dict[str, Json]:
        """Return the visit of a call, or the result of one that does not run."""
        offer = self._offers.get(requested.tool)
        if offer is None:
            return tool_results.error(self._unknown(requested.tool))
        try:
            arguments = offer.tool.read(requested.arguments)
        except CallError as error:
            return tool_results.of_error(error)
        call = ToolCall(self._agent, offer.tool, requested.call_id, arguments, self.memory)
        try:
            gate, asked = await ask_in_turn(call, self._ctx, must_ask=requested.approve)
        except CallError as error:
            denial = await call.after(tool_results.of_error(error))
            self.memory = call.memory
            return denial
        self.memory = call.memory
        is_agent = call.tool.name in self._agent.agents
        # An approval's answer alone can decide whether an agent is entered. All else needs code first:
        # hooks, previews and grants decide, and after-hooks must see the approved arguments.
        has_entry = gate and (HOOKED in gate or not asked or self._has_after_hooks)
        node = ENTRY_NODE if is_agent and has_entry else offer.node
        # An approval is for one attempt, also if a hook asked for it.
        once = bool(gate)
        item = {"tool": call.tool.name, "call_id": call.id, "args": call.arguments, **gate}
        made = Call(tool=call.tool.name, id=call.id, interrupts=asked, once=once)
        return Send(node=node, item=item, call=made)

    def _unknown(self, name: str) -> str:
        names = ", ".join(map(repr, self._offers)) or "none"
        is_plural = len(self._offers) > 1
        return f"There is no tool {name!r}. There {'are' if is_plural else 'is'} {names}."

    async def collect(self, known: Mapping[str, dict[str, Json]]) -> dict[str, dict[str, Json]]:
        """Return the results of the last turn's calls, by call id, after their hooks. `known` holds the
        results from before their visits. Raises Blocked while a server of tools is unavailable.
        """
        made = [*tool_results.made(self._ctx.results)]
        # The visit of a tool has run the hooks; the visit of an agent has no code to run them.
        unseen = [call for call in made if not call.is_seen or call.tool in self._agent.agents]
        seen = await self._after(unseen) if unseen and self._has_after_hooks else {}
        return {**known, **{call.id: call.result for call in made}, **seen}

    @property
    def _has_after_hooks(self) -> bool:
        return any(listens(hook, AfterToolCall) for hook in self._agent.hooks)

    async def _after(self, calls: Sequence[MadeCall]) -> dict[str, dict[str, Json]]:
        """Return the results of calls after their hooks. The hooks run once, even if the turn is retried
        because its model is unavailable.
        """
        journal = self._ctx.runtime.journal
        if (seen := journal.get_marker(_SEEN)) is not None:
            self.memory.update(seen["state"])
        else:
            offers = await self._agent.available_tools()
            results = {
                call.id: await self._after_one(call, offers.get(call.tool)) for call in calls
            }
            seen = {"results": results, "state": self.memory.changes()}
            journal.set_marker(_SEEN, seen)
        found: dict[str, dict[str, Json]] = seen["results"]
        return found

    async def _after_one(self, call: MadeCall, offer: Offer | None) -> dict[str, Json]:
        after = await after_hooks(
            self._agent.hooks,
            await tool_results.load(blobs_of(self._ctx), call.result),
            tool=call.tool,
            call_id=call.id,
            arguments=call.arguments,
            memory=self.memory,
            check=None if offer is None else offer.tool.checked_result,
        )
        self.memory = after.memory
        if not after.is_changed:
            return call.result
        return await tool_results.store(self._ctx, after.result)
