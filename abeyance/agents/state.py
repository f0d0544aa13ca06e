"""The state of an agent: facts that hooks and tools remember beside the conversation, such as trusted
folders.

Hooks and tools use it as a mapping. Each call of a turn sees the state as of that turn; the changes of
the calls are merged key by key, in the order of the calls.
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

_MAX_BYTES: Final = 50_000
"""The most bytes of the state, which is copied with every call."""


class AgentState(MutableMapping[str, Json]):
    """A mapping of texts to JSON values that tracks its changes at any depth.

    None means absent: setting a key to None deletes it, and a deleted key is None in `changes`. Setting a
    value that is not JSON raises TypeError; more than 50,000 bytes in all raise ValueError.
    """

    def __init__(self, values: Mapping[str, Json] | None = None) -> None:
        present = {key: value for key, value in (values or {}).items() if value is not None}
        self._before = copy.deepcopy(present)
        self._now: dict[str, Json] = copy.deepcopy(present)

    def __getitem__(self, key: str) -> Json:
        return self._now[key]

    def __setitem__(self, key: str, value: Json) -> None:
        if not isinstance(key, str):
            message = f"the key {key!r} of the agent's state is a {type(key).__name__}: use a text"
            raise TypeError(message)
        if value is None:
            self._now.pop(key, None)
            return
        _require_json(key, value)
        copied = copy.deepcopy(value)
        _require_small({**self._now, key: copied})
        self._now[key] = copied

    def __delitem__(self, key: str) -> None:
        del self._now[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)

    def __repr__(self) -> str:
        return f"AgentState({self._now!r})"

    def changes(self) -> dict[str, Json]:
        """Return the changes since the start as a patch, with None for each deleted key.

        Raises TypeError or ValueError if a nested change made a value too large or not JSON.
        """
        for key, value in self._now.items():
            _require_json(key, value)
        _require_small(self._now)
        updated = {
            key: value
            for key, value in self._now.items()
            if key not in self._before or canonical(self._before[key]) != canonical(value)
        }
        deleted = dict.fromkeys(key for key in self._before if key not in self._now)
        return copy.deepcopy(updated) | deleted

    def fork(self) -> AgentState:
        """Return an independent copy with the same changes."""
        return copy.deepcopy(self)


def json_fault(value: Any) -> str | None:
    """Return the reason why a value is not JSON or is nested too deep, or None."""
    try:
        refuse_too_deep(value)
        return why_not_json(value)
    except (ValueError, RecursionError) as error:
        return str(error)


def _require_json(key: str, value: Any) -> None:
    if (fault := json_fault(value)) is not None:
        raise TypeError(f"the value of {key!r} in the agent's state is not JSON: {fault}")


def _require_small(values: Mapping[str, Json]) -> None:
    if (actual := size(values)) > _MAX_BYTES:
        raise ValueError(
            f"the agent's state takes {actual} bytes of at most {_MAX_BYTES}, because it is copied with "
            "every call: store large data elsewhere, and a reference to it in the state"
        )


MEMORY_FIELDS = ("transcript", "agent_state")
"""The fields that the next visit of an agent with memory starts with."""


class AgentValues(BaseModel):
    """The state of an agent's graph.

    `input` is the input of the visit, until the first turn has read it. `transcript` refers to the
    conversation so far. `turns` counts the turns of the model, `corrections` the consecutive turns that
    corrected an output. `usage` is the sum of the reported usage. `agent_state` is the `AgentState`.
    `known` holds the results that the last turn's calls have so far, `waiting` the calls still to run one
    by one, and `heard` the messages that arrived meanwhile. `output` is the result.
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
