"""The commands about many runs, and about conversations."""

from __future__ import annotations

import json
import time
import uuid

import pytest
from command_line import Terminal
from dev_stack import Stack

from abeyance.cli import watch


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


def test_a_conversation_is_controlled(terminal: Terminal, standing: Stack) -> None:
    talk = f"talk {uuid.uuid4().hex[:8]}"
    (run_id,) = starts(terminal, 1, "--conversation", talk)
    busy, _, err = terminal.call("run", "sum", "--conversation", talk)
    assert busy == 3
    assert run_id in err

    assert terminal.told("conversation", "pause", talk, "--reason", "lunch")["runs"] == [run_id]
    assert standing.view(run_id, "paused")["pause"]["reason"] == "lunch"
    steered = terminal.told("conversation", "steer", talk, "hurry", "--message-id", "m1")
    assert (steered["runs"], steered["message_id"]) == ([run_id], "m1")
    assert terminal.told("conversation", "resume", talk)["count"] == 1
    code, out, _ = terminal.call("conversation", "interrupt", talk, "--now")
    assert (code, out.split()) == (0, ["interrupt", run_id])
    standing.view(run_id, "cancelled")
    code, out, _ = terminal.call("conversation", "interrupt", talk)
    assert (code, "no run of the conversation is active" in out) == (0, True)
    code, _, err = terminal.call("conversation", "steer", talk, "hurry", "--json")
    assert (code, json.loads(err)["code"]) == (3, "no_active_run")
    code, _, err = terminal.call("conversation", "interrupt", "..", "--json")
    assert (code, json.loads(err)["code"]) == (3, "invalid_body")


def test_evictions_are_counted(terminal: Terminal) -> None:
    assert terminal.told("evict", "--inactive-for", "300d") == {"evicted": 0, "runs": []}
    code, out, _ = terminal.call("evict", "--keep", "1000000")
    assert (code, out.split()) == (0, ["total", "0"])
    assert terminal.call("evict")[0] == 3
    assert terminal.call("evict", "--inactive-for", "a while")[0] == 3
    assert terminal.call("evict", "--inactive-for", "0")[0] == 3


def test_progress_is_drawn_where_somebody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with watch.progress("pause", 3) as done:
        done(3)
    assert capsys.readouterr() == ("", "")

    monkeypatch.setattr(watch, "can_draw", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with watch.progress("pause", 3) as done:
        done(2)
    out, err = capsys.readouterr()
    assert (out, "pause" in err, "2/3" in err) == ("", True, True)
    with watch.progress("pause", 3, is_quiet=True) as done:
        done(2)
    assert capsys.readouterr() == ("", "")
