"""Two of the later acts of the demo, an agent and a payout, and what every act prints and waits by."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from abeyance.cli.formatting import Line, readable, show
from abeyance.core.json import rfc3339
from abeyance.core.ledger import Receipt
from abeyance.errors import Code, SettingsError, Unavailable
from abeyance.handle import RunHandle
from abeyance.http import HttpClient, HttpRun
from abeyance.views import InterruptView, RunView

T = TypeVar("T")

_PATIENCE: Final = 60.0
_TRIES: Final = 5


def say(label: str, text: str, *, gap: bool = False) -> None:
    """Print a labelled line; `gap` adds an empty line."""
    show([Line(label, text)])
    if gap:
        print(flush=True)


def say_receipt(word: str, receipt: Receipt) -> None:
    """Print an answer that was accepted."""
    say("answer", f"{word} by {receipt.answered_by}, accepted at {rfc3339(receipt.accepted_at)}")


def quote(text: str) -> None:
    """Print a text as a quotation."""
    print()
    for line in readable(text).splitlines():
        print(f"    {line}".rstrip())
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


async def read_line(prompt: str) -> str | None:
    """Read a line from the terminal, stripped; None at the end of input.

    `input` is not used, because Ctrl-C cannot end a thread that waits in it.
    """
    sys.stdout.write(prompt)
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    line = sys.stdin.readline()
    return line.strip() if line else None


async def ask_which(*choices: str, whose: str = "Your") -> str:
    """Prompt for somebody's answer until one of the choices, or its first letter, is typed."""
    named = " or ".join(choices)
    while True:
        typed = await read_line(f"{whose} answer, {named}: ")
        if typed is None:
            raise SettingsError("the terminal was closed without an answer")
        for choice in choices:
            if typed.lower() in (choice, choice[0]):
                return choice
        print(f"Please type {named}.")


class RefusedCall(Unavailable):
    """The API refused a call, with a code."""

    def __init__(self, message: str, response: httpx.Response) -> None:
        self.code = response.json().get("code")
        super().__init__(message)


async def as_caller(
    name: str, api_url: str, path: str, body: Mapping[str, Any], **about: str
) -> Any:
    """Post as somebody, of whom more headers tell, and return the response. Raises RefusedCall.

    Without authentication the API takes a caller's word for who they are, and what they may do.
    """
    caller = {f"X-Abeyance-{name}": text for name, text in {"Principal": name, **about}.items()}
    async with httpx.AsyncClient(trust_env=False, headers=caller, timeout=_PATIENCE) as http:
        response = await http.post(f"{api_url}{path}", json=dict(body))
    if response.is_error:
        raise RefusedCall(f"POST {path} by {name} was refused: {response.text}", response)
    return response.json()


def is_complete(view: RunView) -> bool:
    """Return whether a run has completed, and print why if it has not."""
    if view.status != "completed":
        why = view.error or view.reason
        say("error", f"the run should have completed, but it is {view.status}: {why}")
    return view.status == "completed"


_TIDYING: Final = "deleting_files"
FOLDER: Final = "EXAMPLE_FOLDER"
MODEL: Final = "EXAMPLE_MODEL"

_LOGS: Final = ("monday.log", "tuesday.log")
_OTHERS: Final = ("invoice-numbers.txt", "notes.txt")
_DAYS_OLD: Final = 9
_MOST_QUESTIONS: Final = 20


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
        self.run_id = (await self._client.runs.start(_TIDYING)).run_id
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
        yes = await ask_which("yes", "no") == "yes" if answer is None else answer == "approve"
        word = "y" if yes else "n"
        names = (question.reason or {}).get("names", ())
        # The last answer about a file counts: the tool may ask again after the hook has.
        (self._granted.update if word == "y" else self._granted.difference_update)(names)
        (receipt,) = await run.respond(question.id, word)
        say_receipt(word, receipt)

    def _is_right(self, view: RunView) -> bool:
        if not is_complete(view):
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


_PAYOUT: Final = "payout"
_PAYMENT: Final = {"payee": "the printer", "amount": 900}
_VARIABLE: Final = "DEMO_HOOK_VARIABLE"
_TOO_LATE: Final = frozenset({Code.NOT_HELD, Code.NOT_RUNNING})
"""Codes of a take-back once the hold is over."""
_RULES: Final = """\
rules:
  - when: {{event: interrupt.opened, graph: payout}}
    to:
      - {{webhook: "{url}", secret_env: DEMO_HOOK_VARIABLE, allow_private: true}}
"""


