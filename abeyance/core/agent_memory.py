"""What is kept of an agent when its graph is over: where its conversation is, and what it remembers.

A conversation is somewhere else, and only a reference to its end is in the run: in the field
`transcript` of the agent's values, and here once those are gone. An agent that remembers begins its next
visit with what the last one of the same node, in the same graph, has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from abeyance.core.json import Json
from abeyance.core.spec import SubgraphNode
from abeyance.core.state import RunState, Scope, Visit
from abeyance.core.working_state import WorkingState

FIELD: Final = "transcript"
"""The field of an agent's values that refers to the end of its conversation."""
_MOST: Final = 200


def keep(draft: WorkingState, visit: Visit, scope: Scope) -> None:
    """Keep what is to be kept of a nested graph that goes."""
    kept = dict(draft.state.agent_memory)
    for key in [key for key in kept if key.startswith(f"{scope.address}/")]:
        # What was inside it will never be entered again.
        del kept[key]
    node = draft.state.node_of(visit)
    if isinstance(node, SubgraphNode) and node.remembers:
        kept[_key(visit)] = {
            name: scope.values[name] for name in node.remembers if name in scope.values
        }
    if kept != draft.state.agent_memory:
        draft.state.agent_memory = kept
    head = scope.values.get(FIELD)
    if scope.is_agent and isinstance(head, str):
        known = {**draft.state.transcripts, scope.address: head}
        while len(known) > _MOST:
            del known[next(iter(known))]
        draft.state.transcripts = known


def remembered(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """What a visit of an agent's node begins with."""
    return state.agent_memory.get(_key(visit), {})


def transcripts(state: RunState) -> dict[str, str]:
    """Where the conversations of a run's agents are, by the agents' addresses."""
    heads = {
        scope.address: scope.values.get(FIELD) for scope in state.scopes.values() if scope.is_agent
    }
    return {
        **state.transcripts,
        **{key: head for key, head in heads.items() if isinstance(head, str)},
    }


def _key(visit: Visit) -> str:
    return f"{visit.scope}/{visit.node}"
