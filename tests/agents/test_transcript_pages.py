"""Pages of a transcript: their bounds, their cursors, and the choice among several transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from abeyance import Refusal
from abeyance.agents import transcript
from abeyance.agents.transcript_pages import choose_address, page
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.errors import Code, Unavailable
from abeyance.storage.blobs import Blobs, FolderBlobs, MemoryBlobs

AGENT = "graph:g;node:n;agent:a"


def turn(text: str) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(f"ask {text}")]),
        ModelResponse(parts=[TextPart(text)]),
    ]


async def paged(
    blobs: Blobs, head: str, cursor: str | None = None, **options: Any
) -> tuple[list[TranscriptItem], str | None]:
    given: dict[str, Any] = {"address": None, "limit": 100, "is_over": False, **options}
    return await page(blobs, "r", {AGENT: head}, cursor=cursor, **given)


async def test_a_cursor_into_a_replaced_transcript_is_refused() -> None:
    blobs = MemoryBlobs()
    first = await transcript.append(blobs, "r", None, turn("one"))
    second = await transcript.append(blobs, "r", first, turn("two"))
    _, early = await paged(blobs, first)
    _, late = await paged(blobs, second)
    other = await transcript.append(blobs, "r", first, turn("another"))

    for head in (first, other):
        with pytest.raises(Refusal, match="replaced") as caught:
            await paged(blobs, head, late)
        assert caught.value.code is Code.GONE
    found, _ = await paged(blobs, other, early)
    assert [item.text for item in found] == ["ask another", "another"]


async def test_a_page_has_no_more_bytes_than_it_may_but_always_an_item() -> None:
    blobs = MemoryBlobs()
    head = await transcript.append(blobs, "r", None, turn("x" * 1_200_000) + turn("y" * 600_000))
    sizes = []
    cursor: str | None = None
    while True:
        found, cursor = await paged(blobs, head, cursor, is_over=True)
        sizes.append(len(found))
        if cursor is None:
            break

    assert sizes == [1, 1, 1, 1]


async def test_a_transcript_of_a_newer_version_is_unavailable(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    newer = await blobs.put("r", b'{"format": 2, "previous": null, "turns": 1, "row": 1}')

    with pytest.raises(Unavailable, match="upgrade this worker"):
        await paged(blobs, newer)


def test_the_innermost_agent_around_an_address_is_meant() -> None:
    inner = f"{AGENT};tool:b:1;graph:b;agent:b"
    heads = {AGENT: "1", inner: "2"}

    assert choose_address("r", heads, f"{AGENT};tool:b:1") == AGENT
    assert choose_address("r", heads, f"{inner};node:model:2") == inner
    assert choose_address("r", {AGENT: "1"}, None) == AGENT
    # The inner agent has no transcript yet, and the caller's is not taken in its place.
    with pytest.raises(Refusal) as caught:
        choose_address("r", {AGENT: "1"}, inner)
    assert caught.value.details["addresses"] == [AGENT]


def test_a_great_many_transcripts_are_not_all_listed() -> None:
    heads = {f"graph:g;node:n:{number};agent:a": "1" for number in range(2, 203)}

    with pytest.raises(Refusal, match="and 101 more") as caught:
        choose_address("r", heads, None)
    assert len(caught.value.details["addresses"]) == 100
