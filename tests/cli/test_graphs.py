"""`abeyance graph check` and `abeyance graph show`."""

import json
import sys
from pathlib import Path

import pytest
from command_line import Terminal
from dev_stack import Stack

FAULTY = """\
id: triage
nodes:
  - {id: classify, kind: no_such_code, colour: red}
  - {id: gate, kind: interrupt, config: {prompt: Well, timeout: PT5X}}
edges: [[START, classify], [classify]]
"""
SOUND = "nodes: [{id: gate, kind: interrupt, config: {prompt: Well}}]\n"
MODULE = """\
from abeyance import END, START, Graph

print("imported")
sound = Graph("sound")
sound.interrupt("ask", prompt="Well?")
sound.edge(START, "ask")
sound.edge("ask", END)
faulty = Graph("faulty")
faulty.edge("x", "y")
idle = Graph("idle")
idle.node(name="a")(lambda: None)
graphs = [sound, faulty, "drawn.yaml", "triage.yaml", idle]
pair = [sound, "drawn.yaml"]
"""


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "triage.yaml": FAULTY,
        "drawn.yaml": SOUND,
        "charted.py": MODULE,
        "building.py": f"{MODULE}\nfaulty.build()",
        "raising.py": "\nraise RuntimeError('no database\\nhere')",
        "leaving.py": "raise SystemExit(0)",
        "garbled.py": "def (",
        "tooled.py": "\nfrom abeyance import tool\n@tool(retries=-1)\ndef pay(amount: int): ...",
        "voting.py": "\nfrom abeyance import Quorum\nQuorum(0)",
        "serving.py": "\nfrom abeyance import McpServer\nMcpServer()",
        "loading.py": "\nfrom abeyance import load\nload('absent.yaml')",
        "lacking.py": "import no_such_module_anywhere",
        "recursing.py": "def f(): f()\nf()",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.partition(".")[0], raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_all_faults_of_a_file_are_printed_each_with_its_line(terminal: Terminal) -> None:
    code, out, err = terminal.call("graph", "check", "triage.yaml")

    assert (code, err) == (1, "")
    places = [line.partition(": ")[0] for line in out.splitlines()]
    assert places == ["triage.yaml:3", "triage.yaml:3", "triage.yaml:4", "triage.yaml:5"]
    for word in ("'colour'", "no_such_code", "'PT5X'", "edges[1][1]"):
        assert word in out


def test_faults_as_json_have_the_line_as_a_number(terminal: Terminal) -> None:
    code, out, err = terminal.call("graph", "check", "triage.yaml", "--json")

    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["sound"] == []
    assert [fault["line"] for fault in told["faults"]] == [3, 3, 4, 5]
    assert {fault["graph"] for fault in told["faults"]} == {"triage.yaml"}


def test_a_faulty_graph_that_cannot_be_drawn_lists_all_faults(terminal: Terminal) -> None:
    code, out, err = terminal.call("graph", "show", "triage.yaml", "--json")

    assert (code, out) == (1, "")
    problem = json.loads(err)
    assert problem["code"] == "graph_faults"
    places = [fault.partition(": ")[0] for fault in problem["faults"]]
    assert places == ["triage.yaml:3", "triage.yaml:3", "triage.yaml:4", "triage.yaml:5"]


def test_a_sound_graph_is_exit_code_zero(terminal: Terminal) -> None:
    assert terminal.call("graph", "check", "drawn.yaml")[:2] == (
        0,
        "drawn: no faults (nodes: 1, edges: 1)\n",
    )


def test_faults_of_a_graph_in_python_name_their_lines(terminal: Terminal) -> None:
    code, out, _ = terminal.call("graph", "check", "building:faulty", "--json")
    told = json.loads(out)["faults"]

    number = MODULE.splitlines().index('faulty.edge("x", "y")') + 1
    assert code == 1
    assert [fault["line"] for fault in told if "the edge from" in fault["message"]] == [number] * 2
    assert f"(building.py, line {number})" in terminal.call("graph", "check", "building:faulty")[1]


def test_graph_check_prints_the_faults_of_all_graphs(terminal: Terminal) -> None:
    code, out, err = terminal.call("graph", "check", "charted:graphs", "--json")

    assert code == 1
    told = json.loads(out)
    assert {fault["graph"] for fault in told["faults"]} == {"faulty", "triage.yaml", "idle"}
    assert [graph["name"] for graph in told["sound"]] == ["sound", "drawn"]
    # The output of the module goes to standard error, where it does not spoil the JSON.
    assert err == "imported\n"


@pytest.mark.parametrize(
    ("app", "told"),
    [
        ("raising:graph", "RuntimeError: no database here"),
        ("leaving:graph", "SystemExit: 0"),
        ("garbled:graph", "SyntaxError: "),
        ("voting:graph", "Quorum, argument 1 should be greater than or equal to 1, not 0 ("),
        ("recursing:graph", "RecursionError: "),
    ],
)
def test_an_app_that_cannot_be_loaded_is_named_without_a_traceback(
    terminal: Terminal, app: str, told: str
) -> None:
    # All commands load graphs in the same way, with the same error.
    others = [("graph", "show"), ("worker", "--check")] if app.startswith("raising") else []
    for command in (("graph", "check"), *others):
        code, out, err = terminal.call(*command, app)

        assert (code, out.removeprefix("imported\n")) == (2, "")
        line = err.splitlines()[-1]
        assert line.startswith(f"abeyance: '{app}'")
        assert told in line
        assert "Traceback" not in err


def test_the_line_at_which_a_module_raised_is_named(terminal: Terminal) -> None:
    assert "raising.py, line 2)" in terminal.call("graph", "check", "raising:graph")[2]
    assert "garbled.py, line 1)" in terminal.call("graph", "check", "garbled:graph")[2]
    # The error names the line of the author's declaration, not a line of the package.
    for module in ("tooled", "voting", "serving", "loading"):
        assert f"{module}.py, line 3)" in terminal.call("graph", "check", f"{module}:graph")[2]


def test_a_file_is_drawn_as_mermaid(terminal: Terminal) -> None:
    code, out, err = terminal.call("graph", "show", "drawn.yaml")

    assert (code, err) == (0, "")
    assert out.startswith("flowchart TD\n")
    assert '{{"gate"}}' in out


def test_several_graphs_are_printed_under_their_names(terminal: Terminal) -> None:
    out = terminal.call("graph", "show", "charted:pair")[1]

    assert [line for line in out.splitlines() if line.startswith("%%")] == ["%% sound", "%% drawn"]
    assert out.count("flowchart TD") == 2


def test_a_graph_that_the_api_serves_is_drawn_by_its_name(
    terminal: Terminal, standing: Stack
) -> None:
    (drawn,) = terminal.told("graph", "show", "sum")["items"]
    assert drawn["name"] == "sum"
    assert '{{"ask"}}' in drawn["diagram"]
    assert terminal.call("graph", "show", "sum") == (0, drawn["diagram"], "")

    code, out, err = terminal.call("graph", "show", "product")
    assert (code, out) == (3, "")
    assert "unknown_graph" in err
