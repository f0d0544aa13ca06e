"""One payment run from beginning to end, with a worker killed while it waits for a person; then an agent.

Everything goes through the HTTP API, as it would for anybody. Only the kill does not.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from datetime import datetime
from pathlib import Path
from typing import Final

import abeyance
from abeyance.commands.terminal import read_line
from abeyance.core.canonical import rfc3339
from abeyance.demo.stage import quote, run_until, say, short, wait_for
from abeyance.demo.tidying import FOLDER, MODEL, Tidying, can_be_played, tell_that_it_is_skipped
from abeyance.dev import WORKER, Plan, Stack, with_stack
from abeyance.errors import SettingsError, Unavailable
from abeyance.http import HttpClient, HttpRun
from abeyance.wire import InterruptView, RunView

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
