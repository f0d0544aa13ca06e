"""The client over HTTP, and its parts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack
from urllib.parse import quote

from pydantic import BaseModel

from abeyance import commands, wire
from abeyance.commands import lists
from abeyance.core.approvals import unknown as unknown_grant
from abeyance.core.delegations import unknown as unknown_delegation
from abeyance.core.json import Json, why_not_json
from abeyance.core.policy import Principal
from abeyance.core.state import Limits
from abeyance.filters import ApprovalsFilter, EventFilter, InboxFilter, RunFilter
from abeyance.handle import ConversationsHandle, MessageFields, Started, Steered
from abeyance.http.connection import Connection
from abeyance.http.events import follow as followed
from abeyance.http.events import past
from abeyance.http.run import CALLS, HttpRun, message_body, refuse_principal, waiting
from abeyance.orders import awaited, body_of, check_page, order_of
from abeyance.records.cursors import Page
from abeyance.records.grant_views import GrantView
from abeyance.records.report import Approvals
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import StateModel
from abeyance.util import (
    as_names,
    checked_mapping,
    checked_run_id,
    checked_text,
    invalid,
    without_none,
)
from abeyance.views import DelegationView, InterruptView, RunView, StreamEvent
from abeyance.wire import ErasureState

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph

_CREATED: Final = 201
_ID: Final = re.compile("[A-Za-z0-9_-]{1,100}")


class HttpClient:
    """A client of the API at `url`, authenticated by the bearer `token`.

    Close it, or use it with `async with`. Raises SettingsError for an invalid url or token.

    The parts are `runs` (start, list, erase), `inbox` (list), `conversations`, `delegations`, `grants`;
    `run` returns the handle of one run, `events` the events of all runs, `approvals` a page of a report.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.api = Connection(url, token)
        self.runs = HttpRuns(self.api)
        self.inbox = HttpInbox(self.api)
        self.conversations = HttpConversations(self.api)
        self.delegations = HttpDelegations(self.api)
        self.grants = HttpGrants(self.api)

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

    async def events(
        self,
        filters: EventFilter | None = None,
        *,
        after: str | None = None,
        follow: bool = True,
        on_gap: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of all runs after the event with the id `after`, as `Client.events` does.

        With `follow` also yield new events, without end. The client calls `on_gap` before it reopens
        an interrupted stream. Requires `runs:read`.
        """
        query = _query(check_page(lists.StreamPage, filters or EventFilter()))
        read = past(self.api, "", after, query)
        if follow:
            read = followed(self.api, "", after, query, on_gap=on_gap)
        async with aclosing(read) as events:
            async for event in events:
                yield StreamEvent.model_validate(event)

    async def approvals(
        self,
        filters: ApprovalsFilter | None = None,
        *,
        fields: Sequence[str] = (),
        sums: Sequence[str] = (),
        cursor: str | None = None,
        limit: int = 50,
    ) -> Approvals:
        """Return a page of the report of approvals, as `Client.approvals` does. Requires `runs:read`.

        An answer is left out if the caller lacks the capability of its question.
        """
        filters = filters or ApprovalsFilter()
        picked = {"fields": fields, "sums": sums, "cursor": cursor, "limit": limit}
        query = _query(check_page(lists.ApprovalsPage, filters, **picked))
        return Approvals.model_validate(await self.api.get("/approvals", **query))


@dataclass(frozen=True, slots=True)
class HttpRuns:
    """Start and list runs over HTTP."""

    api: Connection

    async def start(
        self,
        graph: Graph | str,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        session_type: str = "agent",
        labels: Mapping[str, str] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        on_behalf_of: str | None = None,
        reuse: bool = False,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
        allow_concurrent: bool = False,
        key: str | None = None,
        wait: float = 0.0,
        until: frozenset[str] = frozenset(),
    ) -> Started:
        """Start a run of a graph, given as an object or by its name, as `Client.runs.start` does.

        Requires `runs:start`, and `runs:start-for` for `on_behalf_of`. With a `key` and without a
        `run_id` the id is derived from the key.
        """
        body = {
            "graph": graph if isinstance(graph, str) else graph.name,
            "input": _input(input),
            "session_type": session_type,
            "labels": checked_mapping(labels or {}, "/labels"),
            "limits": _limits(limits),
            "interrupt_before": as_names(interrupt_before),
            "interrupt_after": as_names(interrupt_after),
            "reuse": reuse,
            "allow_concurrent": allow_concurrent,
            **without_none(
                run_id=run_id,
                conversation_id=conversation_id,
                on_error=on_error,
                on_behalf_of=on_behalf_of,
            ),
        }
        if (fault := why_not_json(body)) is not None:
            raise invalid([{"pointer": "", "message": f"is not JSON: {fault}"}])
        until, wait = awaited(until, wait)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        query = waiting(until, wait) if wait else {}
        status, response = await self.api.post_for_status("/runs", body, key=key, **query)
        is_new = status == _CREATED
        # Without `runs:read` the response has no view.
        is_shown = (is_new or wait) and "graph" in response
        view = RunView.model_validate(response) if is_shown else None
        if wait and view is not None and not view.is_awaited(until):
            run = HttpRun(self.api, view.run_id)
            view = await run.wait(until=until, timeout=deadline - loop.time())
        return Started(run_id=response["run_id"], created=is_new, view=view)

    async def erase(self, run_id: str) -> ErasureState:
        """Erase a run that has ended, as `Client.runs.erase` does. Requires `admin`."""
        state: ErasureState = (await self.api.delete(f"/runs/{checked_run_id(run_id)}"))["state"]
        return state

    async def list(
        self, filters: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[RunView], str | None]:
        """Return a page of runs, newest first, and the cursor of the next page or None."""
        page = await self.page(filters, cursor=cursor, limit=limit)
        return page.items, page.next_cursor

    async def page(
        self, filters: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[RunView]:
        """Return a page as `list` does, and the number of all runs that match."""
        filters = filters or RunFilter()
        query = _query(check_page(lists.RunsPage, filters, cursor=cursor, limit=limit))
        page = await self.api.get("/runs", **query)
        items = [RunView.model_validate(item) for item in page["items"]]
        return Page(items=items, next_cursor=page["next_cursor"], total=page["total"])


@dataclass(frozen=True, slots=True)
class HttpInbox:
    """Open interrupts of all runs, over HTTP."""

    api: Connection

    async def list(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[InterruptView], str | None]:
        """Return open interrupts, nearest deadline first, and the cursor of the next page."""
        page = await self.page(filters, cursor=cursor, limit=limit)
        return page.items, page.next_cursor

    async def page(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[InterruptView]:
        """Return a page as `list` does, and the number of all interrupts that match."""
        filters = filters or InboxFilter()
        query = _query(check_page(lists.InboxPage, filters, cursor=cursor, limit=limit))
        if filters.mine is not None:
            query["mine"] = "true"
        page = await self.api.get("/interrupts", **query)
        items = [InterruptView.model_validate(item) for item in page["items"]]
        return Page(items=items, next_cursor=page["next_cursor"], total=page["total"])


@dataclass(frozen=True, slots=True)
class HttpDelegations:
    """Make, list and delete delegations over HTTP."""

    api: Connection

    async def make(
        self,
        to: str,
        *,
        until: datetime,
        capabilities: Sequence[str] | None = None,
        since: datetime | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> DelegationView:
        """Let `to` answer in the caller's place, as `Client.delegations.make` does."""
        lent = None if capabilities is None else as_names(capabilities)
        about = {"capabilities": lent, "from_": since, "until": until, "reason": reason}
        body = body_of(commands.DelegateBody, {"to": to, **about})
        made = await self.api.post("/delegations", body, key=key)
        return DelegationView.model_validate(made)

    async def list(self) -> list[DelegationView]:
        """Return the delegations that the caller made or may use; with `admin`, all."""
        page = await self.api.get("/delegations")
        return [DelegationView.model_validate(each) for each in page["items"]]

    async def delete(self, id: str) -> DelegationView:  # noqa: A002
        """Delete and return a delegation that the caller made; with `admin`, anybody's."""
        if _ID.fullmatch(checked_text(id, "/id")) is None:
            raise unknown_delegation(id)
        deleted = await self.api.delete(f"/delegations/{id}")
        return DelegationView.model_validate(deleted)


@dataclass(frozen=True, slots=True)
class HttpGrants:
    """List and revoke remembered approvals over HTTP."""

    api: Connection

    async def list(self, *, status: Literal["standing", "all"] = "standing") -> list[GrantView]:
        """Return the caller's grants, oldest first; with `runs:control` or `admin`, everybody's.

        The `status` all includes the grants that let no call run any more: the newest 500.
        """
        page = await self.api.get("/grants", status=status)
        return [GrantView.model_validate(each) for each in page["items"]]

    async def revoke(self, id: str) -> GrantView:  # noqa: A002
        """Revoke and return a grant that the caller made; with `runs:control`, anybody's."""
        if _ID.fullmatch(checked_text(id, "/id")) is None:
            raise unknown_grant(id)
        return GrantView.model_validate(await self.api.delete(f"/grants/{id}"))


@dataclass(frozen=True, slots=True)
class HttpConversations(ConversationsHandle):
    """Control the active runs of conversations, over HTTP."""

    api: Connection

    async def _send(
        self,
        conversation_id: str,
        kind: type[commands.Order],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> list[str]:
        refuse_principal(principal)
        call = CALLS[kind]
        body = body_of(call.body, about)
        operation = "/interrupt" if kind is commands.Cancel else call.path
        path = f"{conversation_path(conversation_id)}{operation}"
        runs: list[str] = (await self.api.post(path, body, key=key))["runs"]
        return runs

    async def steer(
        self, conversation_id: str, text: str = "", **fields: Unpack[MessageFields]
    ) -> Steered:
        """Send a message to the only active run. Raises `no_active_run` and `ambiguous_run`."""
        body = message_body(text, fields)
        response = await self.api.post(f"{conversation_path(conversation_id)}/steer", body)
        return Steered(run_id=response["runs"][0], message_id=response["message_id"])


def _input(input: Mapping[str, Any] | BaseModel | None) -> Json:  # noqa: A002
    if isinstance(input, BaseModel):
        return to_json(input)
    return StateModel(None).initial({} if input is None else input)


def _query(page: wire.Request) -> dict[str, Any]:
    """Return the query of a list, without defaults."""
    return page.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _limits(limits: Limits | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the limits that differ from the defaults: some fields can only be set by the service."""
    if not isinstance(limits, Limits):
        return checked_mapping(limits or {}, "/limits")
    usual = asdict(Limits())
    return {name: value for name, value in asdict(limits).items() if value != usual[name]}


def conversation_path(conversation_id: str) -> str:
    """Return the path of a conversation. Raises `invalid_body`."""
    order_of(commands.OfConversation, {"conversation_id": conversation_id})
    return f"/conversations/{quote(conversation_id, safe='')}"
