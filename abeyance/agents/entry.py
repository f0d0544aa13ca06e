"""The call of an agent about which somebody is asked: what stands before it, and then the agent.

A tool's own code can ask, an agent has none before its first turn. So such a call is first a visit of
this node, which goes on as a visit of the agent's, at the same address. What is not let through is never
entered.
"""

from __future__ import annotations

from abeyance.agents import callresults
from abeyance.agents.admission import Admission
from abeyance.agents.agent import Agent
from abeyance.agents.state import AgentState
from abeyance.agents.turn import blobs_of
from abeyance.agents.values import AgentValues
from abeyance.core.outcome import Finished
from abeyance.nodes.context import Context


class Entry:
    """The visits of this node."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def run(self, state: AgentValues, ctx: Context) -> Finished:
        """Ask what is asked before the call that a visit is about, and let it through or not."""
        name = str(ctx.item["tool"])
        called = self._agent.agents.get(name)
        if called is None:
            gone = callresults.error(f"There is no tool {name!r} any more.")
            return Finished(result=gone, ended="failed")
        admission = Admission(self._agent, called.tool, ctx, AgentState(state.agent_state))
        refused = await admission.refused()
        changes = admission.memory.changes()
        patch = {"agent_state": changes} if changes else {}
        is_edited = admission.arguments != ctx.item["args"]
        known = {"args": admission.arguments} if is_edited else None
        if refused is None:
            return Finished(patch=patch, goto=name, result=known)
        kept = await callresults.kept(blobs_of(ctx), ctx.run_id, refused)
        ended = callresults.told(refused)[0]
        return Finished(patch=patch, result={**(known or {}), **kept}, ended=ended)
