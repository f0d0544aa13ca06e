"""Patches: how the changes of a visit are merged into the values."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from core_strategies import json_values
from hypothesis import given
from hypothesis import strategies as st

from abeyance.core.items import PatchError, contribution, kind_of, merged, misfits
from abeyance.core.json import Json
from abeyance.core.spec import FieldSpec, GraphSpec, Reducer

SPEC = GraphSpec(
    name="g",
    fields={
        "name": FieldSpec(),
        "log": FieldSpec(reducer="append"),
        "tags": FieldSpec(reducer="union"),
        "facts": FieldSpec(reducer="merge"),
        "total": FieldSpec(reducer="add"),
    },
)
OPEN = GraphSpec(name="g", open_values=True)


@pytest.mark.parametrize(
    ("field", "old", "new", "result"),
    [
        ("name", "a", "b", "b"),
        ("name", {"a": 1}, None, None),
        ("log", [1], [2, 1], [1, 2, 1]),
        ("log", None, [1], [1]),
        ("tags", [1, {"a": 1}], [{"a": 1.0}, 2, 1], [1, {"a": 1.0}, 2]),
        ("tags", None, [3, 3], [3]),
        ("facts", {"a": 1, "b": 1}, {"b": 2, "c": None}, {"a": 1, "b": 2, "c": None}),
        ("facts", None, {"a": 1}, {"a": 1}),
        ("total", 2, 3, 5),
        ("total", 2, -0.5, 1.5),
        ("total", None, 4, 4),
        ("total", "0.10", "0.20", "0.30"),
        ("total", None, "1.50", "1.50"),
        ("total", "12345678901234567890.1", "0.2", "12345678901234567890.3"),
    ],
)
def test_each_reducer_merges_in_its_own_way(field: str, old: Json, new: Json, result: Json) -> None:
    before = {"name": "kept"} if old is None else {"name": "kept", field: old}

    assert merged(SPEC, before, {field: new}) == {"name": "kept", field: result}


@pytest.mark.parametrize(
    ("field", "old", "new", "told"),
    [
        ("log", [1], "text", "'log' merges by 'append', which cannot combine a list with a str"),
        ("log", "text", [1], "'log' merges by 'append', which cannot combine a str with a list"),
        ("log", [1], None, "'log' merges by 'append', which cannot combine a list with a NoneType"),
        ("tags", {}, [1], "'tags' merges by 'union', which cannot combine a dict with a list"),
        ("facts", [], {}, "'facts' merges by 'merge', which cannot combine a list with a dict"),
        ("facts", {}, 1, "'facts' merges by 'merge', which cannot combine a dict with a int"),
        ("total", 1, "1", "'total' merges by 'add', which cannot combine a int with a str"),
        ("total", "1", 1, "'total' merges by 'add', which cannot combine a str with a int"),
        ("total", "1", "one", "'total' merges by 'add', which cannot combine a str with a str"),
        (
            "total",
            "1",
            "Infinity",
            "'total' merges by 'add', which cannot combine a str with a str",
        ),
        ("total", "1", "1e-2000", "'total' merges by 'add', which cannot combine a str with a str"),
        ("total", 1, True, "'total' merges by 'add', which cannot combine a int with a bool"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused_by_its_field(
    field: str, old: Json, new: Json, told: str
) -> None:
    with pytest.raises(PatchError, match=told):
        merged(SPEC, {field: old}, {field: new})


def test_unknown_fields_are_refused_all_at_once() -> None:
    with pytest.raises(PatchError) as error:
        merged(SPEC, {}, {"name": "a", "zeta": 1, "alpha": 2})

    assert str(error.value) == (
        "the patch sets 'alpha', 'zeta', but the state of graph 'g' has only the fields "
        "'name', 'log', 'tags', 'facts', 'total'"
    )


def test_a_state_without_fields_says_so() -> None:
    with pytest.raises(PatchError, match=r"has only the fields \(none\)$"):
        merged(GraphSpec(name="g"), {}, {"a": 1})


@pytest.mark.parametrize("value", [float("inf"), [float("nan")], {1: 2}])
def test_a_patch_that_is_not_json_is_refused(value: Json) -> None:
    with pytest.raises(PatchError, match="the field 'name' is not JSON"):
        merged(SPEC, {}, {"name": value})


@pytest.mark.parametrize(("old", "new"), [(1.7e308, 1.7e308), (10**400, 0.5)])
def test_a_sum_that_no_number_holds_is_refused(old: Json, new: Json) -> None:
    with pytest.raises(PatchError, match="'total' adds up to more than a number can hold"):
        merged(SPEC, {"total": old}, {"total": new})


@pytest.mark.parametrize(
    ("field", "before", "after", "contributed"),
    [
        ("name", "a", "b", "b"),
        ("log", [1], [1, 2], [2]),
        ("log", None, [1], [1]),
        ("log", [1], [2, 1], [2, 1]),
        ("log", 5, [1], [1]),
        ("total", 2, 5, 3),
        ("total", None, 4, 4),
        ("total", "0.10", "0.30", "0.20"),
        ("total", "one", "0.30", "0.30"),
        ("total", 10**400, 0.5, 0.5),
        ("new", [1], [1, 2], [1, 2]),
    ],
)
def test_the_contribution_of_a_nested_graph_is_the_difference(
    field: str, before: Json, after: Json, contributed: Json
) -> None:
    assert contribution(SPEC.fields.get(field), before, after) == contributed


@given(
    st.dictionaries(st.text(max_size=3), json_values()),
    st.dictionaries(st.text(max_size=3), json_values()),
)
def test_neither_the_values_nor_the_patch_are_touched(
    values: Mapping[str, Json], patch: Mapping[str, Json]
) -> None:
    before = (dict(values), dict(patch))

    assert merged(OPEN, values, patch) == {**values, **patch}
    assert (dict(values), dict(patch)) == before


@pytest.mark.parametrize("reducer", ["append", "union", "merge"])
def test_merging_does_not_change_the_values_before(reducer: Reducer) -> None:
    spec = GraphSpec(name="g", fields={"f": FieldSpec(reducer=reducer)})
    item: Json = {"a": 1} if reducer == "merge" else [1]
    first = merged(spec, {}, {"f": item})
    merged(spec, first, {"f": {"b": 2} if reducer == "merge" else [2]})

    assert first == {"f": item}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "boolean"),
        (1, "integer"),
        (1.0, "integer"),
        (1.5, "number"),
        ("1", "string"),
        ([1], "array"),
        ({"a": 1}, "object"),
    ],
)
def test_a_field_takes_the_kinds_of_json_that_it_may_be(value: Json, kind: str) -> None:
    other = "null" if kind == "string" else "string"
    spec = GraphSpec(name="g", fields={"f": FieldSpec(kinds=(kind,)), "any": FieldSpec()})
    strange = GraphSpec(name="g", fields={"f": FieldSpec(kinds=(other,))})

    assert kind_of(value) == kind
    assert misfits(replace(spec, open_values=True), {"f": value, "any": value, "new": value}) == {}
    assert misfits(strange, {"f": value}) == {"f": f"takes {other}, and not {kind}"}
