"""The number of places of a schema, and the references that it may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_shapes import each_other

from abeyance.schemas.json_schema import loop_in, without_loops
from abeyance.schemas.places import MAX_PLACES, places_of, work_of

LATER = 4
"""The number of definitions of a drawn schema."""
_EXAMPLES = settings().max_examples // 8
"""The number of examples of schemas, which take long to draw."""


def parts(*references: str) -> st.SearchStrategy[Any]:
    """Return a strategy for schemas that may have these references."""
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
    """Draw a schema each of whose definitions refers only to later ones."""
    named = {
        f"d{number}": draw(parts(*(f"#/$defs/d{later}" for later in range(number + 1, LATER))))
        for number in range(LATER)
    }
    return {"allOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}], "$defs": named}


def expanded(schema: Any, root: Mapping[str, Any]) -> int:
    """Count the places of a schema in the slow way: anew for each reference."""
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
        assert places_of(schema).count == found
    else:
        with pytest.raises(ValueError, match="it has more than 10,000 places"):
            places_of(schema)


def test_a_long_way_of_references_that_leads_to_little_is_refused_as_well() -> None:
    way = {f"a{each}": {"allOf": [{"$ref": f"#/$defs/a{each + 1}"}]} for each in range(4_000)}
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        places_of({"$ref": "#/$defs/a0", "$defs": {**way, "a4000": {}}})


@pytest.mark.parametrize(
    ("schema", "reference", "cut"),
    [
        ({"$ref": "#"}, "#", {}),
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, "#", {"anyOf": [{}, {"type": "string"}]}),
        (
            {
                "properties": {"tree": {"$ref": "#/$defs/n"}, "s": {"$ref": "#/$defs/s"}},
                "$defs": {
                    "n": {"items": {"$ref": "#/$defs/n"}, "not": {"$ref": "#/$defs/s"}},
                    "s": {"type": "string"},
                },
            },
            "#/$defs/n",
            {
                "properties": {"tree": {"$ref": "#/$defs/n"}, "s": {"$ref": "#/$defs/s"}},
                "$defs": {
                    "n": {"items": {}, "not": {"$ref": "#/$defs/s"}},
                    "s": {"type": "string"},
                },
            },
        ),
    ],
)
def test_only_the_references_that_lead_back_are_cut(schema: Any, reference: str, cut: Any) -> None:
    assert loop_in(schema) == reference
    assert without_loops(schema) == cut
    assert loop_in(cut) is None


def test_kinds_that_may_contain_each_other_are_few_places_without_what_leads_back() -> None:
    assert places_of(each_other(40)).count < 200


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$ref": "#/$defs/b", "$defs": {"a": {}}}, "'#/\\$defs/b' leads to no schema"),
        ({"$ref": "#/enum/0", "enum": [5]}, "leads to no schema"),
        ({"$ref": "#/allOf/00", "allOf": [{}]}, "leads to no schema"),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}}, "write it as '#/\\$defs/<name>'"),
        ({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}}, "use '\\$ref'"),
        ({"$ref": "https://example.com"}, "outside of the schema"),
        ({"$ref": 5}, "outside of the schema"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "https://a.example", "items": {}}}},
            "a part of it has an '\\$id' of its own",
        ),
    ],
)
def test_a_reference_leads_to_one_place_in_the_schema(schema: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        places_of(schema)


@pytest.mark.parametrize("reference", ["#/$defs/a", "#/%24defs/a"])
def test_a_reference_leads_where_the_validator_finds_it(reference: str) -> None:
    schema = {
        "$id": "https://a.example/b",
        "properties": {"a": {"$ref": reference}},
        "$defs": {"a": {"enum": [1, 2]}},
    }
    assert places_of(schema).count == 1 + 1 + 1 + 3
    assert jsonschema_rs.is_valid(schema, {"a": 1})
    assert not jsonschema_rs.is_valid(schema, {"a": 3})


@pytest.mark.parametrize(
    ("pattern", "work"),
    [
        ("^[A-Z]{2}[0-9]+$", 6),
        (r"(?:x{1,30}){1,30}y", 1_311),
        (r"(?:x{1,100}){1,100}y", 10_001),
        (r"^(?=.*[A-Z]).{8,}$", None),
        (r"(\w)\1", None),
        ("(", None),
    ],
)
def test_the_work_of_a_pattern_grows_with_its_size(pattern: str, work: int | None) -> None:
    assert work_of(pattern) == work


def test_patterns_that_are_large_together_are_refused() -> None:
    large = [{"pattern": f"^(?:x{{1,100}}){{1,{number}}}$"} for number in range(80, 97)]
    with pytest.raises(ValueError, match="its patterns are too large: use maxLength"):
        places_of({"anyOf": large})
