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
from abeyance.agents.hook_runner import HooksOutcome, run_hooks
from abeyance.agents.hooks import AfterToolCall, listens
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool_errors import CallError
from abeyance.agents.tool_gate import Ask, ToolCall, after_event
from abeyance.agents.tool_results import UNSEEN, blobs_of
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.json import Json, canonical
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
        offer = self._offers.get(requested.tool)
        if offer is None:
            return tool_results.error(self._unknown(requested.tool))
        try:
            arguments = offer.tool.read(requested.arguments)
        except CallError as error:
            return tool_results.error(error.text)
        call = ToolCall(self._agent, offer.tool, requested.call_id, arguments, self.memory)
        decision = await call.decide(self._ctx, approve=requested.approve)
        self.memory = call.memory
        item: dict[str, Json] = {"tool": call.tool.name, "call_id": call.id, "args": call.arguments}
        if requested.approve:
            item["approve"] = True
        match decision:
            case None:
                pass
            case Ask(digest=None):
                item["hooked"] = True
            case Ask(digest=digest):
                item["digest"] = digest
            case denial:
                outcome = await call.after(denial)
                if not outcome.asked:
                    self.memory = outcome.event.agent_state
                    return tool_results.of_hooks(outcome, denial)
                if call.tool.name in self._agent.agents:
                    # It has no code that could wait for the answer: the next turn asks.
                    return {**denial, UNSEEN: {"tool": call.tool.name, "args": call.arguments}}
                return self._send(offer.node, {**item, "known": denial}, outcome.asked)
        asked = () if decision is None else decision.asked
        # Its gate decides again, or shows a preview; after-hooks must see the approved arguments.
        has_entry = call.tool.name in self._agent.agents and (
            "hooked" in item
            or ("digest" in item and not asked)
            or (asked and self._has_after_hooks)
        )
        node = ENTRY_NODE if has_entry else offer.node
        # An approval, by a question of a hook too, is for one attempt.
        return self._send(node, item, asked, once=decision is not None)

    def _send(
        self, node: str, item: dict[str, Json], asked: tuple[Asked, ...], *, once: bool = False
    ) -> Send:
        call = Call(tool=item["tool"], id=item["call_id"], interrupts=asked, once=once)
        return Send(node=node, item=item, call=call)

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
        seen: dict[str, dict[str, Json]] = {}
        asked: list[Asked] = []
        is_unseen = any(UNSEEN in result and id_ not in saved for id_, result in results.items())
        offers = await self._agent.available_tools() if is_unseen and self._has_after_hooks else {}
        for call_id, result in results.items():
            if call_id in saved:
                seen[call_id] = saved[call_id]
            elif UNSEEN not in result or not self._has_after_hooks:
                seen[call_id] = _without_mark(result)
            else:
                after = await self._after_one(call_id, result, offers)
                if isinstance(after, dict):
                    seen[call_id] = after
                else:
                    asked += after
        return seen, asked

    async def _after_one(
        self, call_id: str, result: Mapping[str, Json], offers: Mapping[str, Offer]
    ) -> dict[str, Json] | Sequence[Asked]:
        """Return the result of one call after its hooks, or their questions."""
        loaded = await tool_results.load(blobs_of(self._ctx), result)
        call = loaded[UNSEEN]
        event = after_event(str(call["tool"]), call_id, call["args"], self.memory, loaded)
        offer = offers.get(event.tool)
        outcome = await run_hooks(
            self._agent.hooks,
            event,
            self._answers(call_id),
            check=None if offer is None else offer.tool.checked_result,
        )
        if outcome.asked:
            return [
                replace(each, process=_process(each.process, call_id)) for each in outcome.asked
            ]
        self.memory = outcome.event.agent_state
        after = tool_results.of_hooks(outcome, loaded)
        if canonical(after) == canonical(tool_results.of_hooks(HooksOutcome(event=event), loaded)):
            after = _without_mark(result)
        else:
            after = {**after, **tool_results.marks(loaded)}
        return await tool_results.store(self._ctx, after)

    def _answers(self, call_id: str) -> dict[str, Json]:
        """Return the answers to the questions about one call."""
        suffix = _process("", call_id)
        answers = {}
        for key, answer in self._ctx.targets.items():
            process, _, name = key.rpartition("/")
            if process.endswith(suffix):
                answers[f"{process.removesuffix(suffix)}/{name}"] = answer
        return answers


def _without_mark(result: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in result.items() if key != UNSEEN}


def _process(asking: str | None, call_id: str) -> str:
    """Return the process name of a hook's question about one of several calls."""
    return f"{asking}.{quote(call_id, safe='')}"
