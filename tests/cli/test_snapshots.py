"""The commands that migrate, retry and fork runs."""

from __future__ import annotations

import uuid

from command_line import Terminal
from dev_stack import Stack


def started(terminal: Terminal) -> tuple[str, str]:
    """Start a run that waits, and return its id and that of its question."""
    run_id = f"snap-{uuid.uuid4().hex[:8]}"
    view = terminal.told("run", "sum", "--run-id", run_id, "--wait")
    return run_id, view["interrupts"][0]["id"]


def test_a_fork_prints_its_id_and_what_it_asks(terminal: Terminal, standing: Stack) -> None:
    run_id, question = started(terminal)
    code, out, err = terminal.call("fork", run_id, "--run-id", f"{run_id}-b")
    told = terminal.told("fork", run_id)
    far = terminal.call("fork", run_id, "--back", "99")

    assert (code, err) == (0, "")
    assert f"{run_id}-b" in out
    (asked,) = told["interrupts"]
    assert (told["forked_from"], asked["id"] == question) == (run_id, False)
    assert standing.view(f"{run_id}-b", "awaiting-input")["forked_from"] == run_id
    assert far[0] == 3
    assert "no_such_past" in far[2]


def test_a_cancelled_run_is_retried(terminal: Terminal, standing: Stack) -> None:
    run_id, question = started(terminal)
    still_open = terminal.call("retry", run_id)
    terminal.told("cancel", run_id)
    standing.view(run_id, "cancelled")
    code, out, err = terminal.call("retry", run_id)
    again = standing.view(run_id, "awaiting-input")

    assert (still_open[0], "not_finished" in still_open[2]) == (3, True)
    assert (code, err) == (0, "")
    assert run_id in out
    assert [entry["id"] for entry in again["interrupts"]] == [question]


def test_one_run_or_all_of_a_graph_are_migrated(terminal: Terminal) -> None:
    run_id, _ = started(terminal)
    tried = terminal.told("migrate", run_id, "--dry-run")
    code, out, _ = terminal.call("migrate", run_id, "--patch", '{"nothing": 1}', "--dry-run")
    refused = terminal.call("migrate", run_id, "--patch", '{"nothing": 1}')

    assert (tried["dry_run"], tried["obstacles"], tried["before"]) == (True, [], tried["after"])
    assert (code, "obstacle" in out, "nothing was changed" in out) == (1, True, True)
    assert (refused[0], "cannot_migrate" in refused[2]) == (3, True)

    everything = terminal.told("migrate", "--graph", "sum", "--all")
    assert (everything["failed"], everything["succeeded"] > 0) == (0, True)
    code, out, _ = terminal.call("migrate", "--graph", "sum", "--all", "--dry-run")
    assert (code, "OUTCOME" in out, "can be migrated" in out) == (0, True, True)


def test_wrong_usage_calls_nothing(terminal: Terminal) -> None:
    for arguments in (
        ("migrate",),
        ("migrate", "--all"),
        ("migrate", "--graph", "sum"),
        ("migrate", "a", "--graph", "sum", "--all"),
        ("migrate", "a", "--map", "pay"),
        ("retry", "a", "--patch", "amount"),
        ("fork", "a", "--back", "-1"),
    ):
        assert terminal.call(*arguments)[0] == 2, arguments
