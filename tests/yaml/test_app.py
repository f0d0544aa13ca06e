"""A process may serve graphs that are written in YAML."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from abeyance import GraphError
from abeyance.app import load_graphs
from abeyance.errors import SettingsError

ONE = 'nodes: [{id: a, kind: "triage_nodes:nothing"}]'
APP = """
from pathlib import Path
from abeyance import START, Graph

two = Graph("two")
two.node(name="a")(lambda: None)
two.edge(START, "a")
both = ["graphs/one.yaml", two]
path = Path("graphs/one.yaml")
missing = ["graphs/missing.yml"]
twice = ["graphs/one.yaml", "graphs/one.yaml"]
"""


@pytest.fixture(autouse=True)
def graphs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "graphs").mkdir()
    (folder / "graphs" / "one.yaml").write_text(ONE)
    (folder / "app_of_a_test.py").write_text(APP)
    monkeypatch.delitem(sys.modules, "app_of_a_test", raising=False)


@pytest.mark.parametrize(
    ("app", "names"),
    [
        ("graphs/one.yaml", ["one"]),
        ("./graphs/one.yaml", ["one"]),
        ("app_of_a_test:both", ["one", "two"]),
        ("app_of_a_test:path", ["one"]),
    ],
)
def test_a_path_stands_for_the_graph_in_it(app: str, names: list[str]) -> None:
    assert [*load_graphs(app)] == names


@pytest.mark.parametrize(
    ("app", "told"),
    [
        ("missing.yaml", "'missing.yaml': the file 'missing.yaml' cannot be read"),
        ("app_of_a_test:missing", "the file 'graphs/missing.yml' cannot be read"),
        ("app_of_a_test:twice", "holds two graphs named 'one'"),
    ],
)
def test_a_path_without_a_graph_is_refused(app: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_graphs(app)
    assert told in str(caught.value)


def test_a_document_with_faults_is_not_served(folder: Path) -> None:
    (folder / "faulty.yaml").write_text("nodes: [{id: a}]")

    with pytest.raises(GraphError, match="line 1: 'kind' is missing"):
        load_graphs("faulty.yaml")
