"""The values with which a run starts: JSON, from an input and a model."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    computed_field,
)
from sample_states import NAN, ORDER, Colour, Line, patch_error, pointers, refusal

from abeyance.errors import Code
from abeyance.schemas.state_model import StateModel

# Initial values


def test_a_run_starts_with_its_input_and_the_defaults_as_json() -> None:
    assert ORDER.initial({"id": "o1", "placed": datetime(2026, 3, 2, tzinfo=UTC)}) == {
        "id": "o1",
        "total": "0.00",
        "placed": "2026-03-02T00:00:00Z",
        "colour": "red",
        "lines": [],
        "notes": {},
    }


def test_written_values_are_read_back_unchanged() -> None:
    values = ORDER.initial(
        {"id": "o1", "total": "9.90", "placed": "2026-03-02T00:00:00Z", "lines": [{"article": "a"}]}
    )
    state = ORDER.read(values)

    assert (state.total, state.placed) == (Decimal("9.90"), datetime(2026, 3, 2, tzinfo=UTC))
    assert state.colour is Colour.RED
    assert state.lines[0].label == "1 x a"
    assert ORDER.patch(dict(state)) == values


def test_fields_come_in_by_name_or_alias_and_are_kept_by_name() -> None:
    class Aliased(BaseModel):
        order_id: str = Field(alias="orderId")
        first: str = Field(default="", validation_alias=AliasPath("names", 0))
        city: str = Field(default="", validation_alias=AliasChoices("town", AliasPath("place", 0)))

    states = StateModel(Aliased)
    kept = {"order_id": "o1", "first": "ada", "city": "york"}

    assert states.initial({"orderId": "o1", "names": ["ada"], "town": "york"}) == kept
    assert states.initial(kept) == kept
    assert states.initial({"order_id": "o1", "place": ["york"], "first": "ada"}) == kept
    assert states.read(kept).order_id == "o1"
    assert pointers(states, {"orderid": "o1"}) == ["/orderid", "/orderId"]


def test_nested_models_are_kept_by_alias_without_what_is_computed() -> None:
    lines = [{"article": "a", "qty": 2}, {"article": "b", "quantity": 3}, Line(article="c", qty=4)]
    kept = [{"article": "a", "qty": 2}, {"article": "b", "qty": 3}, {"article": "c", "qty": 4}]

    assert ORDER.initial({"id": "o1", "lines": lines})["lines"] == kept
    assert ORDER.patch({"lines": lines}) == {"lines": kept}


def test_a_computed_field_of_the_state_is_not_kept_because_nothing_would_keep_it_true() -> None:
    class Sums(BaseModel):
        model_config = ConfigDict(extra="forbid")
        parts: list[int] = []

        @computed_field  # type: ignore[prop-decorator]
        @property
        def total(self) -> int:
            return sum(self.parts)

    states = StateModel(Sums)

    assert states.initial({"parts": [1, 2]}) == {"parts": [1, 2]}
    assert states.read({"parts": [1, 2]}).total == 3


@pytest.mark.parametrize("extra", ["ignore", "forbid"])
def test_an_unknown_field_is_refused_once_whatever_the_model_says(extra: Any) -> None:
    states = StateModel(type("S", (BaseModel,), {"model_config": ConfigDict(extra=extra)}))
    refused = refusal(states, {"b": 1, "a/b": 2})

    assert refused.details["errors"] == [
        {"pointer": "/a~1b", "message": "the state of this graph has no field 'a/b'"},
        {"pointer": "/b", "message": "the state of this graph has no field 'b'"},
    ]
    assert "/b: the state of this graph has no field 'b'" in refused.message


def test_a_model_that_allows_extra_fields_keeps_them() -> None:
    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int = 0

    states = StateModel(Loose)

    assert states.is_open
    assert states.initial({"x": 1, "when": date(2026, 3, 2)}) == {"x": 1, "when": "2026-03-02"}
    assert states.patch({"y": {"z": (1, 2)}}) == {"y": {"z": [1, 2]}}
    assert states.read({"x": 1, "y": [2]}).y == [2]
    assert "not JSON compliant" in patch_error(states, {"y": NAN})


def test_a_run_may_start_with_the_state_itself_and_what_was_left_to_its_default_is_made_anew() -> (
    None
):
    numbers = count()

    class Counted(BaseModel):
        number: int
        made: int = Field(default_factory=lambda: next(numbers))

    given = Counted(number=1)

    assert StateModel(Counted).initial(given) == {"number": 1, "made": 1}
    assert StateModel(Counted).initial(Counted(number=1, made=7)) == {"number": 1, "made": 7}
    assert StateModel(None).initial(given) == {"number": 1}


@pytest.mark.parametrize("model", [Line, None])
@pytest.mark.parametrize("given", [["id"], "id", 5, [("id", "o")]])
def test_an_input_without_fields_is_refused(model: type[BaseModel] | None, given: Any) -> None:
    refused = refusal(StateModel(model), given)

    assert refused.code is Code.INVALID_INPUT
    assert (
        f"it must be a mapping of fields to values, not a {type(given).__name__}" in refused.message
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["/id"]),
        ({"id": 5}, ["/id"]),
        (
            {"id": "o", "lines": [{"article": "a"}, {"article": "b", "qty": "many"}]},
            ["/lines/1/qty"],
        ),
        ({"id": "o", "lines": [{"quantity": 1}]}, ["/lines/0/article"]),
        ({"id": "o", "lines": {}}, ["/lines"]),
        ({"id": "o", "colour": "green", "total": "much"}, ["/total", "/colour"]),
        ({"id": "o", "notes": {"a/b~c": "x"}}, ["/notes/a~1b~0c", "/notes/a~1b~0c"]),
        ({"id": "o", "notes": {"n": [1, "x"]}}, ["/notes/n", "/notes/n/1"]),
        ({"id": "o", "total": Decimal("NaN")}, ["/total"]),
        ({"id": "\ud800"}, ["/id"]),
    ],
)
def test_faults_of_an_input_have_pointers(given: Any, found: list[str]) -> None:
    assert pointers(ORDER, given) == found


def test_at_most_twenty_faults_are_listed() -> None:
    lines = [{"quantity": 1}] * 1000

    assert len(pointers(ORDER, {"id": "o", "lines": lines})) == 20
    assert len(patch_error(ORDER, {"lines": lines})) < 2_000


def test_a_strict_model_takes_from_json_what_is_text_there() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        when: datetime
        amount: Decimal
        count: int = 0
        id: UUID | None = None

    states = StateModel(Strict)
    values = states.initial({"when": "2026-03-02T00:00:00Z", "amount": "1.5"})

    assert values == states.initial(
        {"when": datetime(2026, 3, 2, tzinfo=UTC), "amount": Decimal("1.5")}
    )
    assert states.read(values).amount == Decimal("1.5")
    assert pointers(states, {**values, "count": "5"}) == ["/count"]
    assert "/count" in patch_error(states, {"count": "5"})


def test_a_value_that_a_node_would_read_as_another_one_is_not_kept() -> None:
    class Hidden(BaseModel):
        text: str = Field(exclude=True)

    class Paid(BaseModel):
        cents: Annotated[int, AfterValidator(lambda euros: euros * 100)] = 0
        hidden: Hidden | None = None

    states = StateModel(Paid)
    told = (
        "the value of 'cents' cannot be kept as JSON: its type writes 500, and reads that as 50000"
    )

    assert told in refusal(states, {"cents": 5}).message
    assert patch_error(states, {"cents": 5}) == told
    assert "does not read that" in patch_error(states, {"hidden": {"text": "x"}})
    assert states.initial({}) == {"cents": 0, "hidden": None}


def test_a_set_is_written_in_one_order() -> None:
    class Tagged(BaseModel):
        tags: set[str] = {"c", "a", "b"}

    states = StateModel(Tagged)

    assert states.initial({}) == {"tags": ["a", "b", "c"]}
    assert states.patch({"tags": {"z", "y"}}) == {"tags": ["y", "z"]}
    assert states.read({"tags": ["y"]}).tags == {"y"}


def test_a_field_may_be_a_model_with_rules_of_its_own() -> None:
    class Whole(BaseModel):
        model_config = ConfigDict(strict=True)
        line: Line
        span: timedelta = timedelta()

    states = StateModel(Whole)
    values = states.initial({"line": {"article": "a", "qty": 2}, "span": "PT5M"})

    assert values == {"line": {"article": "a", "qty": 2}, "span": "PT5M"}
    assert states.patch({"line": Line(article="b")}) == {"line": {"article": "b", "qty": 1}}
    assert states.read(values).line.label == "2 x a"
    assert "/line/article: Field required" in patch_error(states, {"line": {}})
