"""Where the transcripts of a run's agents are, read from the run's history: no worker is asked.

A run itself knows best, and tells it to whoever asks, and in its closing record. This is for a run that
cannot be asked and has left no record: because no worker is up, or because an operator ended it. Its
newest history begins with what was carried over from the one before, and has since the outcome of every
turn of a model, which names the end of the transcript then. What people have undone since is not
known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from abeyance.agents import transcript
from abeyance.agents.transcript_view import TranscriptItem, transcript_items
from abeyance.core.address import Address
from abeyance.core.items import TRANSCRIPT_FIELD
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.history import cursors
from abeyance.history.client import HistoryClient, unknown_run
from abeyance.history.event_translation import is_visit, mapping, sources
from abeyance.storage.blobs import Blobs
from abeyance.temporal.retry import NotFound


async def heads(
    temporal: TemporalClient, task_queue: str, run_id: str, *, patience: float
) -> dict[str, str]:
    """The references of a run's transcripts, by the addresses of the agents.

    Raises the refusal `unknown_run`, and Unavailable.
    """
    source = HistoryClient(temporal, task_queue, patience=patience)
    found = _Heads(source.converter(run_id))
    token = b""
    try:
        newest = await source.execution(run_id)
        while True:
            page = await source.history(run_id, newest.id, token, wait=False)
            for event in page.history.events:
                await found.read(event)
            token = page.next_page_token
            if not token:
                return found.by_address
    except NotFound:
        raise unknown_run(run_id) from None


class _Heads:
    """What the events of a history have told so far."""

    def __init__(self, converter: DataConverter) -> None:
        self.by_address: dict[str, str] = {}
        self._converter = converter
        self._turns: dict[int, str] = {}
        """The addresses of agents, by the events that scheduled turns of their models."""

    async def read(self, event: HistoryEvent) -> None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                begun = event.workflow_execution_started_event_attributes
                self._carried(await self._decoded(begun.input.payloads))
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                name = event.activity_task_scheduled_event_attributes.activity_type.name
                (address,) = await self._decoded(sources(event)) or (None,)
                if is_visit(name, address) and (agent := _around(str(address))) is not None:
                    self._turns[event.event_id] = agent
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed = event.activity_task_completed_event_attributes
                if (agent := self._turns.get(completed.scheduled_event_id)) is not None:
                    report = mapping(await self._decoded(sources(event)))
                    self._learn(agent, (report.get("outcome") or {}).get("patch"))
            case _:
                pass

    def _carried(self, given: list[Any]) -> None:
        """What a run begins with: `start`, the graph, the values of its scopes, and the snapshot."""
        values, snapshot = mapping(given[2:]), mapping(given[3:])
        for address, ref in (snapshot.get("transcripts") or {}).items():
            self._learn(address, {TRANSCRIPT_FIELD: ref})
        for address, fields in values.items():
            if Address.parse(address).is_agent:
                self._learn(address, fields)

    def _learn(self, agent: str, patch: Any) -> None:
        if isinstance(patch, Mapping) and isinstance(head := patch.get(TRANSCRIPT_FIELD), str):
            self.by_address[agent] = head

    async def _decoded(self, payloads: Any) -> list[Any]:
        return await self._converter.decode(payloads) if payloads else []


def _around(address: str) -> str | None:
    """The agent that a visit is directly in; None if it is in none."""
    around = Address.parse(address).parent
    return str(around) if around is not None and around.is_agent else None


MAX_ITEMS: Final = 1_000
"""How many items a page has at most."""
_MOST_BYTES: Final = 1_000_000
_MOST_LISTED: Final = 100
_SHOWN: Final = 300
_CHECK_CHARS: Final = 16


async def page(
    blobs: Blobs,
    run_id: str,
    heads: Mapping[str, str],
    *,
    address: str | None,
    cursor: str | None,
    limit: int,
    is_over: bool,
) -> tuple[list[TranscriptItem], str | None]:
    """Some items of a transcript, oldest first, and the cursor of what comes after them.

    A page may be short of `limit`. The cursor is None at the end of a transcript that nothing can be
    added to, because its run `is_over`; with any other, an empty page says: not yet.

    Args:
        blobs: Where transcripts are kept.
        run_id: The run.
        heads: Where its transcripts are, by the addresses of the agents.
        address: That of the agent, or of something in it. None: the only one, or that of the cursor.
        cursor: Where to go on; None is from the beginning.
        limit: How many items at most, from 1 to `MOST`.
        is_over: Whether the run has ended.

    Raises:
        Refusal: `unknown_node`, `invalid_body` for a cursor of something else, or where several
            transcripts could be meant, and `gone`.
        Unavailable: What was said cannot be read now.
        SettingsError: What reads transcripts is not installed.
    """
    asked = {"transcript_of": run_id}
    start, check = 0, ""
    if cursor is not None:
        before, start, check = _place(asked, cursor)
        if address is not None and choose_address(run_id, heads, address) != before:
            raise cursors.unusable(cursor)
        address = before
    agent = choose_address(run_id, heads, address)
    items = await _items(blobs, heads[agent])
    if start > len(items) or check != _check(items[:start]):
        raise Refusal(
            Code.GONE,
            f"What {agent!r} had said up to this cursor was undone since, so nothing follows on it: read "
            "the transcript again from its beginning.",
            address=agent,
        )
    found = _bounded(items[start : start + limit])
    end = start + len(found)
    if is_over and end == len(items):
        return found, None
    place = {"address": agent, "at": end, "check": _check(items[:end])}
    return found, cursors.write(asked, place)


def choose_address(run_id: str, heads: Mapping[str, str], address: str | None) -> str:
    """The address of the agent whose transcript is meant.

    Raises the refusals `unknown_node`, and `invalid_body` where several could be meant.
    """
    listed = sorted(heads)[:_MOST_LISTED]
    told = ", ".join(map(repr, listed))
    more = f" and {len(heads) - len(listed)} more" if len(heads) > len(listed) else ""
    if address is None:
        if len(heads) == 1:
            return next(iter(heads))
        if heads:
            message = f"{run_id!r} has {len(heads)} transcripts; say whose is meant: {told}{more}"
            raise Refusal(
                Code.INVALID_BODY,
                f"The request cannot be used. /address: {message}.",
                errors=[{"pointer": "/address", "message": message, "in": "query"}],
                addresses=listed,
            )
        message = f"No agent of the run {run_id!r} has said anything, so there is nothing to read."
        raise Refusal(Code.UNKNOWN_NODE, message, addresses=[])
    inside = [agent for agent in heads if _is_of(address, agent)]
    if inside:
        return max(inside, key=len)
    there = f"there is {told}{more}" if heads else "there is none"
    raise Refusal(
        Code.UNKNOWN_NODE,
        f"{address[:_SHOWN]!r} is the address of no transcript in the run {run_id!r}; {there}.",
        addresses=listed,
    )


def _is_of(address: str, agent: str) -> bool:
    """Whether an address is that of an agent, or of what the agent itself does."""
    if address == agent:
        return True
    if not address.startswith(f"{agent};"):
        return False
    try:
        within = Address.parse(address.removeprefix(f"{agent};"))
    except ValueError:
        return False
    # An agent that is called as a tool has a transcript of its own.
    return all(segment.type != "agent" for segment in within.segments)


def _place(asked: Mapping[str, str], cursor: str) -> tuple[str, int, str]:
    match cursors.read(asked, cursor):
        case {"address": str(address), "at": int(at), "check": str(check)} if at >= 0:
            return address, at, check
        case _:
            raise cursors.unusable(cursor)


async def _items(blobs: Blobs, head: str) -> list[TranscriptItem]:
    if find_spec("pydantic_ai") is None:
        raise SettingsError(
            "transcripts of agents cannot be read by this process, which lacks what they are written "
            "with: run `pip install 'abeyance[agents]'` where it runs, and start it again"
        )
    try:
        return transcript_items(await transcript.read(blobs, head))
    except transcript.TranscriptError as error:
        raise Unavailable(str(error)) from error


def _bounded(items: Sequence[TranscriptItem]) -> list[TranscriptItem]:
    """As many as a page may have in bytes, and one at least."""
    found: list[TranscriptItem] = []
    spent = 0
    for item in items:
        spent += len(item.model_dump_json())
        if found and spent > _MOST_BYTES:
            break
        found.append(item)
    return found


def _check(before: Sequence[TranscriptItem]) -> str:
    if not before:
        return ""
    told = before[-1].model_dump_json(exclude_defaults=True)
    return sha256(told.encode()).hexdigest()[:_CHECK_CHARS]
