"""What the acts of the demo have in common: how they speak, and how they wait for a run."""

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
from abeyance.wire import InterruptView, RunView

T = TypeVar("T")

_PATIENCE: Final = 60.0


def say(label: str, text: str, *, gap: bool = False) -> None:
    """Tell one thing; a `gap` is an empty line after it."""
    show([Line(label, text)])
    if gap:
        print(flush=True)


def quote(text: str) -> None:
    """Show what somebody else wrote."""
    print()
    for line in readable(text).splitlines():
        print(f"    {line}")
    print(flush=True)


def short(path: Path) -> str:
    """A path as it is read from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


async def wait_for(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """What `look` finds, as soon as it does. Raises Unavailable if that takes a minute."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                if (found := await look()) is not None:
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unavailable(f"{_PATIENCE:g} s were not enough for {what}") from error


async def run_until(run: RunHandle, *statuses: str) -> RunView:
    """The view of a run that has one of these statuses, or has ended."""
    view = await run.wait(until=frozenset(statuses), timeout=_PATIENCE)
    if view.status in statuses or view.ended_at is not None:
        return view
    wanted = " or ".join(statuses)
    raise Unavailable(f"{_PATIENCE:g} s were not enough for the run to be {wanted}")


GRAPH: Final = "deleting_files"
FOLDER: Final = "ABEYANCE_EXAMPLE_FOLDER"
MODEL: Final = "ABEYANCE_EXAMPLE_MODEL"

_LOGS: Final = ("monday.log", "tuesday.log")
_OTHERS: Final = ("invoice-numbers.txt", "notes.txt")
_DAYS_OLD: Final = 9
_MOST_QUESTIONS: Final = 20


def can_be_played() -> bool:
    """Whether what agents need is installed."""
    return find_spec("pydantic_ai") is not None


def tell_that_it_is_skipped() -> None:
    """Say what the second act needs."""
    say("agents", "the second act, an agent that asks before it deletes files, is skipped:")
    say("", "agents need an extra that is not installed: pip install 'abeyance[agents]'", gap=True)


