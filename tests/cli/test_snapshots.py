"""The commands that migrate, retry and rewind runs."""

from __future__ import annotations

import json
import uuid
from typing import Any

from answering import Answering, answering
from command_line import Terminal
from dev_stack import Stack


def started(terminal: Terminal) -> tuple[str, str]:
    """Start a run that waits, and return its id and that of its question."""
    run_id = f"snap-{uuid.uuid4().hex[:8]}"
    view = terminal.told("run", "sum", "--run-id", run_id, "--wait")
    return run_id, view["interrupts"][0]["id"]


def test_a_cancelled_run_is_retried(terminal: Terminal, standing: Stack) -> None:
    run_id, question = started(terminal)
    terminal.told("cancel", run_id)
    standing.view(run_id, "cancelled")
    code, out, err = terminal.call("retry", run_id)
    again = standing.view(run_id, "awaiting-input")

    assert (code, err) == (0, "")
    assert run_id in out
    assert [entry["id"] for entry in again["interrupts"]] == [question]


def test_an_answered_run_is_rewound_to_its_question(terminal: Terminal, standing: Stack) -> None:
    run_id, question = started(terminal)
    _, nothing, _ = terminal.call("rewind", run_id, "--to", question)
    assert standing.answer(run_id, 2).status_code == 200
    standing.view(run_id, "completed")

    code, tried, _ = terminal.call("rewind", run_id, "--to", question, "--dry-run")
    assert standing.view(run_id, "completed")["status"] == "completed"
    done = terminal.told("rewind", run_id, "--to", question)
    again = standing.view(run_id, "awaiting-input")

    assert "nothing has happened since" in nothing
    assert (code, "interrupt.answered" in tried, "sum.add, once since" in tried) == (
        0,
        True,
        True,
    )
    assert done["effects"][0]["node"] == "sum.add"
    assert [entry["id"] for entry in again["interrupts"]] == [question]


def test_migrate_moves_one_run_or_all_of_a_graph(terminal: Terminal) -> None:
    run_id, _ = started(terminal)
    tried = terminal.told("migrate", run_id, "--dry-run")
    code, out, _ = terminal.call("migrate", run_id, "--patch", '{"nothing": 1}', "--dry-run")
    refused = terminal.call("migrate", run_id, "--patch", '{"nothing": 1}')

    assert (tried["dry_run"], tried["obstacles"], tried["before"]) == (True, [], tried["after"])
    assert (code, "obstacle" in out, "nothing was changed" in out) == (1, True, True)
    assert (refused[0], "cannot_migrate" in refused[2]) == (3, True)

    # One run refuses to map a name that it lacks. With `--all`, the name may be gone: a repeat must work.
    mapped = ("--map", "formerly=total")
    one = terminal.call("migrate", run_id, *mapped)
    assert (one[0], "cannot_migrate" in one[2]) == (3, True)
    everything = terminal.told("migrate", "--graph", "sum", "--all", "--pause", *mapped)
    outcomes = {each["run_id"]: each["outcome"] for each in everything["results"]}
    assert (everything["failed"], outcomes[run_id]) == (0, "unchanged")
    code, out, _ = terminal.call("migrate", "--graph", "sum", "--all", "--dry-run", *mapped)
    assert (code, "OUTCOME" in out, "unchanged" in out) == (0, True, True)
    code, out, _ = terminal.call("migrate", "--graph", "smu", "--all")
    assert (code, "no run of 'smu' is open" in out) == (0, True)


class Partly(Answering):
    """An API. No worker can read the run `a`; `c` has the graph of today, and its code does not end."""

    def get(self) -> None:
        self.answer(200, {"items": [{"run_id": each} for each in "abc"], "next_cursor": None})

    def post(self) -> None:
        is_dry = json.loads(self.body())["dry_run"]
        code = {"what": "code", "name": "pay", "why": "it is under way", "remedy": "pause"}
        if self.path == "/runs/c/migrate" and not is_dry:
            self._refuse(409, "cannot_migrate", "it stays paused", obstacles=[code])
        elif self.path == "/runs/c/migrate":
            same = {"run_id": "c", "before": "2", "after": "2", "dry_run": True}
            self.answer(200, {**same, "obstacles": [code]})
        elif self.path == "/runs/a/migrate":
            self._refuse(503, "unavailable", "nobody can read it")
        else:
            done = {"run_id": "b", "before": "1", "after": "2", "dry_run": False, "obstacles": []}
            self.answer(200, done)

    def _refuse(self, status: int, code: str, detail: str, **about: Any) -> None:
        problem = {"code": code, "detail": detail, **about}
        self.answer(status, problem, kind="application/problem+json")


def test_a_run_that_no_worker_can_read_does_not_keep_the_others_from_being_migrated(
    terminal: Terminal,
) -> None:
    with answering(Partly) as url:
        terminal.set("ABEYANCE_URL", url)
        everything = ("migrate", "--graph", "sum", "--all", "--json")
        code, out, _ = terminal.call(*everything)
        _, patched, _ = terminal.call(*everything, "--patch", "{}")
        _, paused, _ = terminal.call(*everything, "--pause")

    results = {each["run_id"]: each["outcome"] for each in json.loads(out)["results"]}
    assert (code, results) == (1, {"a": "unavailable", "b": "migrated", "c": "unchanged"})
    *_, with_patch = json.loads(patched)["results"]
    *_, given_up = json.loads(paused)["results"]
    assert with_patch["detail"] == "code pay: it is under way"
    assert given_up["outcome"] == with_patch["outcome"] == "cannot_migrate"
    assert given_up["detail"] == "it stays paused"
