"""What an agent remembers between its calls, beside the conversation: such as whom a person trusts.

Hooks and tools read and write it as a mapping. Calls of one turn each see it as it was at the turn; what
each changed is merged in the order of the calls, key by key, so a key is the unit of a change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from abeyance.core.events import Message
from abeyance.core.json import Json, canonical, size, why_not_json
from abeyance.schemas.state_model import merge
from abeyance.wire import refuse_too_deep

_LARGEST: Final = 50_000
"""In bytes: it travels with every call."""


class AgentState(MutableMapping[str, Json]):
    """A mapping of texts to JSON values that knows what was changed in it, at any depth.

    None is the same as absence: a key that is set to None is deleted, and a key that was deleted is
    None among the `changes`. Setting what is no JSON raises TypeError; more than 50,000 bytes in all
    raise ValueError.
    """

    def __init__(self, values: Mapping[str, Json] | None = None) -> None:
        known = {key: value for key, value in (values or {}).items() if value is not None}
        self._before = copy.deepcopy(known)
        self._now: dict[str, Json] = copy.deepcopy(known)

    def __getitem__(self, key: str) -> Json:
        return self._now[key]

    def __setitem__(self, key: str, value: Json) -> None:
        if not isinstance(key, str):
            message = f"the agent's state has texts as keys; {key!r} is a {type(key).__name__}"
            raise TypeError(message)
        if value is None:
            self._now.pop(key, None)
            return
        _demand_json(key, value)
        kept = copy.deepcopy(value)
        _demand_small({**self._now, key: kept})
        self._now[key] = kept

    def __delitem__(self, key: str) -> None:
        del self._now[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)

    def __repr__(self) -> str:
        return f"AgentState({self._now!r})"

    def changes(self) -> dict[str, Json]:
        """What differs from the state as it was given, as a patch; None where a key was deleted.

        Raises TypeError or ValueError if something that was put deep into it is no JSON, or is large.
        """
        for key, value in self._now.items():
            _demand_json(key, value)
        _demand_small(self._now)
        changed = {
            key: value
            for key, value in self._now.items()
            if key not in self._before or canonical(self._before[key]) != canonical(value)
        }
        deleted = dict.fromkeys(key for key in self._before if key not in self._now)
        return copy.deepcopy(changed) | deleted

    def fork(self) -> AgentState:
        """A copy with the same changes, which goes its own way."""
        other = AgentState(self._before)
        other._now = copy.deepcopy(self._now)
        return other


def _demand_json(key: str, value: Any) -> None:
    try:
        refuse_too_deep(value)
        fault = why_not_json(value)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    if fault is not None:
        message = f"the agent's state holds JSON, and what is set as {key!r} is none: {fault}"
        raise TypeError(message)


def _demand_small(values: Mapping[str, Json]) -> None:
    if (actual := size(values)) > _LARGEST:
        message = (
            f"the agent's state takes {actual} bytes, and may take {_LARGEST}, because it travels with "
            "every call: keep large data elsewhere, and a reference to it in the state"
        )
        raise ValueError(message)


MEMORY_FIELDS = ("transcript", "agent_state")
"""What the next visit of an agent with a memory begins with."""


class AgentValues(BaseModel):
    """`input` is what the visit was entered with, until the first turn has read it.

    `transcript` refers to the conversation so far. `turns` counts the turns of the model, `corrections`
    those in a row that were to mend an output. `usage` is the sum of what the model reported.
    `agent_state` is what hooks and tools remember. `known` are results of the last turn's calls that
    needed nothing to be run, `waiting` the calls that follow one by one, and `heard` messages that came
    while these were made. `output` is the result.
    """

    input: Any = None
    transcript: str | None = None
    turns: int = 0
    corrections: int = 0
    usage: dict[str, int] = Field(default_factory=dict)
    agent_state: Annotated[dict[str, Any], merge] = Field(default_factory=dict)
    known: dict[str, Any] = Field(default_factory=dict)
    waiting: list[Any] = Field(default_factory=list)
    heard: list[Message] = Field(default_factory=list)
    output: Any = None
