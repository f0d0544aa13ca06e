"""`RunHandle` over HTTP, and the client that has the runs."""

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
from abeyance.wire import ClosingRecord, Event, InterruptView, MessageReceipt, MessageView, RunView

T = TypeVar("T")

_LONGEST_WAIT: Final = 30.0
"""In seconds, of one call that waits: less than a connection is waited for."""
_PAGE: Final = "1000"
_CREATED: Final = 201
_RECEIPTS: Final = TypeAdapter(list[Receipt])


class HttpClient:
    """The runs behind the API at `url`, for whom the bearer `token` says.

    Close it, or use it with `async with`. Raises SettingsError for what is no address or no token.
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
        """Close the connections that are open."""
        await self.api.close()

    def run(self, run_id: str) -> HttpRun:
        """The run of this id, which need not exist. Raises `invalid_run_id`."""
        return HttpRun(self.api, run_id)


class HttpRun:
    """One run behind an API (`abeyance.RunHandle`)."""

    def __init__(self, api: Connection, run_id: str) -> None:
        self._api = api
        self._run_id = checked_run_id(run_id)
        self._path = f"/runs/{run_id}"

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    async def view(self) -> RunView:
        """Return the run as it is now. Takes `runs:read`."""
        return RunView.model_validate(await self._api.get(self._path))

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or of `all`, the open ones first. Takes `runs:read`."""
        listed = await self._api.get(f"{self._path}/interrupts", status=status)
        return [InterruptView.model_validate(entry) for entry in listed["items"]]

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return one interrupt, open or settled; None if the run has no such one. Takes `runs:read`."""
        if not interrupt_id.startswith(f"{self._run_id}."):
            return None
        try:
            found = await self._api.get(f"/interrupts/{quote(interrupt_id, safe='')}")
        except Refusal as refusal:
            if refusal.code is not Code.UNKNOWN_INTERRUPT:
                raise
            return None
        return InterruptView.model_validate(found)

    async def events(
        self,
        *,
        after: str | None = None,
        follow: bool = True,
        on_gap: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Event, None]:
        """Yield what has happened, in order, after the event with the id `after`.

        With `follow` also what happens from then on, until the run has ended: a stream that breaks off is
        opened again, after a call of `on_gap`. Takes `runs:read`.
        """
        read = past(self._api, self._path, after)
        if follow:
            read = followed(self._api, self._path, after, on_gap=on_gap)
        async with aclosing(read) as events:
            async for event in events:
                yield Event.model_validate(event)

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view as soon as the status is one of `until`, or the run has ended, or `timeout`
        seconds are over. Takes `runs:read`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        asked = {"until": ",".join(sorted(until))} if until else {}
        while True:
            left = min(max(deadline - loop.time(), 0.0), _LONGEST_WAIT)
            found = await self._api.get(self._path, **asked, wait=f"{left:.3f}")
            view = RunView.model_validate(found)
            is_there = view.ended_at is not None or view.status in until
            if is_there or loop.time() >= deadline:
                return view

    async def result(self) -> ClosingRecord:
        """Return what the ended run left behind. Raises `not_finished` while it runs."""
        return ClosingRecord.model_validate(await self._api.get(f"{self._path}/result"))

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
        """Answer interrupts: several by their ids, all or nothing; one by its id; or the only open one.

        The same answer again gets the first receipt, also after the run has ended. Takes `runs:respond`,
        and what each of the interrupts asks for.
        """
        _refuse(principal)
        body = {
            **answers_as_json(answers, response),
            **_given(note=note, digests=digests and dict(digests)),
        }
        told = await self._api.post(f"{self._path}/respond", body, key=key)
        return _RECEIPTS.validate_python(told["receipts"])

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
        """Start no new work, for `timeout` at most; then `on_timeout`. Takes `runs:control`."""
        _refuse(principal)
        given = _given(reason=reason, timeout=_seconds(timeout))
        await self._control("pause", {**given, "mode": mode, "on_timeout": on_timeout}, key)

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Go on after a pause. Takes `runs:control`."""
        _refuse(principal)
        await self._control("resume", _given(reason=reason), key)

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """End the run in good order; `grace` is how long nodes may take to stop. Takes `runs:control`."""
        _refuse(principal)
        given = _given(reason=reason, grace=_seconds(grace))
        await self._control("cancel", {**given, "mode": mode}, key)

    async def _control(self, operation: str, body: Mapping[str, Any], key: str | None) -> None:
        await self._api.post(f"{self._path}/{operation}", body, key=key)

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Put a message into the mailbox by a signal, and return its id. Takes `runs:steer`."""
        told = await self._api.post(f"{self._path}/steer", _message(text, fields))
        return str(told["message_id"])

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Put a message into the mailbox, and return the run's own receipt. Takes `runs:steer`."""
        told = await self._api.post(f"{self._path}/messages", _message(text, fields))
        return MessageReceipt.model_validate(told)

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and put a message into the mailbox, which is read when the run goes on."""
        told = await self._api.post(f"{self._path}/pause-and-send", _message(text, fields))
        return MessageReceipt.model_validate(told)

    async def messages(self) -> list[MessageView]:
        """Return the unread messages, in the order of reading. Takes `runs:read`."""
        found: list[MessageView] = []
        while True:
            number = len(found) // int(_PAGE) + 1
            page = await self._api.get(f"{self._path}/messages", page=str(number), page_size=_PAGE)
            found += [MessageView.model_validate(entry) for entry in page["items"]]
            if len(page["items"]) < int(_PAGE):
                return found

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, which are reported, and return how many there were."""
        _refuse(principal)
        return int((await self._api.delete(f"{self._path}/messages", key=key))["cleared"])

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`;
        without one, as they are now, which takes `runs:read`.
        """
        _refuse(principal)
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
        """Move the deadline of an open interrupt, or change what happens then."""
        _refuse(principal)
        body: dict[str, Any] = _given(on_timeout=on_timeout)
        if deadline is not ...:
            body["deadline"] = deadline and deadline.isoformat()
        if timeout is not ...:
            body["timeout"] = _seconds(timeout)
        await self._api.patch(f"/interrupts/{quote(interrupt_id, safe='')}", body, key=key)

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return what was said to an agent of the run, and by it, oldest first. Takes `runs:read`."""
        found: list[TranscriptItem] = []
        asked = {"limit": _PAGE, **_given(address=address)}
        while True:
            page = await self._api.get(f"{self._path}/transcript", **asked)
            found += [TranscriptItem.model_validate(item) for item in page["items"]]
            if page["next_cursor"] is None or not page["items"]:
                return found
            asked["cursor"] = page["next_cursor"]


@dataclass(frozen=True, slots=True)
class HttpRuns:
    """The runs behind an API: to start them, and to list them."""

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
        """Start a run of a graph by its name, as `Client.runs.start`. Takes `runs:start`.

        With a `key` and without a `run_id` the id is made from the key.
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
            **_given(run_id=run_id, conversation_id=conversation_id, on_error=on_error),
        }
        status, told = await self.api.post_for_status("/runs", body, key=key)
        return Started(run_id=told["run_id"], created=status == _CREATED)

    async def list(
        self, wanted: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[RunView], str | None]:
        """Return runs, newest first, and the cursor of the next page, which is None after the last."""
        wanted = wanted or RunFilter()
        asked = {
            "status": sorted(wanted.statuses),
            "label": wanted.labels,
            "limit": str(limit),
            **_given(graph=wanted.graph, conversation_id=wanted.conversation_id, cursor=cursor),
        }
        page = await self.api.get("/runs", **asked)
        return [RunView.model_validate(item) for item in page["items"]], page["next_cursor"]


@dataclass(frozen=True, slots=True)
class HttpInbox:
    """What all running runs behind an API ask."""

    api: Connection

    async def list(
        self, wanted: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[InterruptView], str | None]:
        """Return open interrupts, the nearest deadlines first, and the cursor of the next page."""
        wanted = wanted or InboxFilter()
        asked = {
            "capability": sorted(wanted.capabilities),
            "limit": str(limit),
            **_given(
                graph=wanted.graph,
                conversation_id=wanted.conversation_id,
                before=wanted.before and wanted.before.isoformat(),
                cursor=cursor,
            ),
        }
        page = await self.api.get("/interrupts", **asked)
        return [InterruptView.model_validate(item) for item in page["items"]], page["next_cursor"]


@dataclass(frozen=True, slots=True)
class HttpConversations:
    """The conversations behind an API: their active runs, and control of all of these."""

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
        """Cancel each active run, and return their ids, of which there may be none."""
        given = _given(reason=reason, grace=_seconds(grace))
        return await self._reach(conversation_id, "interrupt", {**given, "mode": mode}, key)

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
        """Pause each active run, and return their ids."""
        given = _given(reason=reason, timeout=_seconds(timeout))
        body = {**given, "mode": mode, "on_timeout": on_timeout}
        return await self._reach(conversation_id, "pause", body, key)

    async def resume(
        self, conversation_id: str, reason: str | None = None, *, key: str | None = None
    ) -> list[str]:
        """Let each active run go on, and return their ids."""
        return await self._reach(conversation_id, "resume", _given(reason=reason), key)

    async def steer(
        self, conversation_id: str, text: str = "", **fields: Unpack[MessageFields]
    ) -> Steered:
        """Steer the one active run of an agent. Raises `no_active_run` and `ambiguous_run`."""
        body = _message(text, fields)
        told = await self.api.post(f"{conversation_path(conversation_id)}/steer", body)
        return Steered(run_id=told["runs"][0], message_id=told["message_id"])

    async def _reach(
        self, conversation_id: str, operation: str, body: Mapping[str, Any], key: str | None
    ) -> list[str]:
        path = f"{conversation_path(conversation_id)}/{operation}"
        runs: list[str] = (await self.api.post(path, body, key=key))["runs"]
        return runs


def conversation_path(conversation_id: str) -> str:
    """The path of a conversation. Raises SettingsError for an id that no path can hold."""
    if not conversation_id.strip("."):
        raise SettingsError(f"{conversation_id!r} is no id of a conversation that a path can hold")
    return f"/conversations/{quote(conversation_id, safe='')}"


def _refuse(principal: Principal | None) -> None:
    if principal is not None:
        raise ValueError(f"principal={principal.subject!r}: over HTTP the token says who it is")


def _given(**members: Any) -> dict[str, Any]:
    """The members that are there: null may mean something to the API."""
    return {name: value for name, value in members.items() if value is not None}


def _seconds(length: Duration | None) -> float | None:
    return None if length is None else seconds(length)


def _names(named: str | Sequence[str]) -> list[str]:
    return [named] if isinstance(named, str) else list(named)


def _message(text: str, fields: MessageFields) -> dict[str, Any]:
    _refuse(fields.get("principal"))
    given = {name: value for name, value in fields.items() if name not in ("principal", "ttl")}
    body = to_json(_given(text=text, ttl=_seconds(fields.get("ttl")), **given))
    return dict(body) if isinstance(body, dict) else {}
