"""The command line, with the API's URL in its environment."""

from __future__ import annotations

import asyncio
import io
import json
import os
from typing import Any

import pytest
from dev_stack import call, run


class Terminal:
    """Calls commands in this process, without a terminal."""

    def __init__(
        self, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.set("ABEYANCE_URL", url)

    def set(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)

    def call(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Run a command. Return its exit code, its stdout and its stderr."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = run(arguments)
        return code, *self._capsys.readouterr()

    def told(self, *arguments: str, given: str = "") -> Any:
        """Run a command with --json, and return the value that it prints."""
        code, out, err = self.call(*arguments, "--json", given=given)
        assert (code, err) == (0, "")
        return json.loads(out)

    def lines(self, *arguments: str) -> list[Any]:
        """Run a command with --json that prints one JSON value a line, and return the values."""
        code, out, err = self.call(*arguments, "--json")
        assert (code, err) == (0, ""), err
        return [json.loads(line) for line in out.splitlines()]


async def called(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a command in a thread, while this process serves. Return exit code, stdout and stderr."""
    # The command must keep the variable: the served code may look for its database meanwhile.
    kept = {"ABEYANCE_DATABASE_URL": os.environ["ABEYANCE_DATABASE_URL"], **variables}
    done = await asyncio.to_thread(call, *arguments, **kept)
    return done.returncode, done.stdout, done.stderr
