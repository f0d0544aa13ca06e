"""What stands before one call, in its own code: the hooks that asked, with the answers, and the approval.

The model's turn has run the hooks before, and opened what they ask. Nothing of that is taken on trust
here: they are run again from the beginning, and deny the call where they do anything but let it through.
"""

from __future__ import annotations

from typing import Final

from abeyance.agents import callresults
from abeyance.agents.agent import Agent
from abeyance.agents.approvals import (
    APPROVE,
    Rejected,
    approval,
    approved_arguments,
    call_digest,
    needs_approval,
)
from abeyance.agents.callerror import CallError
from abeyance.agents.hookrun import run_hooks
from abeyance.agents.hooks import BeforeToolCall
from abeyance.agents.state import AgentState
from abeyance.agents.tool import Tool
from abeyance.core.canonical import Json
from abeyance.core.outcome import key_of
from abeyance.nodes.context import Context
from abeyance.nodes.interrupts import Suspended

_SHOWN: Final = "shown"
_APPROVAL: Final = key_of("approval", APPROVE)


class Admission:
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
                return callresults.error(outcome.denied, is_denied=True)
            if outcome.asked:
                raise Suspended(outcome.asked)
            self.memory = outcome.event.agent_state
            self.arguments = outcome.event.args
            if changes := self.memory.changes():
                # What people taught the hooks holds also where this call ends without its code.
                ctx.notebook.partial = {"agent_state": changes}
            if outcome.cancelled is not None:
                return callresults.error(outcome.cancelled, is_denied=True)
            # Who was asked has answered about this call, whatever `approve=` says by now.
            is_approved = _APPROVAL in ctx.targets or await needs_approval(tool, self.arguments)
        return self._unapproved() if is_approved else None

    def _unapproved(self) -> dict[str, Json] | None:
        """Ask for the approval, or take it: the arguments are then those that were approved."""
        ctx, tool = self._ctx, self._tool
        digest = call_digest(tool.name, self.arguments)
        if _APPROVAL not in ctx.targets:
            try:
                asked = approval(tool, self.arguments)
            except CallError as wrong:
                return callresults.error(wrong.text)
            ctx.notebook.leave(_SHOWN, digest)
            raise Suspended([asked])
        if digest != ctx.item.get("digest", ctx.notebook.marked(_SHOWN)):
            return callresults.error("denied: what was approved is another call", is_denied=True)
        approved = approved_arguments(tool, ctx.targets[_APPROVAL], self.arguments)
        if isinstance(approved, Rejected):
            return callresults.error(approved.text, is_denied=True)
        self.arguments = approved
        return None
