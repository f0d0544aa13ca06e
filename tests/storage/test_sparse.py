"""Records are written without default values, and read back as they were."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from core_strategies import graphs, json_values
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from abeyance.core.bounds import RetryPolicy
from abeyance.core.effects import VisitInput
from abeyance.core.outcome import Failed, Finished
from abeyance.core.spec import FunctionNode, GraphSpec
from abeyance.storage import sparse
from abeyance.wire import StartRun, VisitReport


@given(graphs())
def test_every_graph_is_read_as_it_was(graph: GraphSpec) -> None:
    assert TypeAdapter(GraphSpec).validate_json(sparse.written(graph)) == graph


@given(st.dictionaries(st.text(max_size=3), json_values(), max_size=3))
def test_every_value_of_a_visit_and_of_its_report_is_read_as_it_was(values: dict[str, Any]) -> None:
    visit = VisitInput(run_id="r", graph="g", node="n", address="a", values=values)
    report = VisitReport(outcome=Finished(patch=values), took=0.0)

    assert TypeAdapter(VisitInput).validate_json(sparse.written(visit)) == visit
    assert VisitReport.model_validate_json(sparse.written(report)) == report


def test_defaults_are_not_written_except_kinds_of_unions() -> None:
    node = FunctionNode(id="pay", retry=RetryPolicy(retries=0))
    graph = GraphSpec(name="g", nodes={"pay": node})
    failed = VisitReport(outcome=Failed(code="node_failed", message="No."))

    assert json.loads(sparse.written(StartRun(run_id="r"))) == {"run_id": "r"}
    assert json.loads(sparse.written(graph)) == {
        "name": "g",
        "nodes": {"pay": {"kind": "function", "id": "pay", "retry": {"retries": 0}}},
    }
    assert json.loads(sparse.written(failed))["outcome"].keys() >= {"kind", "code", "message"}


def test_a_value_that_only_equals_the_default_is_written() -> None:
    @dataclass(frozen=True)
    class Odd:
        number: Any = 0
        many: Any = field(default_factory=list)

    assert json.loads(sparse.written(Odd(number=False, many=()))) == {"number": False, "many": []}
    assert json.loads(sparse.written(Odd())) == {}
