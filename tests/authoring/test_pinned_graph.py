"""The graph that is pinned in a run has the schema of the input only where answers may set fields."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import chain, gate

from abeyance.core.spec import AskHuman, FunctionNode, GoTo, GraphSpec
from abeyance.runtime.graph_today import pinned


@pytest.mark.parametrize(
    ("spec", "lets"),
    [
        (chain("a", gate("ask")), False),
        (chain(FunctionNode(id="a", on_error=GoTo(node="b")), "b"), False),
        (chain("a", FunctionNode(id="b", on_error=AskHuman())), True),
        (chain("a", before=["a"]), True),
        (chain("a", after=["a"]), True),
    ],
)
def test_values_are_edited_where_somebody_looks_at_them_or_deals_with_a_failure(
    spec: GraphSpec, lets: bool
) -> None:
    schema = {"type": "object"}

    assert pinned(replace(spec, input_schema=schema)).input_schema == (schema if lets else None)
