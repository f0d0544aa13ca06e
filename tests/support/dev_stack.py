"""Stacks of `abeyance dev` that tests start, partly kill, and end; and the command line itself."""

from __future__ import annotations

import io
import os
import signal
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
import pytest
import typer.main

from abeyance.cli import main

T = TypeVar("T")

# Building all commands takes six times as long as running one, so a process builds them once.
_BUILT: Final = cache(typer.main.get_command)

ANY_PORTS: Final = ("--api-port", "0", "--temporal-port", "0", "--ui-port", "0")
_MARK: Final = "TEST_STACK"
"""A variable that every process of a stack inherits, so that tests find them whatever their parent is."""

GRAPHS: Final = """\
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from abeyance import END, START, Backoff, Context, Fatal, Graph


class Sum(BaseModel):
    amount: int = 1
    answer: int | None = None
    label: str = ""


graph = Graph("sum", state=Sum)


@graph.node
def double(state: Sum, ctx: Context) -> dict[str, Any]:
    if state.label == "export" and not Path("installed").exists():
        raise ModuleNotFoundError("No module named 'boto3'", name="boto3")
    if state.label == "bank":
        raise ConnectionError("the bank is away")
    if state.amount < 0:
        raise Fatal(f"nothing to double in {state.amount}")
    return {"amount": state.amount * 2}


@graph.node
def add(state: Sum, ctx: Context) -> dict[str, Any]:
    return {"amount": state.amount + (state.answer or 0)}


graph.interrupt("ask", prompt="What to add to {amount}? {label}", response=int, answer_to="answer")
graph.edge(START, "double")
graph.edge("double", "ask")
graph.edge("ask", "add")
graph.edge("add", END)
"""


class Place:
    """A folder with a module of graphs, in which commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sums.py").write_text(GRAPHS)
        self.environment: Mapping[str, str] = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("ABEYANCE_", "TEMPORAL_"))
        }

    def call(
        self, *arguments: str, given: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            return call(*arguments, given=given, **variables)

    def run(
        self, *arguments: str, given: str | None = None, seconds: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a separate process."""
        return self.python(*command(*arguments)[1:], given=given, seconds=seconds, **variables)

    def python(
        self, *arguments: str, given: str | None = None, seconds: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments to its end."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def stack(self, *arguments: str, data: str = "data") -> Stack:
        """Start a stack on a data directory."""
        return Stack(self, [*ANY_PORTS, "--data-dir", data, *arguments])


class Stack:
    """`abeyance dev` as a process, with everything that it has started."""

    def __init__(self, place: Place, options: list[str]) -> None:
        self.place = place
        self.mark = uuid.uuid4().hex
        self.errors = place.folder / f"errors-{self.mark}.txt"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command("dev", "sums:graph", *options),
                cwd=place.folder,
                env={**place.environment, _MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.line = ""
        # Tests use no TLS here, so an empty context saves reading all certificates.
        self.http = httpx.Client(timeout=30, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        try:
            self.line = self.process.stdout.readline()
            assert self.line, f"the stack did not start: {self.errors.read_text()}"
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def api(self) -> str:
        """The address of the API in the printed line."""
        return self.line.split("API ")[1].split(",")[0]

    @property
    def ui(self) -> str:
        """The address of Temporal's UI in the printed line, with `--ui`."""
        return self.line.split("UI ")[1].split(",")[0]

    @property
    def temporal(self) -> str:
        """The address of Temporal, from its command."""
        words = words_of(self.part("start-dev"))
        return f"127.0.0.1:{words[words.index('--port') + 1]}"

    def processes(self) -> dict[int, list[str]]:
        """Return every living process of the stack, with the words of its command."""
        return {pid: words for pid, words in living() if self.mark in variables_of(pid)}

    def part(self, word: str) -> int:
        """Return the process whose command has this word: `worker`, `api` or `start-dev`."""
        (found,) = [pid for pid, words in self.processes().items() if word in words]
        return found

    def kill(self, word: str) -> int:
        """Kill a part of the stack with SIGKILL, and wait until a new process replaces it."""
        victim = self.part(word)
        os.kill(victim, signal.SIGKILL)

        def other() -> int | None:
            found = [pid for pid, words in self.processes().items() if word in words]
            return next((pid for pid in found if pid != victim), None)

        return until(other, f"another {word}")

    def start(self, run_id: str, **values: Any) -> str:
        """Start a run and wait until it asks its question. Returns the question's id."""
        body = {"graph": "sum", "input": values, "run_id": run_id}
        assert self.http.post(f"{self.api}/runs", json=body).status_code == 201
        return str(self.view(run_id, "awaiting-input")["interrupts"][0]["id"])

    def view(self, run_id: str, status: str) -> dict[str, Any]:
        """Wait until the run has this status, and return its view."""
        seen: dict[str, Any] = {}

        def look() -> bool:
            seen.update(self.http.get(f"{self.api}/runs/{run_id}").json())
            return seen.get("status") == status

        try:
            until(look, f"{run_id} to be {status}")
        except AssertionError as error:
            error.add_note(f"It is {seen}.")
            raise
        return seen

    def answer(self, run_id: str, value: int) -> httpx.Response:
        """Answer the only open question of a run."""
        return self.http.post(f"{self.api}/runs/{run_id}/respond", json={"response": value})

    def end(self) -> None:
        """Kill every process of the stack, whatever state it is in."""
        self.http.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


def run(arguments: Sequence[str]) -> int:
    """Run a command in this process, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", _BUILT)
        return main.run(arguments)


def call(*arguments: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, which takes half a second less than a new process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in [*os.environ]:
            if name.startswith(("ABEYANCE_", "TEMPORAL_")):
                patch.delenv(name)
        for name, text in variables.items():
            patch.setenv(name, text)
        patch.setattr("sys.stdin", io.StringIO(given))
        code = run(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def command(*arguments: str) -> list[str]:
    """Return the command line that runs `abeyance`."""
    return [sys.executable, "-P", "-m", "abeyance", *arguments]


def until(look: Callable[[], T | None], what: str, *, seconds: float = 80) -> T:
    """Call `look` until it returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(pause)
        # `look` may be a slow call, so the pauses grow.
        pause = min(pause * 1.5, 0.15)
    raise AssertionError(f"waited {seconds} s for {what}")


def living() -> Iterator[tuple[int, list[str]]]:
    """Yield every living process on this machine that this user may read."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (words := words_of(int(entry.name))):
            yield int(entry.name), words


def words_of(pid: int) -> list[str]:
    """Return the words of a process's command, or nothing if the process has ended."""
    return _read(pid, "cmdline").split("\0")[:-1]


def variables_of(pid: int) -> str:
    """Return the environment with which a process was started."""
    return _read(pid, "environ")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace")
    except OSError:
        return ""
