"""The second act of the demo: an agent tidies a folder of real files, and asks before it deletes any."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from abeyance.commands.terminal import read_line
from abeyance.core.canonical import rfc3339
from abeyance.demo.stage import quote, run_until, say, short
from abeyance.errors import SettingsError
from abeyance.http import HttpClient, HttpRun
from abeyance.wire import InterruptView, RunView

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
        word = await _ask() if answer is None else ("y" if answer == "approve" else "n")
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


async def _ask() -> str:
    while True:
        word = await read_line("Your answer, y or n: ")
        if word is None:
            raise SettingsError("the terminal was closed before there was an answer")
        if word.lower() in ("y", "yes", "n", "no"):
            return word.lower()[0]
        print("Please type y or n.")
