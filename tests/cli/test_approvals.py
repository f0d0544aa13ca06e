"""`abeyance approvals`."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from command_line import Terminal
from dev_stack import Stack, until

from abeyance.cli.approvals import row_cells

OURS = ("approvals", "--outcome", "answered", "--graph", "sum")


@pytest.fixture(scope="module")
def settled(standing: Stack) -> list[str]:
    """Answer three questions with 10, 20 and 30; return their ids, the newest first."""
    asked = [standing.start(f"reported-{number}", amount=number) for number in (1, 2, 3)]
    for number in (1, 2, 3):
        assert standing.answer(f"reported-{number}", 10 * number).status_code == 200
    return asked[::-1]


def report(terminal: Terminal, settled: list[str], *arguments: str) -> Any:
    """Return the report once it lists the three questions."""

    def look() -> Any:
        found = terminal.told(*OURS, *arguments)
        ids = [row["id"] for row in found["items"] if row["run_id"].startswith("reported-")]
        return found if ids == settled else None

    return until(look, "the report to have the answers")


def test_the_report_is_a_table_with_columns_and_sums(
    terminal: Terminal, settled: list[str]
) -> None:
    found = report(terminal, settled, "--fields", "answer", "--sum", "answer", "--all")
    oldest = found["items"][2]["at"]
    picked = ("--from", oldest, "--fields", "answer, payload.order", "--sum", "answer")

    code, out, err = terminal.call(*OURS, *picked, "--sum", "payload.cost", "--limit", "2")
    head, first, second, rows, total, _ = out.splitlines()

    assert code == 0
    assert head.split() == ["WHEN", "OUTCOME", "BY", "RUN", "QUESTION", "ANSWER", "PAYLOAD.ORDER"]
    assert first.split()[1:4] == ["answered", "local", "reported-3"]
    assert first.split()[-2:] == ["30", "-"]
    assert second.split()[-2:] == ["20", "-"]
    assert rows.split() == ["rows", "3"]
    assert total.split() == ["sum", "of", "answer:", "60", "in", "3", "rows"]
    assert "no row has payload.cost, payload.order" in err
    assert "add --all, or --cursor" in err


def test_a_row_says_that_it_was_rewound_and_who_else_has_voted() -> None:
    row: dict[str, Any] = {
        "at": "2026-03-02T09:00:00Z",
        "outcome": "approved",
        "run_id": "r",
        "name": "approve",
    }
    row |= {"by": "bob", "on_behalf_of": "cleo", "voters": ["ada", "bob"], "rewound_by": 17}

    assert row_cells(row, [])[1:3] == ("approved, rewound since", "bob for cleo with ada")


def test_the_whole_report_is_csv(terminal: Terminal, settled: list[str]) -> None:
    found = report(terminal, settled)
    oldest = found["items"][2]["at"]

    code, out, err = terminal.call(
        *OURS, "--from", oldest, "--limit", "1", "--csv", "--fields", "answer", "--sum", "answer"
    )
    head, *rows = csv.reader(io.StringIO(out, newline=""))

    assert code == 0
    assert [row[head.index("id")] for row in rows] == settled
    assert [row[-1] for row in rows] == ["30", "20", "10"]
    assert err.split()[1:] == ["sum", "of", "answer:", "60", "in", "3", "rows"]


def test_a_report_is_either_csv_or_json(terminal: Terminal) -> None:
    code, out, err = terminal.call("approvals", "--csv", "--json")

    assert (code, out) == (2, "")
    assert "--csv and --json: give one of them" in err
