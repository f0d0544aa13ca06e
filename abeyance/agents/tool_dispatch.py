"""The calls of a model turn: their validation, the gate, the visits to schedule, and their results.

All of this happens in the turn: an ungated call costs only its own activity, and a gated one is not
scheduled before its answers arrive. The gate then decides again in the activity of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final
from urllib.parse import quote

from abeyance.agents import tool_results
from abeyance.agents.agent import ENTRY_NODE, MODEL_NODE, Agent, Offer
from abeyance.agents.hook_runner import after_hooks
from abeyance.agents.hooks import AfterToolCall, listens
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool_errors import CallError
from abeyance.agents.tool_gate import HOOKED, ToolCall, ask_in_turn
from abeyance.agents.tool_results import UNSEEN, blobs_of
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.json import Json
from abeyance.core.outcome import Asked, Call, Finished, Send

MUST_ASK: Final = {"abeyance": "approve"}
"""The details of the part of a call that needs an approval, whatever its tool says."""
MAX_CALLS: Final = 64
MAX_BYTES: Final = 500_000
"""The arguments of a turn are copied together. A call beyond a limit is an error for the model."""
_SEEN: Final = "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCall:
    """One call of a turn, as the model wrote it. With `approve` it needs an approval."""

    tool: str
    call_id: str
    arguments: Json
    approve: bool = False


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
        """Dispatch calls: all together, or if sequential, up to the first one that runs. `results` are
        those of calls that do not run. Raises Blocked while a server of tools is unavailable.
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
            return await self._end(call, offer, tool_results.of_error(error))
        self.memory = call.memory
        is_agent = call.tool.name in self._agent.agents
        # The answer to an approval is enough to enter an agent or not. All else needs code before that:
        # hooks, previews and grants decide, and after-hooks are to see the approved arguments.
        has_entry = gate and (HOOKED in gate or not asked or self._has_after_hooks)
        node = ENTRY_NODE if is_agent and has_entry else offer.node
        # An approval, by a question of a hook too, is for one attempt.
        return _send(node, {**_item(call), **gate}, asked, once=bool(gate))

    async def _end(
        self, call: ToolCall, offer: Offer, denial: dict[str, Json]
    ) -> Send | dict[str, Json]:
        """Return the result of a call that does not run, or its visit if the after-hooks ask."""
        after = await call.after(denial)
        self.memory = call.memory
        if not after.asked:
            return after.result
        if call.tool.name in self._agent.agents:
            # It has no code that could wait for the answer: the next turn asks.
            return {**denial, UNSEEN: {"tool": call.tool.name, "args": call.arguments}}
        return _send(offer.node, {**_item(call), "known": denial}, after.asked)

    def _unknown(self, name: str) -> str:
        names = ", ".join(map(repr, self._offers)) or "none"
        is_plural = len(self._offers) > 1
        return f"There is no tool {name!r}. There {'are' if is_plural else 'is'} {names}."

    async def collect(self, state: AgentValues) -> dict[str, dict[str, Json]]:
        """Return the results of the last turn's calls, by call id, after their hooks.

        Raises Suspended while a hook asks, and Blocked while a server of tools is unavailable.
        """
        journal = self._ctx.runtime.journal
        saved = journal.get_marker(_SEEN) or {"results": {}, "state": {}}
        self.memory.update(saved["state"])
        collected = tool_results.collect(self._ctx.results, self._agent.agents)
        results = {**state.known, **collected}
        seen, asked = await self._after(results, saved["results"])
        hooked = {call_id: seen[call_id] for call_id in seen if UNSEEN in results[call_id]}
        if hooked and self._has_after_hooks:
            # These hooks must not run again when others ask and are answered.
            journal.set_marker(_SEEN, {"results": hooked, "state": self.memory.changes()})
        if asked:
            raise Suspended(asked)
        return seen

    async def after_denials(
        self, results: Mapping[str, dict[str, Json]]
    ) -> dict[str, dict[str, Json]]:
        """Return results of calls that ran nothing, after their hooks. Raises as `collect`."""
        seen, asked = await self._after(results, {})
        if asked:
            raise Suspended(asked)
        return seen

    @property
    def _has_after_hooks(self) -> bool:
        return any(listens(hook, AfterToolCall) for hook in self._agent.hooks)

    async def _after(
        self, results: Mapping[str, Mapping[str, Json]], saved: Mapping[str, dict[str, Json]]
    ) -> tuple[dict[str, dict[str, Json]], list[Asked]]:
        """Return the results after their hooks, and what the hooks ask. Hooks have seen those `saved`."""
        unseen = {
            call_id: result
            for call_id, result in results.items()
            if UNSEEN in result and call_id not in saved and self._has_after_hooks
        }
        seen = {
            call_id: saved[call_id] if call_id in saved else _without_mark(result)
            for call_id, result in results.items()
            if call_id not in unseen
        }
        asked: list[Asked] = []
        offers = await self._agent.available_tools() if unseen else {}
        for call_id, result in unseen.items():
            loaded = await tool_results.load(blobs_of(self._ctx), result)
            tool, arguments = loaded[UNSEEN]["tool"], loaded[UNSEEN]["args"]
            after = await after_hooks(
                self._agent.hooks,
                loaded,
                self._answers(call_id),
                tool=tool,
                call_id=call_id,
                arguments=arguments,
                memory=self.memory,
                check=offers[tool].tool.checked_result if tool in offers else None,
            )
            self.memory = after.memory
            if after.asked:
                asked += [
                    replace(each, process=_process(each.process, call_id)) for each in after.asked
                ]
            else:
                kept = after.result if after.is_changed else _without_mark(result)
                seen[call_id] = await tool_results.store(self._ctx, kept)
        return seen, asked

    def _answers(self, call_id: str) -> dict[str, Json]:
        """Return the answers to the questions about one call."""
        suffix = _process("", call_id)
        answers = {}
        for key, answer in self._ctx.targets.items():
            process, _, name = key.rpartition("/")
            if process.endswith(suffix):
                answers[f"{process.removesuffix(suffix)}/{name}"] = answer
        return answers


def _item(call: ToolCall) -> dict[str, Json]:
    return {"tool": call.tool.name, "call_id": call.id, "args": call.arguments}


def _send(
    node: str, item: dict[str, Json], asked: tuple[Asked, ...], *, once: bool = False
) -> Send:
    call = Call(tool=item["tool"], id=item["call_id"], interrupts=asked, once=once)
    return Send(node=node, item=item, call=call)


def _without_mark(result: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in result.items() if key != UNSEEN}


def _process(asking: str | None, call_id: str) -> str:
    """Return the process name of a hook's question about one of several calls."""
    return f"{asking}.{quote(call_id, safe='')}"
