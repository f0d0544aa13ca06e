"""A transcript page by page, as people see it, and which of a run's transcripts is meant.

A transcript is only ever added to, so a cursor is good for as long as it lasts: a reader who comes
back with it gets what was said since. Where people have undone a part of it, the cursor of what is gone
is told apart by a check sum over the last item before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from typing import Final

from abeyance.agents import transcript
from abeyance.agents.transcriptitem import TranscriptItem, shown
from abeyance.core.address import Address
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.histories import bookmark
from abeyance.storage.blobs import Blobs

MOST: Final = 1_000
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
        if address is not None and chosen(run_id, heads, address) != before:
            raise bookmark.unusable(cursor)
        address = before
    agent = chosen(run_id, heads, address)
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
    return found, bookmark.write(asked, place)


def chosen(run_id: str, heads: Mapping[str, str], address: str | None) -> str:
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
    match bookmark.read(asked, cursor):
        case {"address": str(address), "at": int(at), "check": str(check)} if at >= 0:
            return address, at, check
        case _:
            raise bookmark.unusable(cursor)


async def _items(blobs: Blobs, head: str) -> list[TranscriptItem]:
    if find_spec("pydantic_ai") is None:
        raise SettingsError(
            "transcripts of agents cannot be read by this process, which lacks what they are written "
            "with: run `pip install 'abeyance[agents]'` where it runs, and start it again"
        )
    try:
        return shown(await transcript.read(blobs, head))
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
