"""How many places a schema has, and how much of it one answer makes a validator look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_shapes import doubled, each_other, nested

from abeyance.schemas.cost import MAX_PLACES, MAX_WORK, CostEstimator
from abeyance.schemas.patterns import pattern_of

LATER = 4
"""How many definitions a drawn schema has."""
_EXAMPLES = settings().max_examples // 4
"""Of what takes long to draw."""


def places(schema: Any) -> CostEstimator:
    found = CostEstimator(json.loads(json.dumps(schema)))
    found.prepare()
    return found


def parts(*references: str) -> st.SearchStrategy[Any]:
    """Schemas that refer to these."""
    leaf = st.sampled_from(
        [True, {}, {"type": "integer"}, *({"$ref": each} for each in references)]
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda each: {"anyOf": each}, st.lists(inner, min_size=1, max_size=3)),
            st.builds(lambda each: {"allOf": each}, st.lists(inner, min_size=1, max_size=2)),
            st.builds(lambda each: {"properties": {"a": each, "b": each}}, inner),
            st.builds(lambda one, two: {"items": one, "not": two}, inner, inner),
            st.builds(lambda one, two: {"if": one, "then": two, "enum": [1, 2]}, inner, inner),
        ),
        max_leaves=4,
    )


@st.composite
def expandable(draw: st.DrawFn) -> dict[str, Any]:
    """A schema each of whose definitions refers to later ones alone."""
    named = {
        f"d{number}": draw(parts(*(f"#/$defs/d{later}" for later in range(number + 1, LATER))))
        for number in range(LATER)
    }
    return {"allOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}], "$defs": named}


def expanded(schema: Any, root: Mapping[str, Any]) -> int:
    """The places of a schema, counted as nobody should: each time anew."""
    if isinstance(schema, bool):
        return 1
    inner = [*schema.get("anyOf", []), *schema.get("allOf", [])]
    inner += [schema[key] for key in ("items", "not", "if", "then") if key in schema]
    inner += schema.get("properties", {}).values()
    if "$ref" in schema:
        inner.append(root["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    listed = 1 + len(schema["enum"]) if "enum" in schema else 0
    return 1 + listed + sum(expanded(each, root) for each in inner)


@settings(max_examples=_EXAMPLES)
@given(schema=expandable())
def test_places_are_counted_as_if_each_reference_were_written_out(schema: Any) -> None:
    found = expanded(schema, schema)

    if found <= MAX_PLACES:
        assert places(schema).count == found
    else:
        with pytest.raises(ValueError, match=f"it has {found:,} places"):
            places(schema)


@pytest.mark.parametrize("levels", [34, 40, 45])
@pytest.mark.parametrize("word", ["anyOf", "allOf", "oneOf"])
def test_what_doubles_at_each_reference_has_too_many_places(levels: int, word: str) -> None:
    # The references and what they lead to: two of each for one of the level before.
    number = 2 ** (levels + 2) - 2
    told = f"{number:,}" if number < 10**12 else "more than 1,000,000,000,000"
    with pytest.raises(ValueError, match=f"it has {told} places with its references expanded"):
        places(doubled(levels, True, word))


def test_a_long_way_of_references_that_leads_to_little_is_refused_as_well() -> None:
    way = {f"a{each}": {"allOf": [{"$ref": f"#/$defs/a{each + 1}"}]} for each in range(4_000)}
    with pytest.raises(ValueError, match="deep for the same value"):
        places({"$ref": "#/$defs/a0", "$defs": {**way, "a4000": {}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#"}}},
        },
    ],
)
def test_what_refers_to_itself_for_the_same_value_has_no_end(schema: Any) -> None:
    with pytest.raises(ValueError, match="leads back to itself without end"):
        places(schema)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$ref": "#/$defs/b", "$defs": {"a": {}}}, "'#/\\$defs/b' leads to no schema"),
        ({"$ref": "#/enum/0", "enum": [5]}, "leads to no schema"),
        ({"$ref": "#/allOf/00", "allOf": [{}]}, "leads to no schema"),
        ({"$ref": "#here"}, "leads to no schema"),
        (
            {"$ref": "#a", "$defs": {"one": {"$anchor": "a"}, "two": {"$dynamicAnchor": "a"}}},
            "or to several",
        ),
        ({"$ref": "https://example.com"}, "outside of the schema"),
        ({"$ref": 5}, "outside of the schema"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "https://a.example", "items": {}}}},
            "a part with an '\\$id' of its own",
        ),
    ],
)
def test_a_reference_leads_to_one_place_in_the_schema(schema: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        places(schema)


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/a",
        "#/%24defs/a",
        "#there",
        "https://a.example/b#/$defs/a",
        "https://a.example/b#there",
    ],
)
def test_references_are_found_in_all_ways_in_which_they_are_written(reference: str) -> None:
    schema = {
        "$id": "https://a.example/b",
        "properties": {"a": {"$ref": reference}},
        "$defs": {"a": {"$anchor": "there", "enum": [1, 2]}},
    }
    assert places(schema).count == 1 + 1 + 1 + 3
    assert jsonschema_rs.is_valid(schema, {"a": 1})
    assert not jsonschema_rs.is_valid(schema, {"a": 3})


@pytest.mark.parametrize("depth", [1, 3, 10, 45])
def test_objects_that_say_of_which_kind_they_are_may_be_nested_deep(depth: int) -> None:
    recursive = places(each_other(12, tagged=True))
    fits = nested(depth, {"kind": "k0"}, kind="k0")

    assert recursive.is_recursive
    assert recursive.work(fits) < 2_000 * (depth + 1)
    assert jsonschema_rs.is_valid(recursive.schema, fits)
    assert not jsonschema_rs.is_valid(recursive.schema, nested(depth, {"kind": "x"}, kind="k0"))


def test_objects_that_do_not_may_be_nested_as_deep_as_they_can_be_tried() -> None:
    recursive = places(each_other(4))

    assert recursive.work(nested(6, {})) > 4**6
    with pytest.raises(
        ValueError, match="too large or too deep to be validated against its schema"
    ):
        recursive.work(nested(15, {}))


values = st.recursive(
    st.sampled_from([None, 1, "k0", "k1", "x"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["kind", "of", "more"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@st.composite
def tagged(draw: st.DrawFn) -> dict[str, Any]:
    """A recursive schema whose objects often say of which kind they are."""
    kind = st.sampled_from(
        [{"const": "k0"}, {"const": "k1"}, {"enum": ["k0", "k1"]}, {"enum": ["k0", 1]}, True]
    )
    some = st.lists(
        st.sampled_from(
            [{"$ref": "#/$defs/k0"}, {"$ref": "#/$defs/k1"}, {"type": "integer"}, {"type": "null"}]
        ),
        min_size=1,
        max_size=3,
    )
    word = st.sampled_from(["anyOf", "oneOf"])
    bound = {"type": "object"} if draw(st.booleans()) else {}
    named = {
        name: {
            **bound,
            "properties": {"kind": draw(kind), "of": {draw(word): draw(some)}},
            "required": draw(st.sampled_from([[], ["kind"], ["of"]])),
        }
        for name in ("k0", "k1")
    }
    for name, part in named.items():
        part["items"] = {"$ref": f"#/$defs/{name}"}
    return {"oneOf": [{"$ref": "#/$defs/k0"}, {"$ref": "#/$defs/k1"}], "$defs": named}


@given(schema=tagged(), value=values)
def test_looking_at_the_kind_first_changes_nothing_of_what_fits(schema: Any, value: Any) -> None:
    prepared = places(schema)

    assert prepared.is_recursive
    assert jsonschema_rs.is_valid(prepared.schema, value) == jsonschema_rs.is_valid(schema, value)
    assert prepared.work(value) > 0


@settings(max_examples=_EXAMPLES)
@given(schema=expandable(), value=values)
def test_what_cannot_be_much_work_is_not_measured_and_never_more_than_was_thought(
    schema: Any, value: Any
) -> None:
    if expanded(schema, schema) > MAX_PLACES:
        return
    found = places(schema)
    thought = found.work(value, MAX_WORK)

    assert found.work(value, thought) == thought
    try:
        measured = found.work(value, thought - 1)
    except ValueError:
        measured = thought
    assert measured <= thought


@pytest.mark.parametrize(
    ("text", "size", "looks_around"),
    [
        ("^[A-Z]{2}[0-9]+$", 512, False),
        (r"(?:x{1,30}){1,30}y", 131_072, False),
        (r"(?:x{1,100}){1,100}y", 1_000_000, False),
        (r"^(?=.*[A-Z]).{8,}$", 1_000_000, True),
        (r"(\w)\1", 1_000_000, True),
    ],
)
def test_the_price_of_a_pattern_is_its_size(text: str, size: int, looks_around: bool) -> None:
    found = pattern_of(text)

    assert (found.size, found.looks_around) == (size, looks_around)
    assert found.cost == (1_000 if looks_around else 1 + size // 100)


def test_patterns_that_are_large_together_are_refused() -> None:
    large = [{"pattern": f"^(?:x{{1,100}}){{1,{number}}}$"} for number in range(80, 97)]
    with pytest.raises(ValueError, match="its patterns are too large: use maxLength"):
        places({"anyOf": large})
