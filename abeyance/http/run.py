"""`RunHandle` over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import EllipsisType
from typing import Any, Final, Literal, Unpack
from urllib.parse import quote

from pydantic import TypeAdapter

from abeyance.agents.transcript_view import TranscriptItem
from abeyance.commands import ONE_CLAIM
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.duration import Duration, as_sent, seconds, span
from abeyance.errors import Code, Refusal
from abeyance.handle import Forked, MessageFields
from abeyance.http.connection import Connection
from abeyance.http.events import follow as followed
from abeyance.http.events import past
from abeyance.schemas.answers import answers_as_json
from abeyance.schemas.json_types import to_json
from abeyance.storage.run_files import id_of
from abeyance.util import checked_run_id
from abeyance.views import (
    ClosingRecord,
    Event,
    InterruptView,
    MessageReceipt,
    MessageView,
    Migration,
    RunView,
)

_LONGEST_WAIT: Final = 30.0
"""Seconds of one long poll: less than the read timeout of a connection."""
_PAGE: Final = "1000"
_RECEIPTS: Final = TypeAdapter(list[Receipt])


class HttpRun:
    """One run over HTTP (`abeyance.RunHandle`)."""

    def __init__(self, api: Connection, run_id: str) -> None:
        self._api = api
        self._run_id = checked_run_id(run_id)
        self._path = f"/runs/{run_id}"

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    async def view(self) -> RunView:
        """Return the current view of the run. Requires `runs:read`."""
        return RunView.model_validate(await self._api.get(self._path))

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or of `all`, the open ones first. Requires `runs:read`."""
        listed = await self._api.get(f"{self._path}/interrupts", status=status)
        return [InterruptView.model_validate(entry) for entry in listed["items"]]

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return one interrupt, open or settled, or None if it is unknown. Requires `runs:read`."""
        if not interrupt_id.startswith(f"{self._run_id}."):
            return None
        try:
            entry = await self._api.get(f"/interrupts/{quote(interrupt_id, safe='')}")
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
        """Yield the events after the one with the id `after`, in order.

        With `follow` continue until the run ends. An interrupted stream is reopened, after a call of
        `on_gap`. Requires `runs:read`.
        """
        read = past(self._api, self._path, after)
        if follow:
            read = followed(self._api, self._path, after, on_gap=on_gap)
        async with aclosing(read) as events:
            async for event in events:
                yield Event.model_validate(event)

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Wait until the status is one of `until`, the run has ended, or `timeout` seconds have passed.

        Return the view. Requires `runs:read`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        query = {"until": ",".join(sorted(until))} if until else {}
        while True:
            remaining = min(max(deadline - loop.time(), 0.0), _LONGEST_WAIT)
            response = await self._api.get(self._path, **query, wait=f"{remaining:.3f}")
            view = RunView.model_validate(response)
            if view.is_awaited(until) or loop.time() >= deadline:
                return view

    async def result(self) -> ClosingRecord:
        """Return the closing record of the ended run. Raises `not_finished` while it runs."""
        return ClosingRecord.model_validate(await self._api.get(f"{self._path}/result"))

    async def file(self, file: Mapping[str, str] | str) -> bytes:
        """Return the bytes of a file of the run, by its reference or its id. Requires `runs:read`."""
        return await self._api.content(f"{self._path}/files/{quote(id_of(file), safe='')}")

    async def audit(self) -> bytes:
        """Return the audit of the run so far, as JSON lines, without answers that the token may not read.

        Requires `runs:read`.
        """
        return await self._api.content(f"{self._path}/audit", "application/x-ndjson")

    async def respond(
        self,
        answers: Mapping[str, Any] | str | None = None,
        response: Any = ...,
        *,
        principal: Principal | None = None,
        note: str | None = None,
        digests: Mapping[str, str] | None = None,
        on_behalf_of: str | None = None,
        key: str | None = None,
    ) -> list[Receipt]:
        """Answer interrupts: several by id, all or nothing; one by id; or the only open one.

        Sending the same answer again returns the first receipt, even after the run has ended. Requires
        `runs:respond` and the capability of each interrupt.
        """
        _refuse_principal(principal)
        body = {
            **answers_as_json(answers, response),
            **without_none(note=note, digests=digests and dict(digests), on_behalf_of=on_behalf_of),
        }
        reply = await self._api.post(f"{self._path}/respond", body, key=key)
        return _RECEIPTS.validate_python(reply["receipts"])

    async def pause(
        self,
        reason: str | None = None,
        *,
        mode: Literal["after-node", "now"] = "after-node",
        timeout: Duration | None = None,
        on_timeout: str = "resume",
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Pause the run; after `timeout` apply `on_timeout`. Requires `runs:control`."""
        _refuse_principal(principal)
        members = without_none(reason=reason, timeout=in_seconds(timeout))
        await self._control("pause", {**members, "mode": mode, "on_timeout": on_timeout}, key)

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Resume a paused run. Requires `runs:control`."""
        _refuse_principal(principal)
        await self._control("resume", without_none(reason=reason), key)

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Cancel the run; nodes get `grace` to stop. Requires `runs:control`."""
        _refuse_principal(principal)
        members = without_none(reason=reason, grace=in_seconds(grace))
        await self._control("cancel", {**members, "mode": mode}, key)

    async def _control(self, operation: str, body: Mapping[str, Any], key: str | None) -> None:
        await self._api.post(f"{self._path}/{operation}", body, key=key)

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Send a message by a signal, and return its id. Requires `runs:steer`."""
        response = await self._api.post(f"{self._path}/steer", message_body(text, fields))
        return str(response["message_id"])

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Send a message, and return the receipt of the run. Requires `runs:steer`."""
        response = await self._api.post(f"{self._path}/messages", message_body(text, fields))
        return MessageReceipt.model_validate(response)

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and send a message that it reads after it is resumed."""
        response = await self._api.post(f"{self._path}/pause-and-send", message_body(text, fields))
        return MessageReceipt.model_validate(response)

    async def messages(self) -> list[MessageView]:
        """Return the unread messages in reading order. Requires `runs:read`."""
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
        """Discard the unread messages, and return their number. The run lists them as undelivered."""
        _refuse_principal(principal)
        return int((await self._api.delete(f"{self._path}/messages", key=key))["cleared"])

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Set values of a paused or waiting run, if they are still at `version`.

        Without a version use the current one, which requires `runs:read`.
        """
        _refuse_principal(principal)
        read = (await self.view()).version if version is None else version
        body = {"patch": to_json(dict(patch)), "version": read}
        await self._api.patch(f"{self._path}/values", body, key=key)

    async def edit_deadline(
        self,
        interrupt_id: str,
        *,
        deadline: datetime | EllipsisType | None = ...,
        timeout: Duration | EllipsisType | None = ...,
        on_timeout: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Change the deadline of an open interrupt, or the action at the deadline."""
        _refuse_principal(principal)
        body: dict[str, Any] = without_none(on_timeout=on_timeout)
        if deadline is not ...:
            body["deadline"] = deadline and deadline.isoformat()
        if timeout is not ...:
            body["timeout"] = as_sent(None if timeout is None else span(timeout))
        await self._api.patch(f"/interrupts/{quote(interrupt_id, safe='')}", body, key=key)

    async def claim(
        self,
        interrupt_id: str,
        *,
        for_: Duration = ONE_CLAIM,
        on_behalf_of: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Keep an open question for the caller. Requires what an answer to it requires."""
        _refuse_principal(principal)
        body = without_none(on_behalf_of=on_behalf_of)
        path = f"/interrupts/{quote(interrupt_id, safe='')}/claim"
        await self._api.post(path, {"for": in_seconds(for_), **body}, key=key)

    async def release(
        self, interrupt_id: str, *, principal: Principal | None = None, key: str | None = None
    ) -> None:
        """End the claim of a question. Requires `runs:respond` or `runs:control`."""
        _refuse_principal(principal)
        await self._api.post(f"/interrupts/{quote(interrupt_id, safe='')}/release", {}, key=key)

    async def reassign(
        self,
        interrupt_id: str,
        to: str | Sequence[str],
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Replace whom a question is for. Requires `runs:respond` or `runs:control`."""
        _refuse_principal(principal)
        names = [to] if isinstance(to, str) else list(to)
        path = f"/interrupts/{quote(interrupt_id, safe='')}/reassign"
        await self._api.post(path, {"to": names, **without_none(note=note)}, key=key)

    async def take_back(
        self,
        interrupt_id: str,
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Take back a yes while its question is held. Requires `runs:respond` or `runs:control`."""
        _refuse_principal(principal)
        path = f"/interrupts/{quote(interrupt_id, safe='')}/take-back"
        await self._api.post(path, without_none(note=note), key=key)

    async def migrate(
        self,
        *,
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        dry_run: bool = False,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> Migration:
        """Move the open run to the graph that its worker has today. Requires a change of course."""
        _refuse_principal(principal)
        members = {"patch": dict(patch or {}), "map": dict(renames or {}), "dry_run": dry_run}
        response = await self._api.post(f"{self._path}/migrate", to_json(members), key=key)
        return Migration.model_validate(response)

    async def retry(
        self,
        *,
        graph: Literal["pinned", "today"] = "pinned",
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Let the ended run go on from where it ended. Requires `runs:control`."""
        _refuse_principal(principal)
        members = {"patch": dict(patch or {}), "map": dict(renames or {}), "graph": graph}
        await self._api.post(f"{self._path}/retry", to_json(members), key=key)

    async def fork(
        self, *, back: int = 0, run_id: str | None = None, principal: Principal | None = None
    ) -> Forked:
        """Start a new run with the past of this one. Requires a change of course."""
        _refuse_principal(principal)
        members = {"back": back, **without_none(run_id=run_id)}
        response = await self._api.post(f"{self._path}/fork", members)
        return Forked(
            run=HttpRun(self._api, response["run_id"]),
            interrupts=[
                InterruptView.model_validate(entry) for entry in response.get("interrupts", [])
            ],
        )

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return the transcript of an agent, oldest item first. Requires `runs:read`."""
        items: list[TranscriptItem] = []
        query = {"limit": _PAGE, **without_none(address=address)}
        while True:
            page = await self._api.get(f"{self._path}/transcript", **query)
            items += [TranscriptItem.model_validate(item) for item in page["items"]]
            if page["next_cursor"] is None or not page["items"]:
                return items
            query["cursor"] = page["next_cursor"]


def _refuse_principal(principal: Principal | None) -> None:
    if principal is not None:
        raise ValueError(
            f"principal={principal.subject!r}: over HTTP the token determines the principal"
        )


def without_none(**members: Any) -> dict[str, Any]:
    """Drop members that are None: null may have a meaning in the API."""
    return {name: value for name, value in members.items() if value is not None}


def in_seconds(length: Duration | None) -> float | None:
    """Return a duration as the API takes it."""
    return None if length is None else seconds(length)


def message_body(text: str, fields: MessageFields) -> dict[str, Any]:
    """Return the body of a message. Raises ValueError if it names a principal."""
    _refuse_principal(fields.get("principal"))
    members = {name: value for name, value in fields.items() if name not in ("principal", "ttl")}
    body = to_json(without_none(text=text, ttl=in_seconds(fields.get("ttl")), **members))
    return dict(body) if isinstance(body, dict) else {}
