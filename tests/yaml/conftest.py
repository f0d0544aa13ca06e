"""A folder with documents and the code that they name."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from yaml_documents import NODES, Faults, Load

from abeyance import Graph, GraphError, load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a module `triage_nodes`, one that cannot be imported, and documents
    of graphs that may be nested in others.
    """
    (tmp_path / "triage_nodes.py").write_text(NODES)
    (tmp_path / "lame_nodes.py").write_text("\nraise RuntimeError('out of order')\n")
    (tmp_path / "nested.yaml").write_text(
        "state: {text: str}\nnodes: [{id: say, kind: 'triage_nodes:say'}]\n"
    )
    (tmp_path / "faulty.yaml").write_text("nodes:\n  - {id: a, kind: 'triage_nodes:gone'}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("triage_nodes", "lame_nodes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.fixture
def loaded(folder: Path) -> Load:
    """Return a function that loads a document from its text."""

    def load_text(text: str, name: str = "triage.yaml") -> Graph:
        path = folder / name
        path.write_text(dedent(text), encoding="utf-8")
        return load(path)

    return load_text


@pytest.fixture
def faults(loaded: Load) -> Faults:
    """Return a function that lists the faults of a document that cannot be loaded."""

    def told(text: str) -> list[str]:
        with pytest.raises(GraphError) as caught:
            loaded(text)
        assert caught.value.graph.endswith("triage.yaml")
        return list(caught.value.faults)

    return told
