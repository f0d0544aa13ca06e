"""A run taken apart for a hand-over, and put together again.

The spec is as old as the run and the values change with every visit, so both travel as payloads of
their own: a store that is addressed by content then holds each version once. What is left is the
snapshot proper. `joined(*parted(state))` is the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from abeyance.core.json import Json
from abeyance.core.spec import GraphSpec
from abeyance.core.state import FORMAT, RunState

ScopeValues: TypeAlias = Mapping[str, Mapping[str, Json]]
"""The values of every scope, by its address."""


def parted(state: RunState) -> tuple[RunState, GraphSpec, ScopeValues]:
    """The snapshot without its heavy parts, the spec, and the values of every scope."""
    values = {address: scope.values for address, scope in state.scopes.items()}
    bare = {address: replace(scope, values={}) for address, scope in state.scopes.items()}
    return replace(state, spec=GraphSpec(name=state.spec.name), scopes=bare), state.spec, values


def joined(snapshot: RunState, spec: GraphSpec, values: ScopeValues) -> RunState:
    """The run again. Raises ValueError if the snapshot was written by a later version of this code."""
    if snapshot.format > FORMAT:
        message = (
            f"this snapshot has format {snapshot.format}, and this version reads up to {FORMAT}: "
            "deploy the version that wrote it, or a later one"
        )
        raise ValueError(message)
    scopes = {
        address: replace(scope, values=values[address])
        for address, scope in snapshot.scopes.items()
    }
    return replace(snapshot, spec=spec, scopes=scopes)
