"""`RunHandle` over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal, NamedTuple, Unpack
from urllib.parse import quote

from pydantic import TypeAdapter

from abeyance import commands, wire
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.core import replies
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.handle import MessageFields, RunHandle
from abeyance.http.connection import Connection
from abeyance.http.events import follow as followed
from abeyance.http.events import past
from abeyance.orders import awaited, body_of, message_of, order_of
from abeyance.schemas.requests import json_patch
from abeyance.storage.run_files import checked_id
from abeyance.util import checked_run_id, checked_text
from abeyance.views import (
    ClosingRecord,
    Event,
    InterruptView,
    MessageReceipt,
    MessageView,
    Migration,
    Rewind,
    RunView,
)

_LONGEST_WAIT: Final = 30.0
"""Seconds of one long poll: less than the read timeout of a connection."""
_PAGE: Final = "1000"
_LAST_OF_ID: Final = re.compile("[0-9a-f]{16}")
_RECEIPTS: Final = TypeAdapter(list[Receipt])


def _receipts(reply: Any) -> list[Receipt]:
    return _RECEIPTS.validate_python(reply["receipts"])


class _Call(NamedTuple):
    """The HTTP request of a command: its method, its path below the run or the question, the model of
    the fields to send (the server sets the others), and the function that converts the reply.
    """

    method: Literal["PATCH", "POST"]
    path: str
    body: type[wire.Request]
    answer: Callable[[Any], Any] = lambda _: None


CALLS: Final[Mapping[type[commands.Command], _Call]] = {
    commands.Respond: _Call("POST", "/respond", commands.Answers, _receipts),
    commands.Pause: _Call("POST", "/pause", commands.PauseBody),
    commands.Resume: _Call("POST", "/resume", commands.ControlBody),
    commands.Cancel: _Call("POST", "/cancel", commands.CancelBody),
    commands.EditValues: _Call("PATCH", "/values", commands.ValuesBody),
    commands.EditDeadline: _Call("PATCH", "", commands.DeadlineBody),
    commands.Claim: _Call("POST", "/claim", commands.ClaimBody),
    commands.ReleaseClaim: _Call("POST", "/release", commands.ReleaseBody),
    commands.Reassign: _Call("POST", "/reassign", commands.ReassignBody),
    commands.TakeBack: _Call("POST", "/take-back", commands.TakeBackBody),
    commands.MigrateBody: _Call("POST", "/migrate", commands.MigrateBody, Migration.model_validate),
    commands.RetryBody: _Call("POST", "/retry", commands.RetryBody),
    commands.RewindBody: _Call("POST", "/rewind", commands.RewindBody, Rewind.model_validate),
}
"""The HTTP request of each command."""


def waiting(until: frozenset[str], seconds: float) -> dict[str, str]:
    """Return the query of a request that waits for at most one long poll."""
    query = {"until": ",".join(sorted(until))} if until else {}
    return {**query, "wait": f"{min(max(seconds, 0.0), _LONGEST_WAIT):.3f}"}


class HttpRun(RunHandle):
    """One run over HTTP (`abeyance.RunHandle`).

    Reading requires `runs:read`, as does `edit_values` without a version. `respond` and `claim` require
    `runs:respond` and the capability of the question; `release`, `reassign` and `take_back` require
    `runs:respond` or `runs:control`; messages `runs:steer`; all other methods `runs:control`. Methods
    that change the course of the run also require every capability in its `guarded_by`.
    """

    def __init__(self, api: Connection, run_id: str) -> None:
        self._api = api
        self._run_id = checked_run_id(run_id)
        self._path = f"/runs/{run_id}"

    @property
    def run_id(self) -> str:
        return self._run_id

    async def view(self) -> RunView:
        return RunView.model_validate(await self._api.get(self._path))

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        order_of(commands.Interrupts, {"status": status})
        listed = await self._api.get(f"{self._path}/interrupts", status=status)
        return [InterruptView.model_validate(entry) for entry in listed["items"]]

    def _path_of(self, interrupt_id: Any) -> str:
        """Return the path of an interrupt. Raises `unknown_interrupt` for an id of another form."""
        order_of(commands.WhichInterrupt, {"interrupt_id": interrupt_id})
        run_id, _, last = interrupt_id.rpartition(".")
        if run_id != self._run_id or _LAST_OF_ID.fullmatch(last) is None:
            raise replies.unknown(interrupt_id)
        return f"/interrupts/{quote(interrupt_id, safe='')}"

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        try:
            entry = await self._api.get(self._path_of(interrupt_id))
        except Refusal as refusal:
            if refusal.code is not Code.UNKNOWN_INTERRUPT:
                raise
            return None
        return InterruptView.model_validate(entry)

    async def events(
        self,
        *,
        after: str | None = None,
        follow: bool = True,
        on_gap: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events as `RunHandle.events` does. The handle calls `on_gap` before it reopens an
        interrupted stream.
        """
        read = past(self._api, self._path, after)
        if follow:
            read = followed(self._api, self._path, after, on_gap=on_gap)
        async with aclosing(read) as events:
            async for event in events:
                yield Event.model_validate(event)

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        until, timeout = awaited(until, timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            query = waiting(until, deadline - loop.time())
            response = await self._api.get(self._path, **query)
            view = RunView.model_validate(response)
            if view.is_awaited(until) or loop.time() >= deadline:
                return view

    async def result(self) -> ClosingRecord:
        return ClosingRecord.model_validate(await self._api.get(f"{self._path}/result"))

    async def file(self, file: Mapping[str, str] | str) -> bytes:
        return await self._api.content(f"{self._path}/files/{checked_id(self._run_id, file)}")

    async def audit(self) -> bytes:
        """Return the audit of the run so far, without answers that the token may not read."""
        return await self._api.content(f"{self._path}/audit", "application/x-ndjson")

    async def _send(
        self,
        kind: type[commands.Command],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> Any:
        refuse_principal(principal)
        call, path, fields = CALLS[kind], self._path, dict(about)
        question = fields.pop("interrupt_id") if issubclass(kind, commands.OfQuestion) else None
        if issubclass(kind, commands.EditValues):
            fields["patch"] = json_patch(fields["patch"])
        body = body_of(call.body, fields)
        if issubclass(kind, commands.OfQuestion):
            path = self._path_of(question)
        reply = await self._api.send(call.method, f"{path}{call.path}", body, key=key)
        return call.answer(reply)

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        response = await self._api.post(f"{self._path}/steer", message_body(text, fields))
        return str(response["message_id"])

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        response = await self._api.post(f"{self._path}/messages", message_body(text, fields))
        return MessageReceipt.model_validate(response)

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        response = await self._api.post(f"{self._path}/pause-and-send", message_body(text, fields))
        return MessageReceipt.model_validate(response)

    async def messages(self) -> list[MessageView]:
        messages: list[MessageView] = []
        while True:
            number = len(messages) // int(_PAGE) + 1
            page = await self._api.get(f"{self._path}/messages", page=str(number), page_size=_PAGE)
            messages += [MessageView.model_validate(entry) for entry in page["items"]]
            if len(page["items"]) < int(_PAGE):
                return messages

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        refuse_principal(principal)
        return int((await self._api.delete(f"{self._path}/messages", key=key))["cleared"])

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        query = {} if address is None else {"address": checked_text(address, "/address")}
        pages = self._api.pages(f"{self._path}/transcript", **query)
        return [
            TranscriptItem.model_validate(each) async for page in pages for each in page["items"]
        ]


def refuse_principal(principal: Principal | None) -> None:
    """Raise ValueError if a caller names a principal."""
    if principal is not None:
        raise ValueError(
            f"principal={principal.subject!r}: over HTTP the token determines the principal"
        )


def message_body(text: str, fields: MessageFields) -> dict[str, Any]:
    """Return the body of a message. Raises ValueError if it names a principal, and `invalid_body`."""
    refuse_principal(fields.get("principal"))
    body = message_of(text, fields)
    return body.model_dump(mode="json", exclude_unset=True)
