"""Transcripts of a run's agents, which are read page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from typing import Final

from abeyance.agents import transcript
from abeyance.agents.transcript_view import TranscriptItem, transcript_items
from abeyance.core.address import Address
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.records import cursors
from abeyance.storage.blobs import Blobs
from abeyance.util import checked_text

MAX_ITEMS: Final = 1_000
"""The most items of a page."""
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
    """Return a page of a transcript as `RunReader.transcript_page`.

    `heads` are the references of the run's transcripts by the addresses of the agents; `is_over` says
    whether the run has ended.
    """
    criteria = {"transcript_of": run_id}
    start, check = 0, ""
    if cursor is not None:
        before, start, check = _place(criteria, cursor)
        if address is not None and choose_address(run_id, heads, address) != before:
            raise cursors.unusable(cursor)
        address = before
    agent = choose_address(run_id, heads, address)
    items = await read_items(blobs, heads[agent])
    if start > len(items) or check != _check(items[:start]):
        raise Refusal(
            Code.GONE,
            f"What precedes this cursor in the transcript of {agent!r} was replaced: read the transcript "
            "again from its beginning.",
            address=agent,
        )
    shown = _bounded(items[start : start + limit])
    end = start + len(shown)
    if is_over and end == len(items):
        return shown, None
    place = {"address": agent, "at": end, "check": _check(items[:end])}
    return shown, cursors.write(criteria, place)


def choose_address(run_id: str, heads: Mapping[str, str], address: str | None) -> str:
    """Return the address of the agent whose transcript `address` selects; None selects the only one.

    Raises the refusals `unknown_node`, and `invalid_body` if several match.
    """
    listed = sorted(heads)[:_MOST_LISTED]
    names = ", ".join(map(repr, listed))
    more = f" and {len(heads) - len(listed)} more" if len(heads) > len(listed) else ""
    if address is None:
        if len(heads) == 1:
            return next(iter(heads))
        if heads:
            message = f"{run_id!r} has {len(heads)} transcripts; name one of {names}{more}"
            raise Refusal(
                Code.INVALID_BODY,
                f"The request is invalid: /address: {message}.",
                errors=[{"pointer": "/address", "message": message, "in": "query"}],
                addresses=listed,
            )
        message = f"The run {run_id!r} has no transcript yet: no agent of it has taken a turn."
        raise Refusal(Code.UNKNOWN_NODE, message, addresses=[])
    checked_text(address, "/address")
    inside = [agent for agent in heads if _is_of(address, agent)]
    if inside:
        return max(inside, key=len)
    there = f"there is {names}{more}" if heads else "there is none"
    raise Refusal(
        Code.UNKNOWN_NODE,
        f"{truncate(address, _SHOWN)!r} is the address of no transcript in the run {run_id!r}; {there}.",
        addresses=listed,
    )


def _is_of(address: str, agent: str) -> bool:
    """Return whether an address belongs to an agent, or to a visit of the agent itself."""
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


def _place(criteria: Mapping[str, str], cursor: str) -> tuple[str, int, str]:
    match cursors.read(criteria, cursor):
        case {"address": str(address), "at": int(at), "check": str(check)} if at >= 0:
            return address, at, check
        case _:
            raise cursors.unusable(cursor)


async def read_items(blobs: Blobs, head: str) -> list[TranscriptItem]:
    """Return the items of a transcript, oldest first.

    Raises Unavailable; SettingsError if the extra `agents` is not installed.
    """
    if find_spec("pydantic_ai") is None:
        raise SettingsError(
            "this process cannot read transcripts, because the extra `agents` is not installed: run "
            "`pip install 'abeyance[agents]'`, and restart it"
        )
    try:
        return transcript_items(await transcript.read(blobs, head))
    except transcript.TranscriptError as error:
        raise Unavailable(str(error)) from error


def _bounded(items: Sequence[TranscriptItem]) -> list[TranscriptItem]:
    """Return the first items, up to the limit of a page in bytes, and at least one."""
    bounded: list[TranscriptItem] = []
    spent = 0
    for item in items:
        spent += len(item.model_dump_json())
        if bounded and spent > _MOST_BYTES:
            break
        bounded.append(item)
    return bounded


def _check(before: Sequence[TranscriptItem]) -> str:
    if not before:
        return ""
    text = before[-1].model_dump_json(exclude_defaults=True)
    return sha256(text.encode()).hexdigest()[:_CHECK_CHARS]
