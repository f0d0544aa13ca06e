"""`abeyance demo`: two example runs on a temporary stack."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

import abeyance
from abeyance.cli.formatting import Line, read_line, readable, show
from abeyance.core.json import rfc3339
from abeyance.dev.stack import WORKER, Plan, Stack, with_stack
from abeyance.errors import SettingsError, Unavailable
from abeyance.handle import RunHandle
from abeyance.http import HttpClient, HttpRun
from abeyance.views import InterruptView, RunView

T = TypeVar("T")

_PATIENCE: Final = 60.0


def say(label: str, text: str, *, gap: bool = False) -> None:
    """Print a labelled line; `gap` adds an empty line."""
    show([Line(label, text)])
    if gap:
        print(flush=True)


def quote(text: str) -> None:
    """Print a text as a quotation."""
    print()
    for line in readable(text).splitlines():
        print(f"    {line}")
    print(flush=True)


def short(path: Path) -> str:
    """Return a path relative to the current directory, if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


async def wait_for(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Poll `look` until it returns a value. Raises Unavailable after a minute."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                if (result := await look()) is not None:
                    return result
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unavailable(f"timeout after {_PATIENCE:g} s, waiting for {what}") from error


async def run_until(run: RunHandle, *statuses: str) -> RunView:
    """Wait until a run has one of these statuses or has ended, and return its view."""
    view = await run.wait(until=frozenset(statuses), timeout=_PATIENCE)
    if view.status in statuses or view.ended_at is not None:
        return view
    expected = " or ".join(statuses)
    raise Unavailable(f"timeout after {_PATIENCE:g} s, waiting for the run to be {expected}")


GRAPH: Final = "deleting_files"
FOLDER: Final = "EXAMPLE_FOLDER"
MODEL: Final = "EXAMPLE_MODEL"

_LOGS: Final = ("monday.log", "tuesday.log")
_OTHERS: Final = ("invoice-numbers.txt", "notes.txt")
_DAYS_OLD: Final = 9
_MOST_QUESTIONS: Final = 20


def can_be_played() -> bool:
    """Return True if the extra for agents is installed."""
    return find_spec("pydantic_ai") is not None


def say_skipped() -> None:
    """Print why the second act is skipped."""
    say("agents", "skipping the second act, an agent that asks before it deletes files:")
    say("", "it needs an extra: pip install 'abeyance[agents]'", gap=True)


class Tidying:
    """The second act: the agent tidies `folder`, which its worker reads from `FOLDER`."""

    def __init__(self, client: HttpClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._granted: set[str] = set()
        self._last_event: str | None = None
        self.run_id = ""

    async def play(self, answer: str | None) -> bool:
        """Play the act. Return True if exactly the files approved for deletion are gone."""
        say("agent", "second act: an agent tidies a folder, and a hook asks before it deletes")
        model = os.environ.get(MODEL)
        of = model or f"scripted; set {MODEL}=openai:gpt-5 and an API key to use a real one"
        say("", f"its model is {of}", gap=True)
        self._litter()
        self.run_id = (await self._client.runs.start(GRAPH)).run_id
        run = self._client.run(self.run_id)
        say("run", f"{self.run_id} started on {short(self._folder)}: {', '.join(self._left())}")
        view = await self._until(run)
        for _ in range(_MOST_QUESTIONS):
            if view.status != "awaiting-input":
                break
            await self._answer(run, view.interrupts[0], answer)
            view = await self._until(run)
        return self._is_right(view)

    async def _answer(self, run: HttpRun, question: InterruptView, answer: str | None) -> None:
        say("asks", f"at {question.address.replace(';', ' > ')}:")
        quote(question.prompt)
        word = await _ask_to_tidy() if answer is None else ("y" if answer == "approve" else "n")
        names = (question.reason or {}).get("names", ())
        # The last answer about a file counts: the tool may ask again after the hook has.
        (self._granted.update if word == "y" else self._granted.difference_update)(names)
        (receipt,) = await run.respond(question.id, word)
        say(
            "answer", f"{word} by {receipt.answered_by}, accepted at {rfc3339(receipt.accepted_at)}"
        )

    def _is_right(self, view: RunView) -> bool:
        if view.status != "completed":
            why = view.error or view.reason
            say("error", f"the agent should have completed, but it is {view.status}: {why}")
            return False
        say("report", view.values["report"])
        left = self._left()
        say("left", ", ".join(left), gap=True)
        if {*left} != {*_LOGS, *_OTHERS} - self._granted:
            say(
                "error",
                f"the remaining files do not match the answers: {sorted(self._granted)} were approved",
            )
            return False
        return True

    async def _until(self, run: HttpRun) -> RunView:
        view = await run_until(run, "awaiting-input", "completed")
        async for event in run.events(after=self._last_event, follow=False):
            self._last_event = event.id
            if event.type == "model.turn":
                calls = ", ".join(event.data["calls"])
                say(
                    f"turn {event.data['turn']}",
                    f"the model calls {calls}" if calls else "the model answers",
                )
        return view

    def _litter(self) -> None:
        self._folder.mkdir()
        then = time.time() - _DAYS_OLD * 86_400
        for name in (*_LOGS, *_OTHERS):
            file = self._folder / name
            file.write_text(f"This is {name}, made for the demo.\n", "utf-8")
            os.utime(file, (then, then))

    def _left(self) -> list[str]:
        return sorted(file.name for file in self._folder.iterdir())


async def _ask_to_tidy() -> str:
    while True:
        word = await read_line("Your answer, y or n: ")
        if word is None:
            raise SettingsError("the terminal was closed without an answer")
        if word.lower() in ("y", "yes", "n", "no"):
            return word.lower()[0]
        print("Please type y or n.")


_BOTH_ACTS: Final = "examples.demo:graphs"
_FIRST_ACT: Final = "examples.invoices.graph:graph"
_GRAPH: Final = "invoices"
_SHOWN: Final = {"report.txt": 40, "pain.*.xml": 12, "ledger.csv": 3, "held.csv": 3}
"""The files that a run writes, and how many lines of each to print."""
_WIDTH: Final = 100


async def run_demo(answer: str | None, *, ports: tuple[int, int, int | None]) -> bool | None:
    """Run the demo on a temporary stack, with an `answer` (approve or reject) or by prompting for one.

    `ports` are those of the API, Temporal and its UI. Return True if the runs completed as answered,
    None if a signal stopped the demo. Raises SettingsError if the demo cannot run, and Unavailable if
    the stack fails.
    """
    home = _checkout()
    if answer is None and not sys.stdin.isatty():
        raise SettingsError("stdin is not a terminal: add --answer approve or --answer reject")
    # The ledger refuses to pay an invoice twice, so every demo gets its own folder.
    out = _fresh_folder()
    data_dir = Path(tempfile.mkdtemp(prefix="abeyance-demo-"))
    plan = Plan(
        app=_BOTH_ACTS if can_be_played() else _FIRST_ACT,
        api_port=ports[0],
        temporal_port=ports[1],
        ui_port=ports[2],
        data_dir=data_dir,
        in_memory=False,
        directory=home,
        environment=_environment() | {FOLDER: str(out / "litter")},
    )

    ended: list[bool] = []

    async def story(stack: Stack) -> None:
        async with HttpClient(stack.api_url) as client:
            demo = _Demo(stack, client, home / "examples" / _GRAPH / "sample", out)
            is_right = await demo.run(answer)
            runs = [demo.run_id]
            if can_be_played():
                tidying = Tidying(client, out / "litter")
                is_right = await tidying.play(answer) and is_right
                runs.append(tidying.run_id)
            else:
                say_skipped()
            ended.append(is_right)
            if answer is None:
                for run in runs:
                    say_addresses(stack, run)
                await read_line(
                    "The stack stays up while you look at these addresses. Press Enter to stop it. "
                )

    say("demo", "a company pays its invoices, after a person approves", gap=True)
    say("stack", "starting Temporal, a worker and the API ...")
    try:
        await with_stack(plan, story, announce=lambda text: say("stack", text))
    finally:
        _clear(data_dir, keep_logs=ended != [True])
        if not any(out.iterdir()):
            out.rmdir()
    return ended[0] if ended else None


class _Demo:
    """The first act: invoices are paid after an approval, and the worker is killed meanwhile."""

    def __init__(self, stack: Stack, client: HttpClient, folder: Path, out: Path) -> None:
        self._stack = stack
        self._client = client
        self._folder = folder
        self._out = out
        self.run_id = ""

    async def run(self, answer: str | None) -> bool:
        """Play the act. Return True if it ended as answered."""
        stack = self._stack
        shown = f", Temporal's UI {stack.ui_url}" if stack.ui_url else ""
        say("", f"ready: API {stack.api_url}{shown}")
        say("", f"open questions are in the inbox, {stack.inbox_url}", gap=True)
        await self._start()
        before = await self._asked()
        await self._kill_the_worker(before)
        approved, reason = await _ask() if answer is None else (answer == "approve", "")
        view = await self._answer(before.interrupts[0].id, approved=approved, reason=reason)
        self._show_files()
        return self._is_right(view, approved=approved)

    async def _start(self) -> None:
        values = {"folder": str(self._folder), "out": str(self._out)}
        self.run_id = (await self._client.runs.start(_GRAPH, values)).run_id
        files = sum(file.suffix == ".xml" for file in self._folder.iterdir())
        say("run", f"{self.run_id} started on {files} invoices in {short(self._folder)}")
        say_addresses(self._stack, self.run_id)

    @property
    def _run(self) -> HttpRun:
        return self._client.run(self.run_id)

    async def _asked(self) -> RunView:
        view = await self._until("awaiting-input")
        question = view.interrupts[0]
        say("asks", "the invoices are read and checked; a person decides:")
        lines = question.prompt.splitlines()
        quote("\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines))
        say("", f"It waits until {_utc(question)} UTC, then: {question.on_timeout}.", gap=True)
        return view

    async def _kill_the_worker(self, before: RunView) -> None:
        victim = self._stack.pid(WORKER)
        if victim is None:
            raise Unavailable("the worker ended before the demo could kill it")
        say("kill -9", f"killing the worker while the run waits: process {victim}")
        os.kill(victim, signal.SIGKILL)

        async def other() -> int | None:
            pid = self._stack.pid(WORKER)
            return pid if pid != victim else None

        async def answering() -> RunView | None:
            view = await self._run.view()
            return None if view.degraded else view

        await wait_for(other, "another worker")
        after = await wait_for(answering, "the other worker to answer")
        if after.interrupts != before.interrupts:
            raise Unavailable(f"the question of {self.run_id} was lost: {after.interrupts}")
        if _visits(after) != _visits(before):
            raise Unavailable(f"{self.run_id} repeated finished work: {after.metrics}")
        question = after.interrupts[0].id
        say("survived", f"the question is still open, with the same id: {question}")
        say("", "No finished work is repeated.", gap=True)

    async def _answer(self, question: str, *, approved: bool, reason: str) -> RunView:
        answer = {"approved": approved, "reason": reason}
        answered_at = time.monotonic()
        (receipt,) = await self._run.respond(question, answer)
        word = "approved" if approved else "rejected"
        say(
            "answer", f"{word} by {receipt.answered_by}, accepted at {rfc3339(receipt.accepted_at)}"
        )
        view = await self._until("completed")
        took = time.monotonic() - answered_at
        say("end", f"{view.status}, {took:.1f} s after the answer", gap=True)
        return view

    def _show_files(self) -> None:
        for pattern, most in _SHOWN.items():
            for file in sorted(self._out.glob(pattern)):
                lines = file.read_text("utf-8").splitlines()
                more = [f"... {len(lines)} lines in total"] if len(lines) > most else []
                say("wrote", short(file))
                quote("\n".join([*lines[:most], *more]))

    def _is_right(self, view: RunView, *, approved: bool) -> bool:
        if view.status != "completed":
            why = view.error or view.reason
            say("error", f"the run should have completed, but it is {view.status}: {why}")
            return False
        paid, has_ledger = view.values["paid"], (self._out / "ledger.csv").exists()
        if (paid > 0, has_ledger) != (approved, approved):
            say("error", f"the result does not match the answer: {paid} invoices were paid")
            return False
        return True

    async def _until(self, status: str) -> RunView:
        view = await run_until(self._run, status)
        if status == "awaiting-input" and view.status != status:
            raise Unavailable(f"the run {self.run_id} ended without asking: {view.error}")
        return view


def _utc(question: InterruptView) -> str:
    return "" if question.deadline is None else f"{question.deadline:%Y-%m-%dT%H:%M:%S}"


def _visits(view: RunView) -> int:
    return 0 if view.metrics is None else view.metrics.visits


def say_addresses(stack: Stack, run: str) -> None:
    """Print the addresses of a run."""
    page = stack.ui_page(run)
    say("", f"API         {stack.api_url}/runs/{run}", gap=page is None)
    if page is not None:
        say("", f"Temporal UI {page}", gap=True)


async def _ask() -> tuple[bool, str]:
    """Prompt for the decision and its reason."""
    while True:
        word = await read_line("Your answer, approve or reject: ")
        if word is None:
            raise SettingsError("the terminal was closed without an answer")
        if word.lower() in ("approve", "a", "reject", "r"):
            return word.lower().startswith("a"), await read_line("Why (may be empty): ") or ""
        print("Please type approve or reject.")


def _environment() -> dict[str, str]:
    # The user's own settings (tokens, limits, another app) do not apply to the demo.
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("ABEYANCE_") or name == MODEL
    }


def _checkout() -> Path:
    home = Path(abeyance.__file__).resolve().parent.parent
    for folder in (home, Path.cwd()):
        if (folder / "examples" / _GRAPH / "graph.py").is_file():
            return folder
    raise SettingsError(
        "the demo needs the examples, which are not part of the package: clone the repository and "
        "run `make demo` in it"
    )


def _clear(data_dir: Path, *, keep_logs: bool) -> None:
    logs = data_dir / "logs"
    if keep_logs and [*logs.glob("*.log")]:
        say("logs", f"see {logs}")
    else:
        shutil.rmtree(data_dir)


def _fresh_folder() -> Path:
    name = f"demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for number in range(1, 100):
        folder = Path.cwd() / "out" / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise SettingsError(f"{folder} cannot be created: {error.strerror}") from error
        return folder
    raise SettingsError(f"{Path.cwd()}/out has a hundred demos of this second: start it again")
