"""The state that an agent keeps between its calls, and the changes that a call makes to it."""

from __future__ import annotations

from typing import Any

import pytest

from abeyance.agents.state import AgentState


def test_only_what_differs_is_a_change() -> None:
    state = AgentState({"kept": 1, "same": [1], "gone": 2, "deep": {"list": [1]}})
    state["new"] = {"a": 1}
    state["same"] = [1]
    state["deep"]["list"].append(2)
    del state["gone"]

    assert state.changes() == {"new": {"a": 1}, "deep": {"list": [1, 2]}, "gone": None}
    assert len(state) == 4
    assert dict(state) == {"kept": 1, "same": [1], "new": {"a": 1}, "deep": {"list": [1, 2]}}


def test_true_and_one_are_not_the_same() -> None:
    state = AgentState({"trusted": 1})
    state["trusted"] = True

    assert state.changes() == {"trusted": True}


def test_none_in_an_agents_state_means_absence() -> None:
    state = AgentState({"a": None, "b": 1})
    state["b"] = None
    state["c"] = None

    assert dict(state) == {}
    assert state.get("a") is None
    assert state.changes() == {"b": None}
    assert AgentState({"b": 1} | state.changes()) == {}


def test_setting_and_deleting_a_key_is_not_a_change() -> None:
    state = AgentState()
    state["a"] = 1
    state.clear()

    assert state.changes() == {}


def test_neither_what_was_given_nor_what_was_set_is_shared() -> None:
    given: dict[str, Any] = {"a": [1]}
    mine: list[int] = []
    state = AgentState(given)
    state["a"].append(2)
    state["b"] = mine
    mine.append(3)

    assert given == {"a": [1]}
    assert state["b"] == []


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {1}, float("nan"), "\ud800", nested(150), nested(5_000)]
)
def test_an_agents_state_takes_only_json(value: Any) -> None:
    state = AgentState({"a": []})
    with pytest.raises(TypeError, match="'b' in the agent's state is not JSON"):
        state["b"] = value
    state["a"].append(value)
    with pytest.raises(TypeError, match="'a' in the agent's state is not JSON"):
        state.changes()


def test_a_key_is_text() -> None:
    with pytest.raises(TypeError, match="the key 1 of the agent's state is a int: use a text"):
        AgentState()[1] = 2  # type: ignore[index]


def test_an_agents_state_is_bounded() -> None:
    state = AgentState({"a": [], "b": "x" * 30_000})
    with pytest.raises(ValueError, match="of at most 50000"):
        state["c"] = "x" * 30_000
    assert "c" not in state
    state["a"].append("x" * 30_000)
    with pytest.raises(ValueError, match="of at most 50000"):
        state.changes()


def test_a_fork_goes_its_own_way() -> None:
    state = AgentState({"a": [1], "b": 1})
    state["a"].append(2)
    other = state.fork()
    other["a"].append(3)
    del other["b"]

    assert repr(state) == "AgentState({'a': [1, 2], 'b': 1})"
    assert state.changes() == {"a": [1, 2]}
    assert other.changes() == {"a": [1, 2, 3], "b": None}
