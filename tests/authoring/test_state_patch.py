"""Reading the values of a run, and taking in what a node returns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, model_validator
from sample_states import NAN, OPEN, ORDER, Colour, Line, patch_error, pointers

from abeyance import add, append, merge, union
from abeyance.schemas.state_model import StateModel, ValuesError
from abeyance.wire import MAX_DEPTH


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


# Reading


def test_values_that_todays_model_refuses_are_listed_by_field() -> None:
    with pytest.raises(ValuesError) as caught:
        ORDER.read({"id": "o1", "total": "much", "lines": [{"qty": 1}], "gone": 1})

    assert str(caught.value) == (
        "the run's values do not match the current Order: "
        "/total: Input should be a valid decimal; /lines/0/article: Field required; "
        "/gone: Extra inputs are not permitted"
    )


def test_a_fault_of_several_fields_has_no_pointer() -> None:
    class Span(BaseModel):
        start: int = 0
        end: int = 0

        @model_validator(mode="after")
        def _forwards(self) -> Span:
            if self.end < self.start:
                raise ValueError("it ends before it starts")
            return self

    with pytest.raises(ValuesError, match="/: it ends before it starts"):
        StateModel(Span).read({"start": 2, "end": 1})
    assert pointers(StateModel(Span), {"start": 2}) == [""]


@pytest.mark.parametrize("states", [OPEN, StateModel(None)])
def test_a_nodes_changes_of_its_state_object_do_not_reach_the_values(states: StateModel) -> None:
    values = {"log": ["a"], "deep": {"x": [1]}}
    state = states.read(values)
    state["log"].append("b")
    state["deep"]["x"].append(2)

    assert values == {"log": ["a"], "deep": {"x": [1]}}


def test_a_field_of_any_type_is_the_nodes_own_too() -> None:
    class Holder(BaseModel):
        anything: Any = None

    values = {"anything": {"x": [1]}}
    StateModel(Holder).read(values).anything["x"].append(2)

    assert values == {"anything": {"x": [1]}}


# Patches


@dataclass
class Pair:
    left: int
    right: Line


@pytest.mark.parametrize(
    ("changes", "patch"),
    [
        ({}, {}),
        ({"total": 5}, {"total": "5"}),
        ({"total": Decimal("1.50")}, {"total": "1.50"}),
        ({"placed": datetime(2026, 3, 2, tzinfo=UTC)}, {"placed": "2026-03-02T00:00:00Z"}),
        ({"placed": None, "colour": "red"}, {"placed": None, "colour": "red"}),
        ({"notes": {"a": 1, "b": [1, 2]}}, {"notes": {"a": 1, "b": [1, 2]}}),
    ],
)
def test_a_patch_is_held_against_its_fields_and_becomes_json(
    changes: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert ORDER.patch(changes) == patch


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (0, 0),
        ("", ""),
        (False, False),
        ((1, 2), [1, 2]),
        (Line(article="a"), {"article": "a", "qty": 1}),
        (Pair(1, Line(article="a")), {"left": 1, "right": {"article": "a", "qty": 1}}),
        (Decimal("1.5"), "1.5"),
        (timedelta(minutes=5), "PT5M"),
        (Colour.RED, "red"),
        (b"text", "text"),
        ({"b", "a"}, ["a", "b"]),
    ],
)
def test_an_open_state_takes_what_can_be_written_as_json(value: Any, written: Any) -> None:
    assert OPEN.patch({"x": value}) == {"x": written}
    assert OPEN.initial({"x": value}) == {"x": written}


@pytest.mark.parametrize(
    ("states", "changes", "told"),
    [
        (ORDER, {"total": "much"}, "/total: Input should be a valid decimal"),
        (ORDER, {"lines": [{"article": "a", "qty": "x"}]}, "/lines/0/qty: Input should be"),
        (ORDER, {"nope": 1}, "sets 'nope', which Order does not have; it has 'id', 'total'"),
        (ORDER, {5: 1}, "must be a string, not 5"),
        (OPEN, {5: 1}, "must be a string, not 5"),
        (OPEN, {"x": NAN}, "'x' cannot be kept as JSON: Out of range float"),
        (OPEN, {"x": {"deep": [float("inf")]}}, "'x' cannot be kept as JSON: Out of range"),
        (OPEN, {"x": {1: 2}}, "'x' has the key 1: use strings as keys"),
        (OPEN, {"x": [{"y": {None: 2}}]}, "'x' has the key None: use strings"),
        (OPEN, {"x": object()}, "'x' cannot be kept as JSON: Unable to serialize unknown type"),
        (OPEN, {"x": lambda: None}, "'x' cannot be kept as JSON"),
        (OPEN, {"x": b"\xff"}, "'x' cannot be kept as JSON"),
        (OPEN, {"x": "\ud800"}, "'x' cannot be kept as JSON"),
        (OPEN, {"x": nested(MAX_DEPTH + 1)}, "nested in it deeper than 100 levels"),
        (OPEN, {"x": nested(5_000)}, "'x' cannot be kept as JSON"),
    ],
)
def test_an_invalid_patch_is_refused_by_field(states: StateModel, changes: Any, told: str) -> None:
    assert told in patch_error(states, changes)


def test_a_value_may_be_nested_a_hundred_levels() -> None:
    assert OPEN.patch({"x": nested(MAX_DEPTH)}) == {"x": nested(MAX_DEPTH)}


def test_a_value_that_holds_itself_is_refused() -> None:
    itself: list[Any] = []
    itself.append(itself)

    assert "Circular reference" in patch_error(OPEN, {"x": itself})
    assert pointers(OPEN, {"x": itself}) == ["/x"]


class Reduced(BaseModel):
    log: Annotated[list[str], append] = Field(default=[], max_length=2)
    names: Annotated[set[str], union] = set()
    facts: Annotated[dict[str, int], merge] = {}
    balance: Annotated[int, add] = Field(default=0, ge=0)


def test_a_field_with_a_reducer_takes_what_is_put_to_it() -> None:
    states = StateModel(Reduced)

    assert states.patch({"balance": -5, "log": ["a"], "names": {"b"}, "facts": {"x": "1"}}) == {
        "balance": -5,
        "log": ["a"],
        "names": ["b"],
        "facts": {"x": 1},
    }
    assert "/log" in patch_error(states, {"log": "a"})
    assert "/log/0" in patch_error(states, {"log": [1]})
    assert "/facts/x" in patch_error(states, {"facts": {"x": "many"}})


def test_the_bounds_of_a_field_with_a_reducer_hold_for_what_becomes_of_it() -> None:
    states = StateModel(Reduced)

    states.check_merged({"balance": 0, "log": ["a", "b"]}, {"balance": -5, "log": ["b"]})
    with pytest.raises(ValuesError, match="/balance: Input should be greater than or equal to 0"):
        states.check_merged({"balance": -1}, {"balance": -5})
    with pytest.raises(ValuesError, match="/log: List should have at most 2 items"):
        states.check_merged({"log": ["a", "b", "c"]}, {"log": ["c"]})
