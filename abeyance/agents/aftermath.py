"""The after-hooks of calls for which no code of their own is run when they are over.

A tool's activity runs its after-hooks itself. A call that a person rejected, that nobody answered for
in time, that was skipped or failed for good has no activity, or none any more, and an agent that was
called is a graph. Their after-hooks are run here, at the beginning of the model's next turn and before
anything else of it, so that no result comes to the model, and no later call to its tool, past a hook (in
Strands the event comes after every call too).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from abeyance.agents import callresults
from abeyance.agents.agent import Agent, Offer
from abeyance.agents.callresults import UNSEEN
from abeyance.agents.hookrun import run_hooks
from abeyance.agents.hooks import AfterToolCall, listens
from abeyance.agents.state import AgentState
from abeyance.agents.values import AgentValues
from abeyance.core.canonical import Json, canonical
from abeyance.core.outcome import Asked
from abeyance.nodes.context import Context
from abeyance.nodes.interrupts import Suspended
from abeyance.storage.blobs import Blobs

_SEEN: Final = "seen"


class Aftermath:
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
        book = self._ctx.notebook
        marked = book.marked(_SEEN) or {"results": {}, "state": {}}
        self.memory.update(marked["state"])
        gathered = callresults.gathered(self._ctx.results, self._agent.agents)
        results = {**state.known, **gathered}
        seen, asked = await self._seen(results, marked["results"])
        heard = {call_id: each for call_id, each in seen.items() if UNSEEN in results[call_id]}
        if heard and self._is_heard:
            # Not to be run again for the others, nor for what the turn asks later.
            book.leave(_SEEN, {"results": heard, "state": self.memory.changes()})
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
        offered = await self._agent.offered() if is_unseen and self._is_heard else {}
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
        opened = await callresults.opened(self._blobs, result)
        outcome, told = callresults.told(opened)
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
            after = callresults.error(heard.denied, is_denied=True)
        else:
            self.memory = heard.event.agent_state
            left = callresults.after(heard.event)
            is_same = canonical(left) == canonical(callresults.after(event))
            after = _without_mark(result) if is_same else left
        return await callresults.kept(self._blobs, self._ctx.run_id, after)

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
