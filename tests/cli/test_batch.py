"""The commands about many runs, and about conversations."""

from __future__ import annotations

import time
import uuid

import pytest
from command_line import Terminal
from dev_stack import Stack


def starts(terminal: Terminal, count: int, *options: str) -> list[str]:
    runs = [f"bulk-{uuid.uuid4().hex[:8]}" for _ in range(count)]
    for run_id in runs:
        terminal.told("run", "sum", "--run-id", run_id, "--wait", *options)
    return runs


def until_listed(terminal: Terminal, run_id: str, label: str) -> None:
    deadline = time.monotonic() + 40
    while run_id not in terminal.call("list", "--label", label)[1]:
        assert time.monotonic() < deadline, f"{run_id} is not listed"


def test_many_runs_are_controlled_by_their_ids(terminal: Terminal, standing: Stack) -> None:
    one, two = starts(terminal, 2)
    code, out, err = terminal.call("batch", "pause", "--run", one, "--run", two)
    assert (code, err) == (0, "")
    assert "applied to 2 of 2 runs" in out
    assert standing.view(one, "paused")["run_id"] == one

    code, out, _ = terminal.call("batch", "resume", "--run", one, "--run", "never-was")
    assert code == 1
    assert "applied to 1 of 2 runs" in out
    assert "never-was  unknown_run: There is no run" in out

    given = terminal.told(
        *("batch", "respond", "--run", "-", "--body", '{"response": 3}'), given=f"{one}\n{two}\n"
    )
    assert (given["succeeded"], given["failed"]) == (2, 0)
    standing.view(one, "completed")


def test_a_filter_is_worked_through_to_its_end(
    terminal: Terminal, standing: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = f"team={uuid.uuid4().hex[:8]}"
    runs = starts(terminal, 5, "--label", team)
    for run_id in runs:
        until_listed(terminal, run_id, team)
    monkeypatch.setattr("abeyance.cli.batch._CHUNK", 2)
    told = terminal.told("batch", "cancel", "--label", team, "--body", '{"reason": "over"}')

    assert sorted(result["run_id"] for result in told["results"]) == sorted(runs)
    for run_id in runs:
        assert standing.view(run_id, "cancelled")["reason"] == "over"


def test_a_batch_of_no_runs_is_wrong_usage(terminal: Terminal) -> None:
    for arguments in (
        ("batch", "steer", "--run", "-", "--body", "-"),
        ("batch", "pause", "--run", "a", "--body", "reason"),
        ("batch", "explode", "--run", "a"),
    ):
        code, out, err = terminal.call(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ([], "no runs are selected: use either --run, or"),
        (
            ["--run", "a", "--graph", "sum"],
            "both ids and a filter select runs: use either --run, or",
        ),
        (["--run", "a", "--graph", ""], "both ids and a filter select runs: use either --run, or"),
        (["--run", ""], "--run: a run id is empty"),
        (["--run", "a", "--run", ""], "--run: a run id is empty"),
        (["--run", "-"], "--run -: stdin holds no run id"),
        (["--run", "a", "--body", "@"], "--body: write the name of a file after @"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_batch_says_why_it_has_no_runs(terminal: Terminal, options: list[str], hint: str) -> None:
    code, out, err = terminal.call("batch", "pause", *options)

    assert (code, out) == (2, "")
    assert hint in err


@pytest.mark.parametrize("name", ["status", "graph", "conversation", "label"])
def test_an_empty_filter_of_a_batch_is_refused_and_is_not_left_out(
    terminal: Terminal, name: str
) -> None:
    nobody = f"x={uuid.uuid4().hex}"
    code, out, err = terminal.call("batch", "cancel", "--label", nobody, f"--{name}", "")

    assert (code, out) == (3, ""), err
