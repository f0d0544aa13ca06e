"""`abeyance list` and `abeyance inbox`."""

from typing import Any

import pytest
from command_line import Terminal
from dev_stack import Stack, until

NAMES = ["listed-1", "listed-2", "listed-3"]


@pytest.fixture(scope="module")
def three(standing: Stack) -> list[str]:
    """Start three runs; return the ids of their questions."""
    return [standing.start(name, amount=number) for number, name in enumerate(NAMES)]


def listed(terminal: Terminal, *arguments: str, names: list[str]) -> Any:
    """Return the list once it holds these runs and no other: visibility is a moment behind."""

    def look() -> Any:
        found = terminal.told("list", *arguments)
        return found if [view["run_id"] for view in found["items"]] == names else None

    return until(look, f"{names} to be listed")


def test_runs_are_listed_newest_first_and_page_by_page(
    terminal: Terminal, three: list[str]
) -> None:
    terminal.call("run", "sum", "--run-id", "page-1", "--label", "of=pages", "--conversation", "c")
    terminal.call("run", "sum", "--run-id", "page-2", "--label", "of=pages")
    both = ["page-2", "page-1"]
    assert listed(terminal, "--label", "of=pages", names=both)["next_cursor"] is None
    assert listed(terminal, "--conversation", "c", names=["page-1"])["items"][0]["labels"] == {
        "of": "pages"
    }

    first = listed(terminal, "--label", "of=pages", "--limit", "1", names=["page-2"])
    cursor = first["next_cursor"]
    listed(terminal, "--label", "of=pages", "--cursor", cursor, names=["page-1"])
    listed(terminal, "--label", "of=pages", "--limit", "1", "--all", names=both)

    code, out, err = terminal.call("list", "--label", "of=pages", "--limit", "1")
    assert code == 0
    assert "page-2" in out
    assert "page-1" not in out
    assert cursor in err
    assert "--all" in err


def test_a_list_for_a_person_is_a_table(terminal: Terminal, standing: Stack) -> None:
    standing.start("in-a-table")
    _, others, _ = terminal.call("list", "--status", "paused,halted", "--graph", "sum")
    assert "in-a-table" not in others

    def row() -> list[str]:
        code, out, err = terminal.call("list", "--status", "awaiting-input", "--limit", "1")
        assert (code, err.count("\n") <= 1) == (0, True)
        head, *rows = out.splitlines()
        assert head.split() == ["RUN", "STATUS", "GRAPH", "STARTED", "OPEN", "LABELS"]
        return next((line.split() for line in rows if line.startswith("in-a-table ")), [])

    run_id, status, graph, started, questions, labels = until(row, "the run to be listed")
    assert (run_id, status, graph, questions) == ("in-a-table", "awaiting-input", "sum", "1")
    assert started.endswith("Z")
    assert labels == "-"


def test_an_empty_list_says_so(terminal: Terminal) -> None:
    code, out, err = terminal.call("list", "--label", "nobody=has-it")

    assert (code, out.split(), err) == (0, ["runs", "no", "matches"], "")


def test_the_inbox_holds_the_open_questions_of_all_runs(
    terminal: Terminal, standing: Stack, three: list[str]
) -> None:
    assert standing.answer("listed-1", 1).status_code == 200

    def ours() -> bool:
        items = terminal.told("inbox", "--graph", "sum", "--all")["items"]
        found = [entry["id"] for entry in items if entry["run_id"] in NAMES]
        return sorted(found) == sorted(three[1:])

    assert until(ours, "the inbox to hold two of the three")
    _, out, _ = terminal.call("inbox", "--all")
    (row,) = [line for line in out.splitlines() if three[1] in line]
    assert row.split()[:3] == ["-", three[1], "-"]
    assert row.endswith("What to add to 2?")


def test_the_inbox_is_narrowed_by_capability_and_deadline(
    terminal: Terminal, three: list[str]
) -> None:
    assert terminal.told("inbox", "--capability", "vaults:open")["items"] == []
    # The questions have no deadline, so no deadline of theirs comes before a moment.
    assert terminal.told("inbox", "--before", "30d")["items"] == []
    assert terminal.told("inbox", "--before", "2100-01-01T00:00Z")["items"] == []
