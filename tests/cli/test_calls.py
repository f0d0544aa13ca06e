"""Commands over HTTP: their output, their refusals, and their exit codes."""

import json
import os
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from answering import Answering, answering
from command_line import Terminal
from dev_stack import Place, Stack, command

NOBODY = "http://127.0.0.1:1"


def test_a_run_is_started_looked_at_answered_and_read(terminal: Terminal, standing: Stack) -> None:
    started = terminal.told(
        *("run", "sum", "--run-id", "by-hand", "--label", "team=a", "--label", "note=x=y"),
        *("--input", "-", "--wait"),
        given='{"amount": 20}',
    )
    assert started["status"] == "awaiting-input"
    assert started["labels"] == {"team": "a", "note": "x=y"}

    (question,) = terminal.told("interrupts", "by-hand")["items"]
    assert question["prompt"] == "What to add to 40? "

    _, shown, _ = terminal.call("show", "by-hand")
    assert "awaiting-input" in shown
    assert f"abeyance respond {question['id']} 0" in shown

    (receipt,) = terminal.told("respond", question["id"], "2", "--note", "checked")["receipts"]
    assert (receipt["interrupt_id"], receipt["replayed"]) == (question["id"], False)
    standing.view("by-hand", "completed")

    assert terminal.told("result", "by-hand")["values"]["amount"] == 42
    assert '"amount": 42' in terminal.call("result", "by-hand")[1]
    _, settled, _ = terminal.call("interrupts", "by-hand", "--status", "all")
    assert "note checked" in settled
    code, again, _ = terminal.call("respond", question["id"], "--response", "2")
    assert (code, again.split(",")[0]) == (0, f"unchanged  {question['id']}")


def test_a_run_is_started_with_a_pause_before_a_node(terminal: Terminal, standing: Stack) -> None:
    options = ("--interrupt-before", "double", "--on-error", "interrupt", "--allow-concurrent")
    started = terminal.told("run", "sum", "--run-id", "asked-before", *options, "--wait")

    assert (started["status"], started["interrupts"][0]["kind"]) == ("awaiting-input", "static")


def test_a_run_is_paused_resumed_and_cancelled(terminal: Terminal, standing: Stack) -> None:
    standing.start("controlled")

    assert terminal.told("pause", "controlled", "--reason", "lunch")["pause"]["reason"] == "lunch"
    assert terminal.told("resume", "controlled")["paused"] is False
    code, _, _ = terminal.call("cancel", "controlled", "--now", "--reason", "enough")
    assert code == 0
    assert standing.view("controlled", "cancelled")["reason"] == "enough"


def test_to_wait_for_a_run_that_fails_shows_why_and_is_exit_code_one(terminal: Terminal) -> None:
    code, out, err = terminal.call("run", "sum", "--input", '{"amount": -1}', "--wait")

    assert (code, err) == (1, "")
    assert "failed" in out
    assert "nothing to double in -1" in out

    run_id = out.split()[1]
    code, out, err = terminal.call("result", run_id, "--json")
    assert (code, json.loads(out)["outcome"], err) == (1, "failed", "")


class Vanishing(Answering):
    """An API that starts a run and then stops answering."""

    def post(self) -> None:
        self.answer(201, {"run_id": "started-here", "status": "running"})

    def get(self) -> None:
        self.close_connection = True


class Interrupting(Vanishing):
    """An API that starts a run, and presses Ctrl-C at the next request."""

    def get(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        # Wait until the caller has gone.
        self.rfile.read(1)


@pytest.mark.parametrize(("api", "exit_code"), [(Vanishing, 4), (Interrupting, 130)])
def test_an_interrupted_wait_names_the_run_that_goes_on(
    terminal: Terminal, api: type[Vanishing], exit_code: int
) -> None:
    with answering(api) as url:
        terminal.set("ABEYANCE_URL", url)
        code, out, err = terminal.call("run", "sum", "--wait")

    assert (code, out) == (exit_code, "")
    assert "`abeyance watch started-here`" in err


class Naming(Answering):
    """An API that returns the name that its caller gives."""

    def get(self) -> None:
        self.answer(200, {"named": self.headers["X-Abeyance-Principal"]})


def test_a_command_names_its_caller_where_nobody_has_to_sign_in(terminal: Terminal) -> None:
    with answering(Naming) as url:
        terminal.set("ABEYANCE_URL", url)
        named = terminal.told("--as", "zoë", "show", "any")["named"]

    assert named.encode("latin-1").decode() == "zoë"


def test_text_of_a_run_cannot_repaint_the_terminal(terminal: Terminal, standing: Stack) -> None:
    standing.start("painted", label="\x1b[2J\u202esafe")

    assert "What to add to 2? <U+001B>[2J<U+202E>safe" in terminal.call("show", "painted")[1]


def test_json_output_has_no_control_characters_and_keeps_its_meaning(
    terminal: Terminal, standing: Stack
) -> None:
    label = "\x9b2J\x7f\u202esafe\u2066 größer"
    standing.start("painted-json", label=label)
    out = terminal.call("show", "painted-json", "--json")[1]

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out)
    assert "größer" in out
    assert label in json.loads(out)["interrupts"][0]["prompt"]


def test_a_refusal_with_json_is_the_problem_of_the_api(terminal: Terminal) -> None:
    code, out, err = terminal.call("show", "nobody", "--json")

    assert (code, out) == (3, "")
    problem = json.loads(err)
    assert (problem["code"], problem["status"]) == ("unknown_run", 404)