class Webhooks:
    """A receiver of webhooks on 127.0.0.1, and the file of rules that names it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.environment = {
            "ABEYANCE_NOTIFICATIONS": str(file),
            _VARIABLE: f"whsec_{b64encode(secrets.token_bytes(24)).decode()}",
        }
        self._received: list[tuple[Mapping[str, str], bytes]] = []

    @asynccontextmanager
    async def received(self) -> AsyncIterator[None]:
        """Write the file, and receive until the end of the block."""
        server = await asyncio.start_server(self._receive, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.file.write_text(_RULES.format(url=f"http://127.0.0.1:{port}/hook"), "utf-8")
        try:
            yield
        finally:
            server.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            pairs = (line.partition(":") for line in lines[1:])
            headers = {name.lower(): text.strip() for name, _, text in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self._received.append((headers, body))
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()

    async def verified(self, run_id: str) -> tuple[str, dict[str, Any]]:
        """Wait for a webhook about a run, and return its id and its body.

        Raises WebhookVerificationError if its signature is not that of the secret.
        """
        from standardwebhooks import Webhook

        verifier = Webhook(self.environment[_VARIABLE])

        async def look() -> tuple[str, dict[str, Any]] | None:
            for headers, body in self._received:
                read: dict[str, Any] = verifier.verify(body, dict(headers))
                if read["data"]["run"]["run_id"] == run_id:
                    return headers["webhook-id"], read
            return None

        return await wait_for(look, "the webhook")


class PayingOut:
    """The last act: a webhook is received, two managers vote, and a yes is held and taken back."""

    def __init__(self, client: HttpClient, api_url: str, webhooks: Webhooks) -> None:
        self._client = client
        self._api_url = api_url
        self._webhooks = webhooks
        self.run_id = ""

    async def play(self, answer: str | None) -> bool:
        """Play the act. Return True if it was paid exactly if both managers approved in the end."""
        say("people", "last act: a payout takes two managers, and a webhook announces the question")
        say("", "this stack has a file of rules, in ABEYANCE_NOTIFICATIONS:")
        quote(self._webhooks.file.read_text("utf-8"))
        run = await self._held_back()
        word = answer or await ask_which("approve", "reject", whose="Bob's")
        await self._vote("bob", approved=word == "approve")
        view = await run_until(run, "completed")
        return self._is_right(view, approved=word == "approve")

    async def _held_back(self) -> HttpRun:
        """Return a run that both have approved, and whose last yes was taken back while it was held."""
        for _ in range(_TRIES):
            run = await self._approved()
            if await self._take_back(run, "bob"):
                return run
            # A machine that is busy enough takes longer than a yes is held.
            say("take back", "too late, the yes counts already; carol submits it again")
        raise Unavailable(
            f"in {_TRIES} runs no yes was taken back in time: this machine is too busy"
        )

    async def _approved(self) -> HttpRun:
        """Start a run, and approve what it asks. The last yes is held."""
        started = await self._as("carol", "/runs", {"graph": _PAYOUT, "input": _PAYMENT})
        self.run_id = started["run_id"]
        run = self._client.run(self.run_id)
        say("run", f"{self.run_id} started by carol, who may not approve it herself")
        await run_until(run, "awaiting-input")
        await self._announced()
        await self._vote("ada", approved=True)
        await self._vote("bob", approved=True)
        return run

    async def _announced(self) -> None:
        id_, body = await self._webhooks.verified(self.run_id)
        say("webhook", f"{body['type']} received; the signature of {id_} is verified:")
        question = body["data"]["interrupt"]
        asked = ", ".join(question["assignees"])
        quote(f"{question['prompt']}\n\nfor {asked}: {body['data']['url']}")

    async def _vote(self, name: str, *, approved: bool) -> None:
        path = f"/runs/{self.run_id}/respond"
        (receipt,) = (await self._as(name, path, {"response": approved}))["receipts"]
        match receipt:
            case {"status": "voted", "missing": missing}:
                then = f"{missing} missing"
            case {"status": "held", "held_until": until}:
                then = f"held until {until}; nothing is paid before"
            case _:
                then = "decided"
        say("vote", f"{name}: {'yes' if approved else 'no'}; {then}")

    async def _take_back(self, run: HttpRun, name: str) -> bool:
        """Take the held yes back. Return False if it is held no more."""
        question = next(iter((await run.view()).interrupts), None)
        if question is None:
            return False
        path = f"/interrupts/{question.id}/take-back"
        try:
            await self._as(name, path, {"note": "the invoice came twice"})
        except RefusedCall as refused:
            if refused.code in _TOO_LATE:
                return False
            raise
        again = await run.interrupt(question.id)
        missing = again and again.missing
        say("take back", f"{name} takes that back; the question is open again, {missing} missing")
        return True

    def _is_right(self, view: RunView, *, approved: bool) -> bool:
        if not is_complete(view):
            return False
        receipt = view.values["receipt"]
        say("end", receipt or "completed, and nothing was paid", gap=True)
        if (receipt is not None) != approved:
            say("error", f"the result does not match the votes: {receipt}")
            return False
        return True

    async def _as(self, name: str, path: str, body: Mapping[str, Any]) -> Any:
        return await as_caller(name, self._api_url, path, body, Groups="managers")
