"""Runs whose payloads are encrypted or kept in storage: every reader gets the right values."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sample_graphs import gated
from sealed_site import replays
from stored import LARGE, LOGGED, SECRET, SHOWN, State, connected, letters, shows
from temporal_site import ANYBODY, Site, eventually, histories
from temporalio.client import Client as TemporalClient

from abeyance import START, Fatal, Graph, commands, views
from abeyance.core.json import sha256
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal
from abeyance.filters import InboxFilter, RunFilter
from abeyance.settings import Settings
from abeyance.storage.blobs import FolderBlobs

SMALL = Limits(continue_as_new_after=14)
# The slow lane tries each of the two alone.
WAYS = [
    pytest.param("stored", marks=pytest.mark.slow),
    pytest.param("encrypted", marks=pytest.mark.slow),
    "both",
    "required",
]


def broken() -> Graph:
    """Return a graph whose node fails for good, with a secret in its message."""
    graph = Graph("broken", state=State)

    @graph.node
    async def fails(state: State) -> dict[str, Any]:
        raise Fatal(f"no {SECRET}")

    graph.edge(START, "fails")
    return graph


def settings_for(way: str, folder: Path, keys: str) -> Settings:
    return Settings(
        storage=None if way == "encrypted" else str(folder),
        encryption_keys=None if way == "stored" else keys,
        encryption_required=way == "required",
    )


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_with_a_large_value_a_question_and_hand_overs_is_read_right_everywhere(
    temporal: TemporalClient, tmp_path: Path, keys: str, way: str
) -> None:
    settings = settings_for(way, tmp_path, keys)
    site = Site(connected(temporal, settings), letters(way))
    async with site.worker():
        run_id = await site.start(
            {"given": LARGE}, limits=SMALL, labels={"kind": way}, started_by="bea"
        )
        waiting = await site.until(run_id, "awaiting-input")
        (question,) = await site.client.run(run_id).interrupts()
        assert question.payload == {"text": LARGE[:SHOWN]}
        assert waiting.values["text"] == LARGE

        async def is_listed() -> bool:
            rows, _ = await site.client.runs.list(RunFilter(labels=(f"kind={way}",)))
            asked, _ = await site.client.inbox.list(InboxFilter(graph=way))
            return any(row.run_id == run_id for row in rows) and any(
                row.run_id == run_id and SECRET in row.prompt for row in asked
            )

        await eventually(is_listed)
        following = asyncio.create_task(followed(site, run_id))
        answer = {"note": LARGE}
        (receipt,) = await site.client.run(run_id).respond(
            {question.id: answer}, principal=ANYBODY, key="once"
        )
        ended = await site.ended(run_id)
        await replays(site, run_id)
    # No worker is up from here on.
    view = await site.client.run(run_id).view()
    record = await site.client.run(run_id).result()
    events = await site.published(run_id)
    texts = [each.to_json() for each in await histories(site.temporal, run_id)]

    for values in (ended.values, view.values, record.values):
        assert values["text"] == values["given"] == LARGE
        assert values["log"] == LOGGED
    assert [entry.answer_sha256 for entry in record.interrupts] == [sha256(answer)]
    (again,) = await site.client.run(run_id).respond(
        {question.id: answer}, principal=ANYBODY, key="once"
    )
    assert again == replace(receipt, replayed=True)
    types = [event.type for event in events]
    assert types[0] == "run.started"
    assert events[0].actor == "bea"
    assert types.count("node.finished") == len(LOGGED)
    assert [event.data for event in events if event.type == "user.collected"] == [
        {"data": {"size": len(LARGE)}}
    ]
    assert types[-1] == "run.completed"
    assert await following == events
    assert len(texts) > 1, "it was not handed over"
    if way != "encrypted":
        assert sum(map(len, texts)) < len(LARGE)
    for text in texts:
        assert shows(text, f"{way}."), "names of activities are not encrypted"
        if way != "stored":
            assert not shows(text, SECRET)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (SECRET.encode() in kept) == (way == "stored")
    assert (kept == b"") == (way == "encrypted")
    # The records have the result, so it outlives the blobs.
    await FolderBlobs(tmp_path).delete_run(run_id)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (await site.client.run(run_id).result()).values == ended.values


async def followed(site: Site, run_id: str) -> list[views.Event]:
    return [event async for event in await site.client.feed.opened(run_id, None)]


@pytest.mark.parametrize("way", ["stored", "required"])
async def test_the_reason_of_a_failure_is_shown_but_not_in_an_encrypted_history(
    temporal: TemporalClient, tmp_path: Path, keys: str, way: str
) -> None:
    site = Site(connected(temporal, settings_for(way, tmp_path, keys)), broken())
    async with site.worker():
        run_id = await site.start()
        await site.ended(run_id)
    view = await site.client.run(run_id).view()
    events = await site.published(run_id)

    assert view.status == "failed"
    assert view.error is not None
    assert SECRET in view.error.message
    assert [SECRET in str(event.data["message"]) for event in events[-2:]] == [True, True]
    text = (await site.history(run_id)).to_json()
    assert shows(text, SECRET) == (way == "stored")


async def test_the_memo_of_a_cancelled_run_is_read(
    temporal: TemporalClient, tmp_path: Path, keys: str
) -> None:
    graph = Graph("cancelled", state=State)
    graph.interrupt("approve", prompt="Send it?")
    graph.edge(START, "approve")
    settings = Settings(storage=str(tmp_path), encryption_keys=keys, max_payload=1_024)
    site = Site(connected(temporal, settings), graph)
    given = LARGE[:5_000]
    async with site.worker():
        run_id = await site.start({"given": given})
        await site.until(run_id, "awaiting-input")
        # Temporal's own tools cancel a run like this, which leaves no result.
        await site.temporal.get_workflow_handle(run_id).cancel()
        await site.ended(run_id)
    record = await site.client.run(run_id).result()

    assert (record.outcome, record.values["given"]) == ("cancelled", given)
    assert (await site.published(run_id))[-1].type == "run.cancelled"

    async def is_listed() -> bool:
        wanted = RunFilter(graph="cancelled", statuses=frozenset({"cancelled"}))
        return [row.run_id for row in (await site.client.runs.list(wanted))[0]] == [run_id]

    await eventually(is_listed)


async def test_keys_are_rotated_while_a_run_waits(
    temporal: TemporalClient, tmp_path: Path, keys: str
) -> None:
    before = Site(connected(temporal, settings_for("required", tmp_path, keys)), letters())
    async with before.worker():
        run_id = await before.start()
        await before.until(run_id, "awaiting-input")
    second = keys.replace("first:", "second:")[:-4] + "AAA="
    rotated = connected(temporal, settings_for("required", tmp_path, f"{second},{keys}"))
    site = Site(rotated, letters(), beside=before)
    async with site.worker():
        await site.answer(run_id, {"note": LARGE})
        ended = await site.ended(run_id)

        assert ended.values["log"] == LOGGED
        await replays(site, run_id)
    # A client that has only the new key reads what this key has sealed, such as the result.
    late = Site(connected(temporal, settings_for("required", tmp_path, second)), beside=before)
    assert (await late.client.run(run_id).view()).values == ended.values


async def test_an_unchanged_large_value_is_kept_once_however_often_it_travels(
    temporal: TemporalClient, tmp_path: Path, keys: str
) -> None:
    graph = Graph("steps", state=State)

    async def look(state: State) -> dict[str, Any]:
        return {"log": [str(len(state.text))]}

    names = [f"look{number}" for number in range(6)]
    for name in names:
        graph.node(name=name)(look)
    for source, target in pairwise([START, *names]):
        graph.edge(source, target)
    site = Site(connected(temporal, settings_for("both", tmp_path, keys)), graph)
    async with site.worker():
        run_id = await site.start({"text": LARGE})
        ended = await site.ended(run_id)

    assert ended.values["log"] == [str(len(LARGE))] * 6
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    # The input, the values of each order (which differ by a line of the log), and the end.
    assert sum(size > 150_000 for size in sizes) <= 10
    history = (await site.history(run_id)).to_json()
    assert len(gzip.compress(history.encode())) < 30_000


@pytest.mark.parametrize("way", [pytest.param("stored", marks=pytest.mark.slow), "required"])
async def test_a_refused_call_leaves_nothing_in_the_storage(
    temporal: TemporalClient, tmp_path: Path, keys: str, way: str
) -> None:
    settings = settings_for(way, tmp_path, keys)
    site = Site(connected(temporal, settings), gated())
    limits = Limits(max_message_length=100_000, max_queue_size=5)

    def stored() -> int:
        return sum(file.is_file() for file in tmp_path.rglob("*"))

    def send(number: int) -> Awaitable[Any]:
        text = f"{number} {'x' * 90_000}"
        return run.send_message(commands.SteerMessage(message_id=f"m{number}", text=text))

    async with site.worker():
        run_id = await site.start(limits=limits)
        run = site.client.run(run_id)
        question = await site.asked(run_id)
        before = stored()
        results = await asyncio.gather(*map(send, range(30)), return_exceptions=True)
        refused = [each for each in results if isinstance(each, Refusal)]
        assert {each.code for each in refused} == {Code.QUEUE_FULL}
        assert (len(refused), stored() - before) == (25, 5)

        # A caller may send a message again, whether it was refused or accepted.
        first = next(n for n, each in enumerate(results) if isinstance(each, views.MessageReceipt))
        assert (await send(first)).duplicate
        await run.clear_messages()
        again = next(n for n, each in enumerate(results) if isinstance(each, Refusal))
        await send(again)
        assert stored() - before == 6

        large = {"approved": "x" * 90_000}
        for id_, answer in ((question.id, large), (f"{run_id}.{'0' * 16}", large)):
            with pytest.raises(Refusal):
                await run.respond(id_, answer, principal=ANYBODY)
        assert stored() - before == 6
        await run.respond(question.id, {"approved": True}, principal=ANYBODY)
        with pytest.raises(Refusal):
            await run.respond(question.id, large, principal=ANYBODY)
        await site.ended(run_id)
        await replays(site, run_id)