def test_a_local_refusal_with_json_is_the_problem_of_the_api(
    terminal: Terminal,
) -> None:
    code, out, err = terminal.call("show", "no\u202ebody", "--json")

    assert (code, out, err.isascii()) == (3, "", True)
    problem = json.loads(err)
    assert (problem["status"], problem["title"]) == (422, "Invalid run id")
    assert problem["type"] == "urn:abeyance:problem:invalid_run_id"
    assert problem["invalid_characters"] == ["\u202e"]


@pytest.mark.parametrize(
    "command",
    [
        "respond any yes",
        "graph check no_such_module:graph",
        "list --limit 0",
        "show any --colour",
        "run",
    ],
)
def test_wrong_usage_with_json_is_a_problem(terminal: Terminal, command: str) -> None:
    code, out, err = terminal.call(*command.split(), "--json")

    assert (code, out) == (2, "")
    problem = json.loads(err)
    assert (problem["code"], problem["type"]) == ("wrong_usage", "urn:abeyance:problem:wrong_usage")
    assert problem["title"]
    assert problem["detail"]


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "", "http://", "ftp://127.0.0.1", "http://127.0.0.1:99999", "http://[::1"],
)
def test_an_address_that_is_none_is_exit_code_two(terminal: Terminal, url: str) -> None:
    terminal.set("ABEYANCE_URL", url)

    code, _, err = terminal.call("show", "any")

    assert code == 2
    assert f"ABEYANCE_URL={url!r}" in err


def test_a_password_in_the_address_is_not_printed(terminal: Terminal) -> None:
    terminal.set("ABEYANCE_URL", "http://me:secret@127.0.0.1:1/")

    code, _, err = terminal.call("show", "any")

    assert code == 4
    assert "http://127.0.0.1:1 " in err
    assert "secret" not in err


def test_an_unusable_token_is_refused_and_not_shown(terminal: Terminal) -> None:
    terminal.set("ABEYANCE_TOKEN", "half a sec\nret")

    code, _, err = terminal.call("show", "any")

    assert code == 2
    assert "ABEYANCE_TOKEN" in err
    assert "half a sec" not in err


def test_an_unreachable_api_is_named_with_a_remedy(terminal: Terminal, standing: Stack) -> None:
    terminal.set("ABEYANCE_URL", NOBODY)
    # The proxy would answer in place of the API, but commands ask this machine without a proxy.
    terminal.set("HTTP_PROXY", standing.api)

    code, out, err = terminal.call("show", "any")

    assert (code, out) == (4, "")
    (line,) = err.splitlines()
    assert NOBODY in line
    assert "abeyance dev" in line


def test_setup_says_the_same_each_time_and_sets_the_retention(
    standing: Stack, tmp_path: Path
) -> None:
    file = tmp_path / "records.db"

    def setup(*arguments: str) -> list[str]:
        done = standing.place.call(
            "setup",
            *arguments,
            TEMPORAL_ADDRESS=standing.temporal,
            ABEYANCE_DATABASE_URL=f"sqlite:///{file}",
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert setup() == [
        "search attributes of 'default': already registered",
        f"records in {file}: created",
        "retention of 'default': 30 days",
    ]
    assert setup("--retention", "P40D")[1:] == [
        f"records in {file}: up to date",
        "retention of 'default': 40 days",
    ]
    (told,) = setup("--json")
    assert json.loads(told) == {
        "namespace": "default",
        "registered": [],
        "records": "up to date",
        "retention_days": 40,
    }


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a database of another application."""
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE accounts (id INTEGER)")
    return file


@pytest.mark.parametrize("name", ["worker", "api"])
def test_a_process_that_cannot_use_the_database_says_why_and_ends(
    place: Place, foreign: Path, name: str
) -> None:
    variables: dict[str, Any] = {
        "ABEYANCE_DATABASE_URL": f"sqlite:///{foreign}",
        "TEMPORAL_ADDRESS": "elsewhere:7233",
    }

    done = place.call(name, "sums:graph", **variables)

    assert (done.returncode, done.stdout) == (2, "")
    warning, fault = done.stderr.splitlines()
    # The worker warns because processes elsewhere would need these records too.
    assert f"the records are in the file {foreign}, and Temporal is at elsewhere:7233" in warning
    assert fault == (
        f"abeyance: ABEYANCE_DATABASE_URL: the database {foreign} has tables of something else: name a "
        "database that only Abeyance uses"
    )


def test_a_too_short_retention_is_refused_in_our_words(standing: Stack) -> None:
    done = standing.place.call("setup", "--retention", "3", TEMPORAL_ADDRESS=standing.temporal)

    assert done.returncode == 2
    assert "0:00:03 is too short: Temporal keeps ended runs for at least a day" in done.stderr


def test_the_versions_are_printed_without_an_api(terminal: Terminal) -> None:
    code, out, err = terminal.call("--version")

    assert (code, err) == (0, "")
    assert re.fullmatch(r"abeyance .+, temporalio \d+\.\d+\.\d+, Python 3\.\d+\.\d+\n", out)


def test_a_worker_waits_for_a_temporal_that_is_not_there_and_says_so_once(place: Place) -> None:
    with subprocess.Popen(
        command("worker", "sums:graph"),
        cwd=place.folder,
        env={**place.environment, "TEMPORAL_ADDRESS": "127.0.0.1:1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stderr is not None
        line = worker.stderr.readline()
        # Two seconds are longer than the pause between two attempts.
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(2)
        worker.terminate()
        rest = worker.stderr.read()

    assert "127.0.0.1:1" in line
    assert "the worker keeps trying" in line
    assert (worker.returncode, rest) == (0, "")


def test_setup_of_a_server_that_is_not_there_is_one_line(place: Place) -> None:
    done = place.call("setup", TEMPORAL_ADDRESS="127.0.0.1:1")

    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert "127.0.0.1:1" in line
