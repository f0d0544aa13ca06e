"""Equal JSON values have one text, whoever wrote them down."""

import hashlib
import json
import math
from dataclasses import asdict
from datetime import UTC, datetime

import pytest
from core_drive import chain
from core_strategies import json_values
from hypothesis import given
from hypothesis import strategies as st

from abeyance.core.json import (
    MAX_DEPTH,
    Json,
    canonical,
    rfc3339,
    sha256,
    size,
    size_of_all,
    why_not_json,
)
from abeyance.core.state import Status


def test_keys_are_sorted_and_no_space_is_written() -> None:
    assert canonical({"b": [1, "é", None], "a": {"d": True, "c": 0.5}}) == (
        '{"a":{"c":0.5,"d":true},"b":[1,"é",null]}'
    )


@given(json_values())
def test_the_text_is_the_value_in_json(value: Json) -> None:
    assert json.loads(canonical(value)) == value


def test_a_graph_has_the_size_of_the_json_that_it_is_sent_as() -> None:
    graph = chain("a", "bcd")

    assert graph.size == len(json.dumps(asdict(graph), separators=(",", ":")))
    assert chain("a", "bcde").size > graph.size


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Status.RUNNING, "running"),
        (1, 1.0),
        (0, -0.0),
        (-7, -7.0),
        ([1], (1.0,)),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
    ],
)
def test_values_that_mean_the_same_are_the_same(one: Json, other: Json) -> None:
    assert canonical(one) == canonical(other)
    assert sha256(one) == sha256(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(True, 1), (False, 0), (None, False), ("1", 1), ([], {}), (0.1, 0.2), ("", None)],
)
def test_values_that_mean_something_else_are_different(one: Json, other: Json) -> None:
    assert sha256(one) != sha256(other)


def test_a_float_is_written_as_an_integer_only_where_it_is_exactly_one() -> None:
    assert canonical(2.0**53 - 1) == "9007199254740991"
    assert canonical(2.0**53) == "9007199254740992.0"


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}])
def test_numbers_that_json_does_not_have_are_refused(value: Json) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical(value)


@pytest.mark.parametrize(
    ("value", "told"),
    [({1: 2}, "the key 1"), ({"a": {None: 1}}, "the key None"), ({1, 2}, "set"), (b"", "bytes")],
)
def test_a_value_that_is_not_json_is_refused_by_its_type_or_key(value: Json, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        canonical(value)


def test_a_hash_says_by_what_it_was_made() -> None:
    digest = hashlib.sha256(b'{"a":1}').hexdigest()

    assert sha256({"a": 1}) == f"sha256:{digest}"


@given(json_values())
def test_the_size_is_that_of_what_is_sent(value: Json) -> None:
    assert size(value) == len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


@given(st.lists(json_values()))
def test_the_size_of_several_values_is_that_of_each_together(values: list[Json]) -> None:
    assert size_of_all(values) == sum(map(size, values))


def test_nan_and_infinity_have_a_size_before_they_are_refused() -> None:
    assert size([math.nan, -math.inf]) == len("[NaN,-Infinity]")


@pytest.mark.parametrize(
    "value", [json.loads("1e400"), json.loads("[NaN]"), "\ud800", {1: 2}, object()]
)
def test_a_value_that_cannot_be_written_as_json_has_a_fault(value: Json) -> None:
    assert why_not_json(value)


def nested(levels: int) -> Json:
    value: Json = 1
    for level in range(levels):
        value = [value] if level % 2 else {"inside": value}
    return value


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_too_deep_nesting_is_refused_without_breaking_the_stack(levels: int) -> None:
    told = f"nested in it deeper than {MAX_DEPTH} levels"

    assert why_not_json(nested(MAX_DEPTH)) is None
    assert told in (why_not_json(nested(levels)) or "")
    with pytest.raises(ValueError, match=told):
        sha256(nested(levels))


def test_a_time_ends_with_the_letter_of_utc() -> None:
    assert rfc3339(datetime(2026, 3, 2, 9, tzinfo=UTC)) == "2026-03-02T09:00:00Z"
    assert rfc3339(datetime(2026, 3, 2, 9, 0, 0, 250_000, UTC)) == "2026-03-02T09:00:00.250000Z"
