"""`abeyance events` and `abeyance watch` follow a run, even if the connection to the API breaks."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from answering import Answering, answering
from command_line import Terminal
from dev_stack import Stack, command, until

from abeyance.http import events as follow

WHOLE = [
    "run.started",
    "node.started",
    "node.finished",
    "interrupt.opened",
    "run.awaiting_input",
    "interrupt.answered",
    "node.started",
    "node.finished",
    "run.completed",
]


@contextmanager
def begun(stack: Stack, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command in the background, with its output in a pipe."""
    with subprocess.Popen(
        command(*arguments),
        cwd=stack.place.folder,
        env={**stack.place.environment, "ABEYANCE_URL": stack.api, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_to(process: subprocess.Popen[str], word: str) -> list[str]:
    """Return the lines that a command prints, up to one with this word."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(f"it ended without {word!r}: {lines}")


def test_events_are_printed_one_a_line(terminal: Terminal, standing: Stack) -> None:
    question = standing.start("told")
    events = terminal.lines("events", "told")

    assert [event["type"] for event in events] == WHOLE[:5]
    code, out, err = terminal.call("events", "told")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[1] for line in lines] == WHOLE[:5]
    assert "graph:sum;node:double" in lines[1]
    assert question in lines[3]

    standing.answer("told", 2)
    standing.view("told", "completed")
    later = terminal.lines("events", "told", "--after", events[-1]["id"])
    assert [event["type"] for event in later] == WHOLE[5:]
    assert terminal.lines("events", "told", "--after", later[-1]["id"], "--follow") == []


@pytest.mark.slow
def test_watch_misses_and_repeats_nothing_when_the_api_is_killed(
    standing: Stack,
) -> None:
    standing.start("cut-off")
    with begun(standing, "watch", "cut-off", "--json") as process:
        before = read_to(process, "run.awaiting_input")
        standing.kill("api")
        until(lambda: answered(standing, "cut-off"), "the API to be back")
        after = read_to(process, "run.completed")
        assert process.wait(timeout=30) == 0

    events = [json.loads(line) for line in before + after]
    assert [event["type"] for event in events] == WHOLE
    assert len({event["id"] for event in events}) == len(WHOLE)


def answered(stack: Stack, run_id: str) -> bool:
    done = stack.place.call("respond", run_id, "2", ABEYANCE_URL=stack.api)
    assert done.returncode in (0, 4)
    return done.returncode == 0


def test_watch_prints_lines_without_a_terminal(terminal: Terminal, standing: Stack) -> None:
    standing.start("as-lines")
    standing.answer("as-lines", 2)

    code, out, err = terminal.call("watch", "as-lines")

    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == WHOLE


def test_to_watch_a_run_that_does_not_complete_is_exit_code_one(
    terminal: Terminal, standing: Stack
) -> None:
    standing.start("given-up")
    terminal.call("cancel", "given-up")

    code, out, _ = terminal.call("watch", "given-up")

    assert code == 1
    assert "run.cancelled" in out
    assert terminal.call("events", "given-up", "--follow")[0] == 0


def test_ctrl_c_ends_the_watching_and_leaves_the_run_alone(standing: Stack) -> None:
    standing.start("left-alone")
    with begun(standing, "watch", "left-alone") as process:
        read_to(process, "run.awaiting_input")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()

    assert standing.view("left-alone", "awaiting-input")["interrupts"] != []


def test_a_closed_pipe_ends_events_without_a_traceback(standing: Stack) -> None:
    standing.start("unread")
    with begun(standing, "events", "unread", "--follow") as process:
        read_to(process, "run.awaiting_input")
        assert process.stdout is not None
        process.stdout.close()
        standing.answer("unread", 1)
        assert process.wait(timeout=20) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""


def event(number: int, type_: str, **data: Any) -> dict[str, Any]:
    moment = "2026-03-05T09:00:00Z"
    return {"id": str(number), "time": moment, "type": type_, "run_id": "any", "data": data}


class Stranger(Answering):
    """A server in place of the API, which cuts off each stream after one event.

    `open_to` is the number of streams that it opens before it goes away for good.
    """

    open_to = 0
    asked: list[str | None]
    events: list[dict[str, Any]]

    def get(self) -> None:
        after = self.headers.get("Last-Event-ID")
        if not self.headers["Accept"].startswith("text/event-stream"):
            is_end = self.path.endswith(f"after={len(self.events)}")
            page: dict[str, Any] = {"items": [], "next_cursor": None if is_end else "1"}
            self.answer(200, page)
            return
        self.asked.append(after)
        if len(self.asked) > self.open_to:
            self.send_error(503)
            return
        waiting = [each for each in self.events if int(each["id"]) > int(after or 0)]
        text = "".join(f"id: {each['id']}\ndata: {json.dumps(each)}\n\n" for each in waiting[:1])
        self.answer(200, f": hello\n\n:\n\n{text}".encode(), kind="text/event-stream")


@pytest.fixture
def stranger(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Stranger]]:
    monkeypatch.setattr(follow, "_PAUSES", (0.01, 0.01, 0.01))

    class Own(Stranger):
        pass

    Own.asked = []
    Own.events = [
        event(1, "run.started"),
        event(2, "user.noted", text="one\u2028line\x85"),
        event(3, "run.completed"),
    ]

    with answering(Own) as url:
        terminal.set("ABEYANCE_URL", url)
        yield Own


def test_a_stream_that_ends_early_is_opened_again_after_the_last_event(
    terminal: Terminal, stranger: type[Stranger]
) -> None:
    stranger.open_to = 10

    code, out, err = terminal.call("events", "any", "--follow")

    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == [
        "run.started",
        "user.noted",
        "run.completed",
    ]
    assert stranger.asked == [None, "1", "2"]
    assert "reconnecting" in err


def test_a_stream_that_never_comes_back_is_given_up(
    terminal: Terminal, stranger: type[Stranger]
) -> None:
    stranger.open_to = 1

    code, out, err = terminal.call("events", "any", "--follow", "--json")

    assert code == 4
    assert json.loads(out)["type"] == "run.started"
    assert json.loads(err)["code"] == "unavailable"
    assert stranger.asked == [None, *["1"] * 3]


def test_a_stream_that_is_away_from_the_start_is_not_waited_for(
    terminal: Terminal, stranger: type[Stranger]
) -> None:
    assert terminal.call("events", "any", "--follow")[0] == 4
    assert stranger.asked == [None]


def test_events_without_a_run_are_those_of_all(terminal: Terminal, standing: Stack) -> None:
    question = standing.start("among-others")
    standing.start("another")
    events = terminal.lines("events")
    ours = [event for event in events if event["run_id"] == "among-others"]
    assert [event["type"] for event in ours] == WHOLE[:5]
    assert "another" in {event["run_id"] for event in events}

    opened = ("events", "--type", "interrupt.*", "--graph", "sum")
    code, out, err = terminal.call(*opened, "--after", ours[0]["id"])
    assert (code, err) == (0, "")
    assert question in out
    assert {line.split()[1] for line in out.splitlines()} == {"interrupt.opened"}
    with begun(standing, *opened, "--follow", "--after", ours[0]["id"]) as process:
        assert question in read_to(process, "among-others")[-1]
        standing.answer("among-others", 2)
        assert "among-others" in read_to(process, "interrupt.answered")[-1]

    assert terminal.call("events", "--capability", "nobody:has")[:2] == (0, "")
