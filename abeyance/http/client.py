"""`RunHandle` over HTTP, and its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType, TracebackType
from typing import Any, Final, Literal, Self, TypeVar, Unpack
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from abeyance.agents.transcript_view import TranscriptItem
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.duration import Duration, seconds
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.handle import InboxFilter, MessageFields, RunFilter, Started, Steered
from abeyance.http.connection import Connection
from abeyance.http.events import follow as followed
from abeyance.http.events import past
from abeyance.schemas.answers import answers_as_json
from abeyance.schemas.json_types import to_json
from abeyance.util import checked_run_id
from abeyance.views import ClosingRecord, Event, InterruptView, MessageReceipt, MessageView, RunView
from abeyance.wire import ErasureState

T = TypeVar("T")

_LONGEST_WAIT: Final = 30.0
"""Seconds of one long poll: less than the read timeout of a connection."""
_PAGE: Final = "1000"
_CREATED: Final = 201
_RECEIPTS: Final = TypeAdapter(list[Receipt])


class HttpClient:
    """A client of the API at `url`, authenticated by the bearer `token`.

    Close it, or use it with `async with`. Raises SettingsError for an invalid url or token.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.api = Connection(url, token)
        self.runs = HttpRuns(self.api)
        self.inbox = HttpInbox(self.api)
        self.conversations = HttpConversations(self.api)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.api.close()

    def run(self, run_id: str) -> HttpRun:
        """Return the handle of a run, which need not exist. Raises `invalid_run_id`."""
        return HttpRun(self.api, run_id)


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
        key: str | None = None,
    ) -> list[Receipt]:
        """Answer interrupts: several by id, all or nothing; one by id; or the only open one.

        Sending the same answer again returns the first receipt, even after the run has ended. Requires
        `runs:respond` and the capability of each interrupt.
        """
        _refuse_principal(principal)
        body = {
            **answers_as_json(answers, response),
            **_without_none(note=note, digests=digests and dict(digests)),
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
        members = _without_none(reason=reason, timeout=_seconds(timeout))
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
        await self._control("resume", _without_none(reason=reason), key)

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
        members = _without_none(reason=reason, grace=_seconds(grace))
        await self._control("cancel", {**members, "mode": mode}, key)

    async def _control(self, operation: str, body: Mapping[str, Any], key: str | None) -> None:
        await self._api.post(f"{self._path}/{operation}", body, key=key)

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Send a message by a signal, and return its id. Requires `runs:steer`."""
        response = await self._api.post(f"{self._path}/steer", _message(text, fields))
        return str(response["message_id"])

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Send a message, and return the receipt of the run. Requires `runs:steer`."""
        response = await self._api.post(f"{self._path}/messages", _message(text, fields))
        return MessageReceipt.model_validate(response)

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and send a message that it reads after it is resumed."""
        response = await self._api.post(f"{self._path}/pause-and-send", _message(text, fields))
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
        body: dict[str, Any] = _without_none(on_timeout=on_timeout)
        if deadline is not ...:
            body["deadline"] = deadline and deadline.isoformat()
        if timeout is not ...:
            body["timeout"] = _seconds(timeout)
        await self._api.patch(f"/interrupts/{quote(interrupt_id, safe='')}", body, key=key)

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return the transcript of an agent, oldest item first. Requires `runs:read`."""
        items: list[TranscriptItem] = []
        query = {"limit": _PAGE, **_without_none(address=address)}
        while True:
            page = await self._api.get(f"{self._path}/transcript", **query)
            items += [TranscriptItem.model_validate(item) for item in page["items"]]
            if page["next_cursor"] is None or not page["items"]:
                return items
            query["cursor"] = page["next_cursor"]


@dataclass(frozen=True, slots=True)
class HttpRuns:
    """Start and list runs over HTTP."""

    api: Connection

    async def start(
        self,
        graph: str,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        session_type: str = "agent",
        labels: Mapping[str, str] | None = None,
        limits: Mapping[str, Any] | None = None,
        reuse: bool = False,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
        allow_concurrent: bool = False,
        key: str | None = None,
    ) -> Started:
        """Start a run of a graph, as `Client.runs.start` does. Requires `runs:start`.

        With a `key` and without a `run_id` the id is derived from the key.
        """
        body = {
            "graph": graph,
            "input": to_json(input if isinstance(input, BaseModel) else dict(input or {})),
            "session_type": session_type,
            "labels": dict(labels or {}),
            "limits": dict(limits or {}),
            "interrupt_before": _names(interrupt_before),
            "interrupt_after": _names(interrupt_after),
            "reuse": reuse,
            "allow_concurrent": allow_concurrent,
            **_without_none(run_id=run_id, conversation_id=conversation_id, on_error=on_error),
        }
        status, response = await self.api.post_for_status("/runs", body, key=key)
        return Started(run_id=response["run_id"], created=status == _CREATED)

    async def erase(self, run_id: str) -> ErasureState:
        """Erase a run that has ended, as `Client.runs.erase` does. Requires `admin`."""
        state: ErasureState = (await self.api.delete(f"/runs/{checked_run_id(run_id)}"))["state"]
        return state

    async def list(
        self, filters: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[RunView], str | None]:
        """Return a page of runs, newest first, and the cursor of the next page or None."""
        filters = filters or RunFilter()
        query = {
            "status": sorted(filters.statuses),
            "label": filters.labels,
            "limit": str(limit),
            **_without_none(
                graph=filters.graph,
                conversation_id=filters.conversation_id,
                cursor=cursor,
                blocked=None if filters.blocked is None else str(filters.blocked).lower(),
            ),
        }
        page = await self.api.get("/runs", **query)
        return [RunView.model_validate(item) for item in page["items"]], page["next_cursor"]


@dataclass(frozen=True, slots=True)
class HttpInbox:
    """Open interrupts of all runs, over HTTP."""

    api: Connection

    async def list(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[InterruptView], str | None]:
        """Return open interrupts, nearest deadline first, and the cursor of the next page."""
        filters = filters or InboxFilter()
        query = {
            "capability": sorted(filters.capabilities),
            "limit": str(limit),
            **_without_none(
                graph=filters.graph,
                conversation_id=filters.conversation_id,
                before=filters.before and filters.before.isoformat(),
                cursor=cursor,
            ),
        }
        page = await self.api.get("/interrupts", **query)
        return [InterruptView.model_validate(item) for item in page["items"]], page["next_cursor"]


@dataclass(frozen=True, slots=True)
class HttpConversations:
    """Control the active runs of conversations, over HTTP."""

    api: Connection

    async def interrupt(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Cancel all active runs, and return their ids."""
        members = _without_none(reason=reason, grace=_seconds(grace))
        return await self._reach(conversation_id, "interrupt", {**members, "mode": mode}, key)

    async def pause(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        mode: Literal["after-node", "now"] = "after-node",
        timeout: Duration | None = None,
        on_timeout: str = "resume",
        key: str | None = None,
    ) -> list[str]:
        """Pause all active runs, and return their ids."""
        members = _without_none(reason=reason, timeout=_seconds(timeout))
        body = {**members, "mode": mode, "on_timeout": on_timeout}
        return await self._reach(conversation_id, "pause", body, key)

    async def resume(
        self, conversation_id: str, reason: str | None = None, *, key: str | None = None
    ) -> list[str]:
        """Resume all active runs, and return their ids."""
        return await self._reach(conversation_id, "resume", _without_none(reason=reason), key)

    async def steer(
        self, conversation_id: str, text: str = "", **fields: Unpack[MessageFields]
    ) -> Steered:
        """Send a message to the only active run. Raises `no_active_run` and `ambiguous_run`."""
        body = _message(text, fields)
        response = await self.api.post(f"{conversation_path(conversation_id)}/steer", body)
        return Steered(run_id=response["runs"][0], message_id=response["message_id"])

    async def _reach(
        self, conversation_id: str, operation: str, body: Mapping[str, Any], key: str | None
    ) -> list[str]:
        path = f"{conversation_path(conversation_id)}/{operation}"
        runs: list[str] = (await self.api.post(path, body, key=key))["runs"]
        return runs


def conversation_path(conversation_id: str) -> str:
    """Return the path of a conversation. Raises SettingsError for an id that no path can hold."""
    if not conversation_id.strip("."):
        raise SettingsError(
            f"the conversation id {conversation_id!r} cannot be part of a URL: dots alone are not an id"
        )
    return f"/conversations/{quote(conversation_id, safe='')}"


def _refuse_principal(principal: Principal | None) -> None:
    if principal is not None:
        raise ValueError(
            f"principal={principal.subject!r}: over HTTP the token determines the principal"
        )


def _without_none(**members: Any) -> dict[str, Any]:
    """Drop members that are None: null may have a meaning in the API."""
    return {name: value for name, value in members.items() if value is not None}


def _seconds(length: Duration | None) -> float | None:
    return None if length is None else seconds(length)


def _names(named: str | Sequence[str]) -> list[str]:
    return [named] if isinstance(named, str) else list(named)


def _message(text: str, fields: MessageFields) -> dict[str, Any]:
    _refuse_principal(fields.get("principal"))
    members = {name: value for name, value in fields.items() if name not in ("principal", "ttl")}
    body = to_json(_without_none(text=text, ttl=_seconds(fields.get("ttl")), **members))
    return dict(body) if isinstance(body, dict) else {}
