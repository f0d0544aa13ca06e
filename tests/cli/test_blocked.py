"""A blocked run at a terminal: in each command, and in the output of `abeyance dev`."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from command_line import Terminal
from dev_stack import Stack, until
from screen import Screen

REMEDY = "pip install 'abeyance[s3]'"


@contextmanager
def installed(standing: Stack) -> Iterator[None]:
    """Let the node find its package for a while."""
    file = standing.place.folder / "installed"
    file.touch()
    try:
        yield
    finally:
        file.unlink()


@pytest.fixture
def blocked(terminal: Terminal, standing: Stack) -> Iterator[str]:
    """Start a run whose node lacks a package until a file is there."""
    run_id = f"blocked-{uuid.uuid4().hex[:8]}"
    values = '{"label": "export"}'
    code, out, _ = terminal.call("run", "sum", "--run-id", run_id, "--input", values, "--wait")
    assert code == 5
    assert REMEDY in out
    yield run_id
    with installed(standing):
        standing.view(run_id, "awaiting-input")


def test_every_command_that_shows_a_run_says_that_it_is_blocked_and_what_to_do(
    terminal: Terminal, standing: Stack, blocked: str
) -> None:
    _, shown, _ = terminal.call("show", blocked)
    (line,) = [line for line in shown.splitlines() if line.startswith("blocked")]
    assert REMEDY in line
    assert "node.blocked" in terminal.call("events", blocked)[1]

    def is_listed() -> bool:
        _, out, _ = terminal.call("list", "--blocked")
        return [line.split()[0] for line in out.splitlines()] == ["RUN", blocked]

    until(is_listed, "the run to be listed")
    assert "1 run is blocked: see `abeyance list --blocked`" in terminal.call("inbox")[2]


def test_the_terminal_of_dev_repeats_what_its_worker_says_of_a_blocked_visit(
    standing: Stack, blocked: str
) -> None:
    def echoes() -> list[str]:
        lines = standing.errors.read_text().splitlines()
        return [line for line in lines if blocked in line]

    (line,) = until(echoes, "dev to say it")
    assert line.startswith("abeyance: ")
    assert "the visit is blocked" in line
    assert REMEDY in line


def test_watch_shows_what_blocks_a_run_and_when_it_goes_on(standing: Stack, blocked: str) -> None:
    screen = Screen(standing, "watch", blocked)
    try:
        until(partial(screen.shows, "this worker lacks 'boto3'"), "the reason")
        with installed(standing):
            until(partial(screen.shows, "node.unblocked"), "the end of it")
    finally:
        screen.close()
