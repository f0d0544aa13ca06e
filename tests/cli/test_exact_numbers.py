"""A number reaches the API with all its digits, in every argument of a command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer.main
from answering import Answering, answering
from command_line import Terminal

from abeyance.cli.main import commands

DIGITS = "1234567890123456789.89"
GIVEN = f'{{"it": [{DIGITS}, 12345678901234567890, 0.1, 1e-7, 12.50]}}'
SENT = {"it": [DIGITS, 12345678901234567890, 0.1, 1e-7, 12.5]}
"""A number that a float would change is sent as text, which a Decimal reads; others stay numbers."""
ASKED = "run-1.0123456789abcdef"
TAKES_JSON = {
    "respond answer": (["respond", ASKED, "{}"], ["response"]),
    "respond response": (["respond", ASKED, "--response", "{}"], ["response"]),
    "respond arguments": (
        ["respond", ASKED, "--approve", "--arguments", "{}"],
        ["response", "arguments"],
    ),
    "respond remember": (
        ["respond", ASKED, "--approve", "--remember", "{}"],
        ["response", "remember"],
    ),
    "respond result": (["respond", ASKED, "--result", "{}"], ["response", "result"]),
    "run input_": (["run", "sum", "--input", "{}"], ["input"]),
    "edit fields": (["edit", "run-1", "--version", "1", "x={}"], ["patch", "x"]),
    "steer params": (["steer", "run-1", "--action", "skip", "--params", "{}"], ["params"]),
    "steer metadata": (["steer", "run-1", "go", "--metadata", "{}"], ["metadata"]),
    "retry patch": (["retry", "run-1", "--patch", "{}"], ["patch"]),
    "migrate patch": (["migrate", "run-1", "--patch", "{}"], ["patch"]),
    "rewind patch": (["rewind", "run-1", "--to", "entry:1", "--patch", "{}"], ["patch"]),
}
"""Each argument that takes JSON, by its command: how a person gives it, and its place in the body."""


class Refusing(Answering):
    """An API that refuses everything."""

    received: ClassVar[list[Any]] = []

    def post(self) -> None:
        self.received.append(json.loads(self.body()))
        self.answer(400)


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with answering(Refusing) as url:
        yield url


def test_each_argument_that_takes_json_is_tried() -> None:
    named = {
        f"{name} {parameter.name}"
        for name, command in typer.main.get_group(commands).commands.items()
        for parameter in command.params
        if re.search("JSON|ANSWER", f"{parameter.metavar} {getattr(parameter, 'help', '')}")
        and parameter.name != "as_json"
    }

    assert named == {*TAKES_JSON}


@pytest.mark.parametrize("argument", TAKES_JSON)
def test_a_number_is_sent_with_all_its_digits(
    refusing: str,
    argument: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments, place = TAKES_JSON[argument]
    file = tmp_path / "given.json"
    file.write_text(GIVEN)
    # A grant is so short that the command does not read one from a file.
    for given in [GIVEN] if argument == "respond remember" else [GIVEN, f"@{file}", "-"]:
        terminal = Terminal(refusing, capsys, monkeypatch)
        terminal.call(*(each.replace("{}", given) for each in arguments), given=GIVEN)
        sent = Refusing.received.pop()
        for name in place:
            sent = sent[name]

        assert sent == SENT
        assert [type(each) for each in sent["it"]] == [str, int, float, float, float]