class Tidying:
    """A run of the agent over a stack that is up, in `folder`, which its worker knows by `FOLDER`."""

    def __init__(self, client: HttpClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._granted: set[str] = set()
        self._last_event: str | None = None
        self.run_id = ""

    async def play(self, answer: str | None) -> bool:
        """Tell the whole story. Returns whether exactly those files are gone that were granted."""
        say("agent", "second act: an agent tidies a folder, and a hook asks before it deletes")
        model = os.environ.get(MODEL)
        of = model or f"a script; {MODEL}=openai:gpt-5 and a key put a real one in its place"
        say("", f"its model is {of}", gap=True)
        self._litter()
        self.run_id = (await self._client.runs.start(GRAPH)).run_id
        run = self._client.run(self.run_id)
        say("run", f"{self.run_id} is started on {short(self._folder)}: {', '.join(self._left())}")
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
        # The last word about a file counts: the tool may ask about one that was granted to the hook.
        (self._granted.update if word == "y" else self._granted.difference_update)(names)
        (receipt,) = await run.respond(question.id, word)
        say(
            "answer", f"{word} by {receipt.answered_by}, accepted at {rfc3339(receipt.accepted_at)}"
        )

    def _is_right(self, view: RunView) -> bool:
        if view.status != "completed":
            why = view.error or view.reason
            say("error", f"the agent should have completed, and it is {view.status}: {why}")
            return False
        say("report", view.values["report"])
        left = self._left()
        say("left", ", ".join(left), gap=True)
        if {*left} != {*_LOGS, *_OTHERS} - self._granted:
            say("error", f"that is not what was answered: {sorted(self._granted)} were granted")
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
                    f"the model calls {calls}" if calls else "it answers",
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
        return sorted(each.name for each in self._folder.iterdir())


async def _ask_to_tidy() -> str:
    while True:
        word = await read_line("Your answer, y or n: ")
        if word is None:
            raise SettingsError("the terminal was closed before there was an answer")
        if word.lower() in ("y", "yes", "n", "no"):
            return word.lower()[0]
        print("Please type y or n.")


_BOTH_ACTS: Final = "examples.demo:graphs"
_FIRST_ACT: Final = "examples.invoices.graph:graph"
_GRAPH: Final = "invoices"
_SHOWN: Final = {"report.txt": 40, "pain.*.xml": 12, "ledger.csv": 3, "held.csv": 3}
"""The files that a run writes, and how many lines of each are shown."""
_WIDTH: Final = 100


async def run_demo(answer: str | None, *, ports: tuple[int, int, int | None]) -> bool | None:
    """Run the demo on a stack of its own, with an `answer` (approve or reject) or by asking for one.

    `ports` are those of the API, of Temporal and of its UI. Returns whether the run completed as it
    was answered, None if a signal came first. Raises SettingsError where it cannot run, and
    Unavailable if the stack cannot be kept up.
    """
    home = _checkout()
    if answer is None and not sys.stdin.isatty():
        raise SettingsError(
            "there is no terminal to ask in: give the answer with --answer approve or --answer reject"
        )
    # The ledger knows what was paid before, so every demo has a folder of its own.
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
                tell_that_it_is_skipped()
            ended.append(is_right)
            if answer is None:
                for run in runs:
                    tell_addresses(stack, run)
                await read_line(
                    "The stack stays up while you look at these addresses. Enter ends it. "
                )

    say("demo", "a company pays its invoices, and a person is asked first", gap=True)
    say("stack", "starting Temporal, a worker and the API ...")
    try:
        await with_stack(plan, story, announce=lambda text: say("stack", text))
    finally:
        _clear(data_dir, keep_logs=ended != [True])
        if not any(out.iterdir()):
            out.rmdir()
    return ended[0] if ended else None


class _Demo:
    """One run over a stack that is up."""

    def __init__(self, stack: Stack, client: HttpClient, folder: Path, out: Path) -> None:
        self._stack = stack
        self._client = client
        self._folder = folder
        self._out = out
        self.run_id = ""

    async def run(self, answer: str | None) -> bool:
        """Tell the whole story. Returns whether it ended as it was answered."""
        stack = self._stack
        shown = f", Temporal's UI {stack.ui_url}" if stack.ui_url else ""
        say("", f"they are up: API {stack.api_url}{shown},")
        say("", f"and what is asked stands in the inbox, {stack.inbox_url}", gap=True)
        await self._start()
        asked = await self._asked()
        await self._kill_the_worker(asked)
        approved, reason = await _ask() if answer is None else (answer == "approve", "")
        view = await self._answer(asked.interrupts[0].id, approved=approved, reason=reason)
        self._show_files()
        return self._is_right(view, approved=approved)

    async def _start(self) -> None:
        given = {"folder": str(self._folder), "out": str(self._out)}
        self.run_id = (await self._client.runs.start(_GRAPH, given)).run_id
        files = sum(file.suffix == ".xml" for file in self._folder.iterdir())
        say("run", f"{self.run_id} is started on {files} invoices in {short(self._folder)}")
        tell_addresses(self._stack, self.run_id)

    @property
    def _run(self) -> HttpRun:
        return self._client.run(self.run_id)

    async def _asked(self) -> RunView:
        view = await self._until("awaiting-input")
        question = view.interrupts[0]
        say("asks", "the invoices are read and checked; a person has to decide the rest:")
        lines = question.prompt.splitlines()
        quote("\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines))
        say(
            "", f"It waits until {_utc(question)} UTC; after that: {question.on_timeout}.", gap=True
        )
        return view

    async def _kill_the_worker(self, before: RunView) -> None:
        victim = self._stack.pid(WORKER)
        if victim is None:
            raise Unavailable("the worker has ended by itself before it could be killed")
        say("kill -9", f"now the worker is killed, in the middle of the wait: process {victim}")
        os.kill(victim, signal.SIGKILL)

        async def other() -> int | None:
            pid = self._stack.pid(WORKER)
            return pid if pid != victim else None

        async def told() -> RunView | None:
            view = await self._run.view()
            return None if view.degraded else view

        await wait_for(other, "another worker")
        after = await wait_for(told, "the other worker to answer")
        if after.interrupts != before.interrupts:
            raise Unavailable(f"the question of {self.run_id} did not survive: {after.interrupts}")
        if _visits(after) != _visits(before):
            raise Unavailable(f"{self.run_id} did work again that was done: {after.metrics}")
        question = after.interrupts[0].id
        say("survived", f"the question is open as before, under the same id: {question}")
        say("", "Nothing that was done is done again.", gap=True)

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
        say("end", f"{view.status} {took:.1f} s after the answer", gap=True)
        return view

    def _show_files(self) -> None:
        for pattern, most in _SHOWN.items():
            for file in sorted(self._out.glob(pattern)):
                lines = file.read_text("utf-8").splitlines()
                more = [f"... {len(lines)} lines in all"] if len(lines) > most else []
                say("wrote", short(file))
                quote("\n".join([*lines[:most], *more]))

    def _is_right(self, view: RunView, *, approved: bool) -> bool:
        if view.status != "completed":
            why = view.error or view.reason
            say("error", f"the run should have completed, and it is {view.status}: {why}")
            return False
        paid, has_ledger = view.values["paid"], (self._out / "ledger.csv").exists()
        if (paid > 0, has_ledger) != (approved, approved):
            say("error", f"that is not what was answered: {paid} invoices were paid")
            return False
        return True

    async def _until(self, status: str) -> RunView:
        view = await run_until(self._run, status)
        if status == "awaiting-input" and view.status != status:
            raise Unavailable(f"the run {self.run_id} ended before it asked: {view.error}")
        return view


def _utc(question: InterruptView) -> str:
    return "" if question.deadline is None else f"{question.deadline:%Y-%m-%dT%H:%M:%S}"


def _visits(view: RunView) -> int:
    return 0 if view.metrics is None else view.metrics.visits


def tell_addresses(stack: Stack, run: str) -> None:
    """Say where a run can be looked at."""
    page = stack.ui_page(run)
    say("", f"in the API  {stack.api_url}/runs/{run}", gap=page is None)
    if page is not None:
        say("", f"in Temporal {page}", gap=True)


async def _ask() -> tuple[bool, str]:
    """What the person at the terminal decides, and why."""
    while True:
        word = await read_line("Your answer, approve or reject: ")
        if word is None:
            raise SettingsError("the terminal was closed before there was an answer")
        if word.lower() in ("approve", "a", "reject", "r"):
            return word.lower().startswith("a"), await read_line("Why (may be empty): ") or ""
        print("Please type approve or reject.")


def _environment() -> dict[str, str]:
    # The settings of whoever tries it (tokens, limits, another app) are meant for something else.
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
        "the demo runs the example of the source code, which is not installed with the package: get "
        "the sources and run `make demo` in them"
    )


def _clear(data_dir: Path, *, keep_logs: bool) -> None:
    logs = data_dir / "logs"
    if keep_logs and [*logs.glob("*.log")]:
        say("logs", f"what happened is in {logs}")
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
            raise SettingsError(f"{folder} cannot be made: {error.strerror}") from error
        return folder
    raise SettingsError(f"a hundred demos were started in {Path.cwd()} in this second")
