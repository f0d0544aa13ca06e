"""A value has one form: the schema that people see accepts what its type accepts and writes."""

from __future__ import annotations

import builtins
import datetime as dt
import decimal
import enum
import re
import typing
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import answer_samples as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from abeyance.schemas.answer_types import dumped, rewrites, written
from abeyance.schemas.json_schema import faults_of, schema_of

_WHOLE = st.integers(-(10**12), 10**12)
_TIMES = st.times() | st.times(timezones=st.just(UTC))
_ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=3))]
)
_EARLY = datetime(2, 1, 1)  # noqa: DTZ001 its strategy adds the zone
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: _WHOLE,
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: _TEXTS,
    types.Percent: st.integers(0, 100),
    types.Ratio: st.floats(0, 1),
    types.Code: st.from_regex(r"[A-Z]{3}", fullmatch=True),
    bytes: _TEXTS.map(str.encode),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    types.Money: st.decimals(Decimal("0.01"), 10**9, places=2),
    types.Amount: st.decimals(-(10**9), 10**9, places=4),
    date: st.dates(),
    time: _TIMES,
    timedelta: st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)),
    datetime: st.datetimes() | st.datetimes(timezones=_ZONES, min_value=_EARLY),
    types.Naive: st.datetimes(),
    types.Aware: st.datetimes(timezones=_ZONES, min_value=_EARLY),
    types.Coming: st.dates(date(9000, 1, 1)),
    types.Gone: st.dates(max_value=date(2020, 1, 1)),
    types.Size: st.sampled_from(types.Size),
    types.Level: st.sampled_from(types.Level),
    Literal["yes", "no", 3]: st.sampled_from(["yes", "no", 3]),
    types.Pet: st.builds(types.Cat) | st.builds(types.Dog, name=_TEXTS),
    types.Untagged: st.integers() | st.dates() | st.builds(types.Dog, name=_TEXTS),
    types.Share: st.builds(types.Share, percent=st.integers(0, 50).map(lambda half: 2 * half)),
    types.Decision: st.builds(types.Decision, isApproved=st.booleans()),
    types.Strict: st.builds(
        types.Strict, count=_WHOLE, at=st.dates(), much=st.just(Decimal("1.50"))
    ),
    types.Bill: st.builds(
        types.Bill,
        amount=st.decimals(Decimal("0.01"), 1000, places=2),
        due=st.none() | st.dates(),
        lines=st.lists(st.builds(types.Decision, isApproved=st.booleans()), max_size=3),
    ),
    list[types.Money]: st.lists(st.decimals(Decimal("0.01"), 10, places=2), max_size=4),
    dict[str, timedelta]: st.dictionaries(_TEXTS, st.timedeltas(), max_size=3),
    dict[date, int]: st.dictionaries(st.dates(), _WHOLE, max_size=3),
    set[date]: st.sets(st.dates(), max_size=4),
    tuple[int, time]: st.tuples(_WHOLE, st.times()),
    date | None: st.none() | st.dates(),
}
"""Strategies for the values of each answer type that the documentation names."""


@pytest.mark.parametrize("type_", _VALUES, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_value_written_by_a_type_can_be_sent_back_unchanged(type_: Any, data: Any) -> None:
    value = data.draw(_VALUES[type_])
    shown = dumped(TypeAdapter(type_), value)

    assert faults_of(schema_of(type_), shown) == ()
    assert written(type_, shown) == shown


@pytest.mark.parametrize("type_", [type_ for type_ in _VALUES if not rewrites(type_)], ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_type_that_does_not_rewrite_answers_keeps_them_as_they_were_sent(
    type_: Any, data: Any
) -> None:
    sent = dumped(TypeAdapter(type_), data.draw(_VALUES[type_]))

    assert written(type_, sent) == sent


def test_ordinary_answers_cost_no_rewriting() -> None:
    class Plain(BaseModel):
        ok: bool
        count: int | None
        words: list[str]
        by_name: dict[str, float]
        size: types.Size

    ordinary = [
        bool,
        int,
        float,
        str,
        Literal["a", "b"],
        types.Size,
        Plain,
        list[Plain],
        str | None,
    ]

    assert [type_ for type_ in ordinary if rewrites(type_)] == []
    assert [
        type_ for type_ in (Decimal, time, UUID, types.Share, types.Cat) if not rewrites(type_)
    ] == []


@pytest.mark.parametrize("zone", ["", "Z", "z", "+02:00", "-05:00", "+0530"])
@pytest.mark.parametrize("text", ["2026-01-31T10:00", "2026-01-31 10:00:00.25"])
def test_people_see_that_a_time_without_a_zone_takes_none(text: str, zone: str) -> None:
    assert bool(faults_of(schema_of(types.Naive), f"{text}{zone}")) is bool(zone)
    assert faults_of(schema_of(datetime), f"{text}{zone}") == ()


def test_a_time_with_a_forbidden_zone_is_refused_with_an_example() -> None:
    (fault,) = faults_of(schema_of(types.Naive), "2027-01-01T10:00:00Z")

    assert fault.message == (
        "a time without a zone is needed, such as 2026-01-31T10:00:00: 2027-01-01T10:00:00Z"
    )


_PAGE = Path(__file__).parents[2] / "docs/how-to/interrupts.md"
_NAMESPACES = (builtins, dt, decimal, enum, typing, uuid)


def named_types() -> set[Any]:
    """Return the types that the documentation of answers names."""
    _, _, answers = _PAGE.read_text("utf-8").partition("\n## Answers\n")
    names = re.findall(r"`(\w+)`", answers.partition("\n## ")[0])
    found = {getattr(module, name, None) for name in names for module in _NAMESPACES}
    return {each for each in found if isinstance(each, type) or each in (Literal, Annotated)}


def kinds_of(type_: Any) -> set[Any]:
    """Return the types that a sample of this type stands for."""
    origin, parts = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        return {Annotated, *kinds_of(parts[0])}
    if origin is not None:
        return {origin}
    return {type_, *(each for each in (enum.Enum, enum.IntEnum) if issubclass(type_, each))}


@pytest.mark.parametrize(
    "samples", [[*_VALUES], [type_ for type_, *_ in types.SENT]], ids=["shown", "sent"]
)
def test_each_type_that_the_documentation_of_answers_names_is_tried(samples: list[Any]) -> None:
    named = named_types()

    assert named >= {bool, Decimal, time, list, Literal, Annotated, enum.IntEnum}
    assert named - set().union(*map(kinds_of, samples)) == set()
