"""Whether a graph lets people answer questions of the run itself with fields of its values."""

from __future__ import annotations

import pytest
from core_drive import chain, gate

from abeyance.core.spec import AskHuman, FunctionNode, GoTo, GraphSpec


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
    assert spec.lets_values_be_edited is lets
