"""`load_graphs` finds the graphs that a process serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pydantic_settings
import pytest

from abeyance import Graph, GraphError
from abeyance.app import load_graphs
from abeyance.errors import SettingsError

SHOP = """
from abeyance import START, Graph

def graph(name):
    found = Graph(name)
    found.node(name="a")(lambda: None)
    found.edge(START, "a")
    return found

one = graph("one")
several = [one, graph("two")]
made = (graph(name) for name in ("three", "four"))
twice = [graph("one"), graph("one")]
mixed = [one, "two"]
by_name = {"one": one}
text = "one"
number = 5
nothing = None
empty = []
broken = Graph("broken")
broken.node(name="a")(lambda: None)
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a module `shop_of_a_test` into the current folder, and one that imports a missing module."""
    (tmp_path / "shop_of_a_test.py").write_text(SHOP)
    (tmp_path / "lame_shop_of_a_test.py").write_text("import no_such_module_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("shop_of_a_test", "lame_shop_of_a_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("attribute", "names"),
    [("one", ["one"]), ("several", ["one", "two"]), ("made", ["three", "four"])],
)
def test_an_attribute_may_be_a_graph_or_several(attribute: str, names: list[str]) -> None:
    found = load_graphs(f"shop_of_a_test:{attribute}")

    assert [*found] == names
    assert all(isinstance(graph, Graph) for graph in found.values())


@pytest.mark.parametrize(
    ("app", "told"),
    [
        (None, "no graphs to serve: set ABEYANCE_APP"),
        ("", "no graphs to serve: set ABEYANCE_APP"),
        ("shop_of_a_test", "'shop_of_a_test' does not name graphs: write package.module:attribute"),
        (":one", "':one' does not name graphs"),
        ("graphs.py/x:one", "does not name graphs"),
        ("./shop/graphs.py:one", ". Of that file: shop.graphs:one"),
        ("graphs.py", ". Of that file: graphs:graph"),
        ("no_such_module_anywhere:one", "the module 'no_such_module_anywhere' cannot be imported"),
        ("lame_shop_of_a_test:one", "No module named 'no_such_module_anywhere'"),
        ("shop_of_a_test:missing", "has no attribute 'missing'"),
        ("shop_of_a_test:nothing", "is a NoneType, not a graph; write package.module:attribute"),
        ("pathlib:Path", "is the class Path, not a graph; write package.module:attribute"),
        ("shop_of_a_test:text", "is a str, not a graph; write package.module:attribute"),
        ("shop_of_a_test:by_name", "is a dict, not a graph; write package.module:attribute"),
        ("shop_of_a_test:mixed", "holds a str; write package.module:attribute"),
        ("shop_of_a_test:twice", "holds two graphs named 'one'"),
        ("shop_of_a_test:empty", "holds no graph"),
    ],
)
def test_a_wrong_app_name_is_refused_with_a_remedy(app: str | None, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_graphs(app)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("imported", "lacking", "extra"),
    [
        ("abeyance.adapters.openai_agents", "agents", "openai-agents"),
        ("abeyance.adapters.langgraph", "langgraph", "langgraph"),
        ("holidays", "holidays", "people"),
    ],
)
def test_a_module_that_needs_an_extra_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: str, lacking: str, extra: str
) -> None:
    (tmp_path / "lame_shop_of_a_test.py").write_text(f"import {imported}")
    for name in [each for each in sys.modules if f"{each}.".startswith(f"{imported}.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.startswith(f"{lacking}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, lacking, None)

    with pytest.raises(SettingsError) as caught:
        load_graphs("lame_shop_of_a_test:one")

    assert str(caught.value).endswith(f"): pip install 'abeyance[{extra}]'")


def test_a_missing_module_with_the_name_of_another_needs_no_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)

    with pytest.raises(SettingsError, match="install it, or put it below"):
        load_graphs("holidays:graph")


def test_a_graph_with_faults_is_not_served() -> None:
    with pytest.raises(GraphError, match="nothing starts"):
        load_graphs("shop_of_a_test:broken")


def test_a_folder_of_the_users_hides_no_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pydantic_settings.py").write_text("one = 5")
    # The package is imported anew, even if other code has imported it, and restored afterwards.
    monkeypatch.setitem(sys.modules, "pydantic_settings", pydantic_settings)
    monkeypatch.delitem(sys.modules, "pydantic_settings")

    with pytest.raises(SettingsError, match="has no attribute 'one': it comes from "):
        load_graphs("pydantic_settings:one")
