from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from abeyance.agents import transcript
from abeyance.storage.blobs import BlobMissing, MemoryBlobs


class Counted(MemoryBlobs):
    """Blobs that count what is read and how many bytes are written."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.written: list[int] = []

    async def get(self, ref: str) -> bytes:
        self.reads += 1
        return await super().get(ref)

    async def put(self, run_id: str, data: bytes) -> str:
        self.written.append(len(data))
        return await super().put(run_id, data)


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    transcript.forget()
    yield
    transcript.forget()


def turn(number: int, size: int = 0) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(f"question {number}\n")]),
        ModelResponse(parts=[TextPart(f"answer {number}{'.' * size}")]),
    ]


async def held(blobs: MemoryBlobs, turns: Sequence[Sequence[ModelMessage]]) -> list[str]:
    heads: list[str] = []
    for messages in turns:
        heads.append(await transcript.append(blobs, "r1", heads[-1] if heads else None, messages))
    return heads


async def test_a_conversation_is_read_as_it_was_held() -> None:
    blobs = MemoryBlobs()
    messages: list[ModelMessage] = [
        ModelRequest(
            parts=[UserPromptPart(["Look:", BinaryContent(b"\x00\xff", media_type="a/b")])]
        ),
        ModelResponse(
            parts=[TextPart("line\nend\u2028"), ToolCallPart("t", {"x": [1, None]}, "c1")]
        ),
        ModelRequest(parts=[ToolReturnPart("t", {"done": True}, "c1")]),
    ]
    first = await transcript.append(blobs, "r1", None, messages[:1])
    head = await transcript.append(blobs, "r1", first, messages[1:])
    transcript.forget()

    assert await transcript.read(blobs, head) == messages
    assert await transcript.read(blobs, first) == messages[:1]
    assert await transcript.read(blobs, None) == []


@settings(max_examples=20, deadline=None)
@given(st.integers(min_value=1, max_value=200))
async def test_every_reference_ever_given_out_goes_on_to_mean_the_same(count: int) -> None:
    blobs = MemoryBlobs()
    turns = [turn(number) for number in range(count)]
    heads = await held(blobs, turns)
    transcript.forget()

    for index in {0, count // 3, count // 2, count - 1}:
        expected = [message for messages in turns[: index + 1] for message in messages]
        assert await transcript.read(blobs, heads[index]) == expected


async def test_a_long_conversation_is_read_from_few_blobs() -> None:
    blobs = Counted()
    heads = await held(blobs, [turn(number, 1_000) for number in range(100)])

    for head in heads:
        transcript.forget()
        blobs.reads = 0
        await transcript.read(blobs, head)
        assert blobs.reads <= 10


async def test_the_cost_of_a_turn_does_not_grow_with_the_conversation() -> None:
    blobs = Counted()
    head: str | None = None
    for number in range(200):
        transcript.forget()
        blobs.reads = 0
        head = await transcript.append(blobs, "r1", head, turn(number, 1_000))
        assert blobs.reads <= 1

    assert max(blobs.written) < transcript.MAX_BYTES + 500


async def test_large_turns_are_written_once() -> None:
    blobs = Counted()
    turns = [turn(number, 200_000) for number in range(20)]
    heads = await held(blobs, turns)

    assert max(blobs.written) < 202_000
    transcript.forget()
    assert len(await transcript.read(blobs, heads[-1])) == 40
    assert blobs.reads == 20


async def test_a_conversation_forks_without_being_copied() -> None:
    blobs = Counted()
    heads = await held(blobs, [turn(number) for number in range(20)])
    before = len(blobs.written)

    left = await transcript.append(blobs, "r1", heads[9], turn(100))
    right = await transcript.append(blobs, "r2", heads[9], turn(200))

    assert len(blobs.written) == before + 2
    common = [message for number in range(10) for message in turn(number)]
    for head, number in ((left, 100), (right, 200)):
        texts = [text_of(message) for message in await transcript.read(blobs, head)]
        assert texts == [text_of(message) for message in [*common, *turn(number)]]


def text_of(message: ModelMessage) -> str:
    [part] = message.parts
    assert isinstance(part, UserPromptPart | TextPart)
    return str(part.content)


async def test_a_turn_that_is_repeated_adds_nothing_twice() -> None:
    blobs = MemoryBlobs()
    messages = turn(1)
    head = await transcript.append(blobs, "r1", None, turn(0))

    first = await transcript.append(blobs, "r1", head, messages)
    again = await transcript.append(blobs, "r1", head, messages)

    assert again == first


async def test_a_continued_conversation_is_read_from_the_cache() -> None:
    blobs = Counted()
    heads = await held(blobs, [turn(number) for number in range(100)])

    assert len(await transcript.read(blobs, heads[-1])) == 200
    assert blobs.reads == 0


async def test_a_readers_changes_do_not_reach_the_cache() -> None:
    blobs = MemoryBlobs()
    head = await transcript.append(blobs, "r1", None, turn(0))

    mine = await transcript.read(blobs, head)
    mine[0].parts = []

    assert len((await transcript.read(blobs, head))[0].parts) == 1


async def test_the_cache_of_links_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "_cache", transcript._LinkCache(60_000))
    blobs = Counted()
    heads = await held(blobs, [turn(number, 20_000) for number in range(5)])
    blobs.reads = 0

    await transcript.read(blobs, heads[-1])

    assert blobs.reads >= 3


async def test_a_conversation_that_was_erased_is_missing_and_not_empty() -> None:
    with pytest.raises(BlobMissing, match="'r1/abc' is not a blob reference"):
        await transcript.read(MemoryBlobs(), "r1/abc")
    with pytest.raises(BlobMissing):
        await transcript.append(MemoryBlobs(), "r1", "r1/abc", turn(0))


async def test_appending_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="give at least one message"):
        await transcript.append(MemoryBlobs(), "r1", None, [])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x89PNG", "not part of a conversation"),
        (b"[1]", "not part of a conversation"),
        (b'{"format": 2}', "has the format 2, and this version reads 1"),
        (b'{"format": 1, "previous": null}\n{"kind": "new"}', "Upgrade this worker"),
    ],
)
async def test_a_blob_that_is_not_a_conversation_says_so(data: bytes, text: str) -> None:
    blobs = MemoryBlobs()
    ref = await blobs.put("r1", data)

    with pytest.raises(transcript.TranscriptError, match=text):
        await transcript.read(blobs, ref)
