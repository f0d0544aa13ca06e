"""What stands before one call, in its own code: the hooks that asked, with the answers, and the approval.

The model's turn has run the hooks before, and opened what they ask. Nothing of that is taken on trust
here: they are run again from the beginning, and deny the call where they do anything but let it through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from abeyance.agents import tool_results
from abeyance.agents.agent import Agent, Offer
from abeyance.agents.approvals import (
    APPROVE,
    Rejected,
    approval_question,
    approved_arguments,
    call_digest,
    needs_approval,
)
from abeyance.agents.hook_runner import run_hooks
from abeyance.agents.hooks import AfterToolCall, BeforeToolCall, listens
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool import Tool
from abeyance.agents.tool_errors import CallError
from abeyance.agents.tool_results import UNSEEN
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.json import Json, canonical
from abeyance.core.outcome import Asked, key_of
from abeyance.storage.blobs import Blobs

_SHOWN: Final = "shown"
_APPROVAL: Final = key_of("approval", APPROVE)


class ToolGate:
    """The way of one call to its tool. `arguments` and `memory` are what hooks and people have made of
    the arguments and of the agent's state; `is_asked`: somebody was asked whether the call may be made.
    """

    def __init__(self, agent: Agent, tool: Tool, ctx: Context, memory: AgentState) -> None:
        self._agent = agent
        self._tool = tool
        self._ctx = ctx
        self.arguments: dict[str, Json] = dict(ctx.item["args"])
        self.memory = memory
        self.is_asked = "digest" in ctx.item or "hooked" in ctx.item

    async def refused(self) -> dict[str, Json] | None:
        """The result in place of the tool's, or None if the call may be made. Raises Suspended while
        something that has to be answered first is not.
        """
        ctx, tool = self._ctx, self._tool
        is_approved = "digest" in ctx.item
        if ctx.item.get("hooked"):
            event = BeforeToolCall(
                tool=tool.name,
                args=self.arguments,
                call_id=str(ctx.item["call_id"]),
                agent_state=self.memory,
            )
            outcome = await run_hooks(self._agent.hooks, event, ctx.targets, check=tool.read)
            if outcome.denied is not None:
                return tool_results.error(outcome.denied, is_denied=True)
            if outcome.asked:
                raise Suspended(outcome.asked)
            self.memory = outcome.event.agent_state
            self.arguments = outcome.event.args
            if changes := self.memory.changes():
                # What people taught the hooks holds also where this call ends without its code.
                ctx.runtime.journal.partial_patch = {"agent_state": changes}
            if outcome.cancelled is not None:
                return tool_results.error(outcome.cancelled, is_denied=True)
            # Who was asked has answered about this call, whatever `approve=` says by now.
            is_approved = _APPROVAL in ctx.targets or await needs_approval(tool, self.arguments)
        return self._unapproved() if is_approved else None

    def _unapproved(self) -> dict[str, Json] | None:
        """Ask for the approval, or take it: the arguments are then those that were approved."""
        ctx, tool = self._ctx, self._tool
        digest = call_digest(tool.name, self.arguments)
        if _APPROVAL not in ctx.targets:
            try:
                asked = approval_question(tool, self.arguments)
            except CallError as wrong:
                return tool_results.error(wrong.text)
            ctx.runtime.journal.set_marker(_SHOWN, digest)
            raise Suspended([asked])
        if digest != ctx.item.get("digest", ctx.runtime.journal.get_marker(_SHOWN)):
            return tool_results.error("denied: what was approved is another call", is_denied=True)
        approved = approved_arguments(tool, ctx.targets[_APPROVAL], self.arguments)
        if isinstance(approved, Rejected):
            return tool_results.error(approved.text, is_denied=True)
        self.arguments = approved
        return None


_SEEN: Final = "seen"


class AfterHooks:
    """What the hooks of an agent say after the calls that came to a turn. `memory` is the agent's state,
    which they change.
    """

    def __init__(self, agent: Agent, ctx: Context, blobs: Blobs, memory: AgentState) -> None:
        self._agent = agent
        self._ctx = ctx
        self._blobs = blobs
        self.memory = memory

    async def of_gathered(self, state: AgentValues) -> dict[str, dict[str, Json]]:
        """The results of the last turn's calls so far, by their ids, as the hooks leave them.

        Raises Suspended while a hook asks, and Blocked while a server of tools is not there.
        """
        book = self._ctx.runtime.journal
        marked = book.get_marker(_SEEN) or {"results": {}, "state": {}}
        self.memory.update(marked["state"])
        gathered = tool_results.collect(self._ctx.results, self._agent.agents)
        results = {**state.known, **gathered}
        seen, asked = await self._seen(results, marked["results"])
        heard = {call_id: each for call_id, each in seen.items() if UNSEEN in results[call_id]}
        if heard and self._is_heard:
            # Not to be run again for the others, nor for what the turn asks later.
            book.set_marker(_SEEN, {"results": heard, "state": self.memory.changes()})
        return _unless_asked(seen, asked)

    async def of_known(self, known: Mapping[str, Mapping[str, Json]]) -> dict[str, dict[str, Json]]:
        """The same, of calls that nothing had to be run for."""
        return _unless_asked(*await self._seen(known, {}))

    @property
    def _is_heard(self) -> bool:
        return any(listens(hook, AfterToolCall) for hook in self._agent.hooks)

    async def _seen(
        self, results: Mapping[str, Mapping[str, Json]], known: Mapping[str, dict[str, Json]]
    ) -> tuple[dict[str, dict[str, Json]], list[Asked]]:
        found: dict[str, dict[str, Json]] = {}
        asked: list[Asked] = []
        is_unseen = any(UNSEEN in each and id_ not in known for id_, each in results.items())
        offered = await self._agent.available_tools() if is_unseen and self._is_heard else {}
        for call_id, result in results.items():
            if call_id in known:
                found[call_id] = known[call_id]
            elif UNSEEN not in result or not self._is_heard:
                found[call_id] = _without_mark(result)
            else:
                after = await self._after(call_id, result, offered)
                if isinstance(after, dict):
                    found[call_id] = after
                else:
                    asked += after
        return found, asked

    async def _after(
        self, call_id: str, result: Mapping[str, Json], offered: Mapping[str, Offer]
    ) -> dict[str, Json] | Sequence[Asked]:
        """What the hooks make of one call, or what they ask about it."""
        opened = await tool_results.load(self._blobs, result)
        outcome, told = tool_results.to_model_text(opened)
        name = str(opened[UNSEEN]["tool"])
        event = AfterToolCall(
            tool=name,
            args=opened[UNSEEN]["args"],
            call_id=call_id,
            agent_state=self.memory,
            result=told,
            error=outcome != "success",
            cancelled=outcome in {"denied", "interrupted"},
        )
        offer = offered.get(name)
        heard = await run_hooks(
            self._agent.hooks,
            event,
            self._answers(call_id),
            check=None if offer is None else offer.tool.told,
        )
        if heard.asked:
            return [replace(each, process=_process(each.process, call_id)) for each in heard.asked]
        if heard.denied is not None:
            after = tool_results.error(heard.denied, is_denied=True)
        else:
            self.memory = heard.event.agent_state
            left = tool_results.of_event(heard.event)
            is_same = canonical(left) == canonical(tool_results.of_event(event))
            after = _without_mark(result) if is_same else left
        return await tool_results.store(self._blobs, self._ctx.run_id, after)

    def _answers(self, call_id: str) -> dict[str, Json]:
        """What people said so far to the questions about one call."""
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
    """The name under which a hook asks about one of several calls, whose ids may be any text."""
    return f"{asking}.{quote(call_id, safe='')}"


def _unless_asked(
    found: dict[str, dict[str, Json]], asked: Sequence[Asked]
) -> dict[str, dict[str, Json]]:
    if asked:
        raise Suspended(asked)
    return found
