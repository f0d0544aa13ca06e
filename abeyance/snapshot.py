"""A whole run, from which a retry of an ended run continues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter

from abeyance.core.spec import GraphSpec
from abeyance.core.state import RunState, joined, parted
from abeyance.wire import Record, StartRun

_STATE: Final = TypeAdapter(RunState)


class Snapshot(Record):
    """A whole run: its start, its state, its graph, its values by scope.

    For an ended run, `before` is the run before its end: the fields of the state and the values of the
    scopes that differ.
    """

    start: StartRun
    state: dict[str, Any]
    spec: GraphSpec
    values: dict[str, dict[str, Any]]
    before: tuple[dict[str, Any], dict[str, dict[str, Any]]] | None = None

    @classmethod
    def of(cls, state: RunState, start: StartRun) -> Snapshot:
        ending = state.ending
        earlier = None if ending is None else ending.before
        if ending is not None:
            state = replace(state, ending=replace(ending, before=None))
        whole, values = _as_json(state)
        before = None
        if earlier is not None:
            fields, scopes = _as_json(earlier)
            before = _changed(fields, whole), _changed(scopes, values)
        return cls(start=start, state=whole, spec=state.spec, values=values, before=before)

    def joined(self) -> RunState:
        """Return the state of the run. Raises ValueError if a later version wrote it."""
        state = joined(_STATE.validate_python(self.state), self.spec, self.values)
        if self.before is None or state.ending is None:
            return state
        fields, values = self.before
        earlier = joined(
            _STATE.validate_python({**self.state, **fields}), self.spec, {**self.values, **values}
        )
        return replace(state, ending=replace(state.ending, before=earlier))


def _as_json(state: RunState) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    bare, _, values = parted(state)
    fields: dict[str, Any] = _STATE.dump_python(bare, mode="json")
    return fields, {address: dict(each) for address, each in values.items()}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in before.items() if name not in after or after[name] != each}
