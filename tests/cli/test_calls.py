"""The commands over HTTP: what they print, what they refuse, and with which exit code."""

import io
import json
from typing import Any

import pytest
from dev_stack import Place, Stack

from abeyance.cli import run

NOBODY = "http://127.0.0.1:1"


class Terminal:
    """The command line, as somebody uses it who has told it where the API is."""

    def __init__(
        self, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.set("ABEYANCE_URL", url)

    def set(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)

    def call(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """The exit code of a command, and what it prints on both of its streams."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = run(arguments)
        return code, *self._capsys.readouterr()

    def told(self, *arguments: str, given: str = "") -> Any:
        """What a command prints with --json."""
        code, out, err = self.call(*arguments, "--json", given=given)
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def terminal(
    standing: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(standing.api, capsys, monkeypatch)


@pytest.fixture(scope="module")
def waiting(standing: Stack) -> str:
    """A run that waits for an answer, and is to be refused something."""
    standing.start("refusing", amount=7)
    return "refusing"


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
    code, again, _ = terminal.call("respond", question["id"], "--response", "2")
    assert (code, again.split(",")[0]) == (0, f"as before  {question['id']}")


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


def test_text_of_a_run_cannot_repaint_the_terminal(terminal: Terminal, standing: Stack) -> None:
    standing.start("painted", label="\x1b[2J\u202esafe")

    assert "What to add to 2? �[2J�safe" in terminal.call("show", "painted")[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nobody"], "unknown_run"),
        (["show", "no body"], "invalid_run_id"),
        (["result", "refusing"], "not_finished"),
        (["run", "nothing"], "unknown_graph"),
        (["run", "sum", "--input", '{"amount": "many"}'], "invalid_input"),
        (["run", "sum", "--run-id", "refusing"], "run_exists"),
        (["respond", "refusing", '"a text"'], "invalid_answer"),
        (["respond", "refusing.0123456789abcdef", "1"], "unknown_interrupt"),
        (["pause", "refusing", "--on-timeout", "later"], "invalid_body"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_refusal_is_a_readable_line_and_exit_code_one(
    terminal: Terminal, waiting: str, arguments: list[str], code: str
) -> None:
    exit_code, out, err = terminal.call(*arguments)

    assert (exit_code, out) == (1, "")
    first, *others = err.splitlines()
    assert first.startswith(f"abeyance: {code}: ")
    assert len(others) <= 1


def test_with_json_a_refusal_is_the_problem_of_the_api(terminal: Terminal) -> None:
    code, out, err = terminal.call("show", "nobody", "--json")

    assert code == 1
    assert json.loads(out)["code"] == "unknown_run"
    assert err.startswith("abeyance: unknown_run: ")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["respond", "any", "yes"], "is not JSON"),
        (["respond", "any"], "give one answer"),
        (["respond", "any", "1", "--response", "2"], "give one answer"),
        (["run", "sum", "--input", "@nothing.json"], "nothing.json cannot be read"),
        (["run", "sum", "--label", "team"], "write name=value"),
        (["run"], "Missing argument"),
        (["show", "any", "--colour"], "No such option"),
        (["setup", "--retention", "a while"], "'a while' is not a duration"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_usage_is_exit_code_two(terminal: Terminal, arguments: list[str], hint: str) -> None:
    code, out, err = terminal.call(*arguments)

    assert (code, out) == (2, "")
    assert hint in err


def test_an_address_that_is_none_is_exit_code_two(terminal: Terminal) -> None:
    terminal.set("ABEYANCE_URL", "localhost:8000")

    code, _, err = terminal.call("show", "any")

    assert code == 2
    assert "ABEYANCE_URL='localhost:8000'" in err


def test_where_nothing_answers_it_says_where_and_how_to_start_one(
    terminal: Terminal, standing: Stack
) -> None:
    terminal.set("ABEYANCE_URL", NOBODY)
    # It would answer for nobody: what is on this machine is asked without a proxy.
    terminal.set("HTTP_PROXY", standing.api)

    code, out, err = terminal.call("show", "any")

    assert (code, out) == (3, "")
    (line,) = err.splitlines()
    assert NOBODY in line
    assert "abeyance dev" in line


def test_an_address_of_something_else_is_told(terminal: Terminal, standing: Stack) -> None:
    terminal.set("ABEYANCE_URL", standing.ui)

    code, _, err = terminal.call("show", "any")

    assert code == 2
    assert standing.ui in err


def test_setup_says_the_same_each_time_and_sets_the_retention(standing: Stack) -> None:
    def setup(*arguments: str) -> list[str]:
        done = standing.place.run("setup", *arguments, TEMPORAL_ADDRESS=standing.temporal)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert setup() == [
        "search attributes of 'default': all are there",
        "retention of 'default': 30 days",
    ]
    assert setup("--retention", "P40D")[1] == "retention of 'default': 40 days"


def test_setup_of_a_server_that_is_not_there_is_one_line(place: Place) -> None:
    done = place.run("setup", TEMPORAL_ADDRESS="127.0.0.1:1")

    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "127.0.0.1:1" in line


def test_the_module_is_the_command_and_loads_nothing_to_explain_itself(place: Place) -> None:
    source = (
        "import sys, abeyance.cli\n"
        "code = abeyance.cli.run(['--help'])\n"
        "print(code, [name for name in ('fastapi', 'httpx', 'temporalio') if name in sys.modules])"
    )
    done = place.python("-c", source)

    for name in ("dev", "demo", "worker", "api", "setup", "run", "respond", "cancel"):
        assert f" {name} " in done.stdout
    assert done.stdout.splitlines()[-1] == "0 []"
    assert place.run("--help").returncode == 0
