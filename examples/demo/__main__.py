"""`make demo`: four example runs on a temporary stack."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from abeyance.cli.errors import ExitCode, code_of, print_error
from abeyance.core.ledger import Receipt
from abeyance.dev.stack import WORKER, Plan, Stack, with_stack
from abeyance.errors import AbeyanceError, SettingsError, Unavailable
from abeyance.http import HttpClient, HttpRun
from abeyance.views import RunView
from examples.demo.acts import (
    FOLDER,
    MODEL,
    PayingOut,
    Tidying,
    Webhooks,
    ask_which,
    is_complete,
    quote,
    read_line,
    run_until,
    say,
    say_receipt,
    short,
    wait_for,
)
from examples.demo.refunds import Refunding

_HOME: Final = Path(__file__).resolve().parents[2]
_APP: Final = "examples.demo:graphs"
_GRAPH: Final = "invoices"
_SHOWN: Final = {"report.txt": 40, "pain.*.xml": 12, "ledger.csv": 3, "held.csv": 3}
"""The files that a run writes, and how many lines of each to print."""
_WIDTH: Final = 100


async def run_demo(answer: str | None, *, ui: bool) -> bool | None:
    """Run the demo on a temporary stack, with an `answer` (approve or reject) or by prompting for one.

    `ui` starts Temporal's UI too. Return True if the runs completed as answered,
    None if a signal stopped the demo. Raises SettingsError if the demo cannot run, and Unavailable if
    the stack fails.
    """
    if answer is None and not sys.stdin.isatty():
        raise SettingsError("stdin is not a terminal: add --answer approve or --answer reject")
    # The ledger refuses to pay an invoice twice, so every demo gets its own folder.
    out = _fresh_folder()
    data_dir = Path(tempfile.mkdtemp(prefix="abeyance-demo-"))
    webhooks = Webhooks(data_dir / "notifications.yaml") if _has_people() else None
    plan = Plan(
        app=_APP,
        api_port=0,
        temporal_port=0,
        ui_port=0 if ui else None,
        data_dir=data_dir,
        in_memory=False,
        directory=_HOME,
        environment={
            **_environment(),
            FOLDER: str(out / "litter"),
            **({} if webhooks is None else webhooks.environment),
        },
    )

    ended: list[bool] = []

    async def story(stack: Stack) -> None:
        async with HttpClient(stack.api_url) as client:
            sample = _HOME / "examples" / _GRAPH / "sample"
            acts: list[_Paying | Tidying | Refunding | PayingOut] = [
                _Paying(stack, client, sample, out)
            ]
            if _has_agents():
                acts.append(Tidying(client, out / "litter"))
                acts.append(Refunding(client, stack.api_url))
            if webhooks is not None:
                acts.append(PayingOut(client, stack.api_url, webhooks))
            ended.append(all([await act.play(answer) for act in acts]))
            if answer is None:
                for act in acts:
                    say_addresses(stack, act.run_id)
                await read_line(
                    "The stack stays up while you look at these addresses. Press Enter to stop it. "
                )

    say("demo", "a company pays its invoices, after a person approves", gap=True)
    _say_what_is_missing()
    say("stack", "starting Temporal, a worker and the API ...")
    try:
        async with AsyncExitStack() as receiving:
            if webhooks is not None:
                await receiving.enter_async_context(webhooks.received())
            await with_stack(plan, story, announce=lambda text: say("stack", text))
    finally:
        _clear(data_dir, keep_logs=ended != [True])
        if not any(out.iterdir()):
            out.rmdir()
    return ended[0] if ended else None


def _has_agents() -> bool:
    return find_spec("pydantic_ai") is not None


def _has_people() -> bool:
    return all(find_spec(name) is not None for name in ("apprise", "standardwebhooks"))


def _say_what_is_missing() -> None:
    for extra, is_there, what in (
        ("agents", _has_agents(), "agents that ask before they delete files and pay money back"),
        ("people", _has_people(), "a payout by two people, announced by a webhook"),
    ):
        if not is_there:
            say(extra, f"without an extra this is left out: {what}")
            say("", f"pip install 'abeyance[{extra}]'", gap=True)


class _Paying:
    """The first act: invoices are paid after an approval, and the worker is killed meanwhile."""

    def __init__(self, stack: Stack, client: HttpClient, folder: Path, out: Path) -> None:
        self._stack = stack
        self._client = client
        self._folder = folder
        self._out = out
        self.run_id = ""

    async def play(self, answer: str | None) -> bool:
        """Play the act, with an `answer` or by prompting. Return True if it ended as answered."""
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
        until = question.deadline and f"{question.deadline:%Y-%m-%dT%H:%M:%S}"
        say("", f"It waits until {until or ''} UTC, then: {question.on_timeout}.", gap=True)
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

        await wait_for(other, "another worker")
        after = await self._run.view()
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

        async def accepted() -> Receipt | None:
            # The other worker may still be starting. The same answer again counts once.
            with suppress(Unavailable):
                (receipt,) = await self._run.respond(question, answer)
                return receipt
            return None

        receipt = await wait_for(accepted, "the other worker to accept the answer")
        say_receipt("approved" if approved else "rejected", receipt)
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
        if not is_complete(view):
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


def _visits(view: RunView) -> int:
    return 0 if view.metrics is None else view.metrics.visits


def say_addresses(stack: Stack, run: str) -> None:
    """Print the addresses of a run."""
    ui = stack.ui_url
    say("", f"API         {stack.api_url}/runs/{run}", gap=ui is None)
    if ui is not None:
        say("", f"Temporal UI {ui}/namespaces/default/workflows/{run}", gap=True)


async def _ask() -> tuple[bool, str]:
    """Prompt for the decision and its reason."""
    word = await ask_which("approve", "reject")
    return word == "approve", await read_line("Why (may be empty): ") or ""


def _environment() -> dict[str, str]:
    # The user's own settings (tokens, limits, another app) do not apply to the demo.
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("ABEYANCE_") or name == MODEL
    }


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


def main() -> int:
    """Run the demo and return the exit code: 0 only if all runs complete as answered."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo")
    parser.add_argument(
        "--answer", choices=["approve", "reject"], help="answer instead of asking in the terminal"
    )
    parser.add_argument("--ui", action="store_true", help="also serve Temporal's UI")
    options = parser.parse_args()
    try:
        done = asyncio.run(run_demo(options.answer, ui=options.ui))
    except AbeyanceError as error:
        print_error(str(error))
        return code_of(error)
    if done is None:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if done else ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
