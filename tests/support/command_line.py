"""The command line, as somebody uses it who has told it where the API is."""

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
        """The exit code of a command, and what it prints on both of its streams."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = run(arguments)
        return code, *self._capsys.readouterr()

    def told(self, *arguments: str, given: str = "") -> Any:
        """What a command prints with --json."""
        code, out, err = self.call(*arguments, "--json", given=given)
        assert (code, err) == (0, "")
        return json.loads(out)

    def lines(self, *arguments: str) -> list[Any]:
        """The same, of a command that prints one JSON object a line."""
        code, out, err = self.call(*arguments, "--json")
        assert (code, err) == (0, ""), err
        return [json.loads(line) for line in out.splitlines()]


async def called(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """A command in a thread, beside what this one serves."""
    # What is served here may look for its database meanwhile, for the first time.
    kept = {"ABEYANCE_DATABASE_URL": os.environ["ABEYANCE_DATABASE_URL"], **variables}
    done = await asyncio.to_thread(call, *arguments, **kept)
    return done.returncode, done.stdout, done.stderr
