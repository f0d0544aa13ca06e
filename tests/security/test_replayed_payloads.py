"""Sealed payloads that an intruder hands in again: to another run, later, or as another order.

`test_encryption.py` has the tests of payloads that are not sealed at all.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from intruder import Intruder
from sealed_site import State, a_key, asking, paying, question, replays, stays
from stored import LARGE, connected
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client as TemporalClient

from abeyance import START, Fatal, Graph, Principal, commands, views
from abeyance.errors import Code, Refusal
from abeyance.settings import Settings
from abeyance.storage.converter import of_run


async def test_the_sealed_answer_of_one_run_is_refused_by_another(
    site: Site, intruder: Intruder
) -> None:
    small, asked = await asking(site)
    large = await site.start({"amount": 1_000_000})
    await question(site, large, "check")
    await site.client.run(small).respond(response="yes", principal=ANYBODY)
    (answer,) = await intruder.updates(small, "respond")

    assert f"it was sealed for {small!r}" in await intruder.refused(large, answer)
    await intruder.signal(large, "steer", answer)
    await intruder.signal(large, "cancel", answer)

    async def reported() -> bool:
        return bool(await site.published(large, "signal.refused"))

    await eventually(reported)
    assert len(await site.published(large, "message.rejected")) == 1
    await stays(site, large)
    assert asked.id.startswith(small)


async def test_an_answer_without_an_id_is_not_taken_again_for_a_later_question(
    site: Site, intruder: Intruder
) -> None:
    run_id, _ = await asking(site)
    await site.client.run(run_id).respond(response="yes", principal=ANYBODY)
    await question(site, run_id, "confirm")
    (answer,) = await intruder.updates(run_id, "respond")

    await intruder.refused(run_id, answer, code=Code.STALE)
    view = await site.client.run(run_id).view()
    assert (view.status, view.values["log"]) == ("awaiting-input", ["check yes"])


async def test_an_answer_that_was_held_back_answers_no_other_question(
    site: Site, intruder: Intruder
) -> None:
    """An intruder can take a worker's task from the queue, and hand it on later."""
    run_id, _ = await asking(site)
    order = commands.Respond(response="yes", principal=ANYBODY)
    line = site.client.line
    bound = await site.client.run(run_id)._bound(order)
    late = line.stamped("respond", bound, await line.admit(run_id))
    (held_back,) = await of_run(site.temporal.data_converter, run_id).encode([late])
    await site.client.run(run_id).respond(response="no", principal=ANYBODY)
    await question(site, run_id, "confirm")

    await intruder.refused(run_id, held_back, code=Code.STALE)
    assert (await site.client.run(run_id).view()).values["log"] == ["check no"]


async def test_an_answer_to_a_question_that_is_not_open_yet_does_not_count_once_it_is(
    site: Site,
) -> None:
    run_id, asked = await asking(site)
    run = site.client.run(run_id)
    early = commands.Respond(interrupt_id="later", response="yes", principal=ANYBODY)
    assert (await run._bound(early)).digests == {"later": ""}

    with pytest.raises(Refusal) as refused:
        await run.respond({asked.id: "yes"}, principal=ANYBODY, digests={asked.id: ""}, key="k")
    assert refused.value.code is Code.STALE
    await stays(site, run_id)


async def test_a_sealed_order_is_not_taken_for_another_one(site: Site, intruder: Intruder) -> None:
    run_id, _ = await asking(site)
    await site.client.run(run_id).clear_messages(principal=Principal(subject="ada"))
    await site.client.run(run_id).control(commands.Pause(actor="ada"))
    (cleared,) = await intruder.updates(run_id, "clear_messages")

    # Like a resume, this order says only who sends it.
    await intruder.signal(run_id, "resume", cleared)

    async def reported() -> list[views.Event]:
        return await site.published(run_id, "signal.refused")

    await eventually(reported)
    assert (await site.client.run(run_id).view()).status == "paused"


async def test_a_run_that_is_started_again_by_a_copy_asks_again_and_takes_no_old_answer(
    site: Site, intruder: Intruder
) -> None:
    run_id, asked = await asking(site)
    await site.client.run(run_id).respond({asked.id: "yes"}, principal=ANYBODY)
    (answer,) = await intruder.updates(run_id, "respond")
    start = await intruder.start_of(run_id)
    await site.client.run(run_id).cancel()
    await site.ended(run_id)
    await intruder.start(run_id, *start)
    again = await question(site, run_id, "check")
    assert (again.id, again.digest) == (asked.id, asked.digest)

    assert "for the execution" in await intruder.refused(run_id, answer)
    await stays(site, run_id)


async def test_a_reference_leads_to_a_blob_only_if_it_is_sealed_and_of_the_run(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    settings = Settings(
        encryption_keys=a_key(), encryption_required=True, storage=str(tmp_path), max_payload=1_024
    )
    site = Site(connected(temporal, settings), paying())
    intruder = Intruder(temporal, site)
    async with site.worker():
        given = {"amount": 101, "text": LARGE[:5_000]}
        small, large = [await site.start(given) for _ in range(2)]
        for run_id in (small, large):
            await question(site, run_id, "check")
        await site.client.run(small).respond(response=LARGE[:5_000], principal=ANYBODY)
        (answer,) = await intruder.updates(small, "respond")
        assert b'"sealed"' in answer.data, "it is a reference"
        assert str(next(tmp_path.iterdir()).name).encode() not in answer.data
        await intruder.refused(large, answer)

        # A plain reference to a blob of this very run.
        (blob, *_) = [
            path for path in tmp_path.rglob("*") if large[:12] in str(path) and path.is_file()
        ]
        claim = f'{{"driverName": "abeyance", "claimData": {{"ref": "{blob.parent.name}/{blob.name}"}}}}'
        plain = Payload(metadata=dict(answer.metadata), data=claim.encode())
        for forged in (
            plain,
            Payload(
                metadata=dict(answer.metadata), data=claim.replace('"ref"', '"sealed"').encode()
            ),
        ):
            await intruder.refused(large, forged)
        await stays(site, large)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("copied", "was not sealed for this visit"),
        ("plain", "The payload is refused: it is not encrypted"),
        ("failed", "The payload is refused: it is not encrypted"),
    ],
)
async def test_a_result_that_somebody_else_hands_in_fails_its_visit_and_is_not_taken(
    temporal: TemporalClient, sealed: Settings, how: str, why: str
) -> None:
    graph = Graph("guarded", state=State)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @graph.node
    async def first(state: State) -> dict[str, Any]:
        return {"log": ["harmless"]}

    @graph.node
    async def guard(state: State) -> dict[str, Any]:
        begun.set()
        await goes_on.wait()
        raise Fatal("this may not be paid")

    @graph.node
    async def pay(state: State) -> dict[str, Any]:
        return {"log": ["PAID"]}

    for source, target in ((START, "first"), ("first", "guard"), ("guard", "pay")):
        graph.edge(source, target)
    site = Site(connected(temporal, sealed), graph)
    intruder = Intruder(temporal, site)
    async with site.worker():
        run_id = await site.start()
        await begun.wait()
        (copied,) = await intruder.results(run_id)
        plain = b'{"outcome": {"kind": "finished", "patch": {}}}'
        forged = Payload(metadata={"encoding": b"json/plain"}, data=plain)
        if how == "failed":
            await intruder.fail(run_id, Failure(encoded_attributes=forged))
        else:
            await intruder.complete(run_id, copied if how == "copied" else forged)
        ended = await site.ended(run_id)
        goes_on.set()

    # The run itself has failed in order: it has its values, and may be retried.
    assert (ended.status, ended.values["log"]) == ("failed", ["harmless"])
    assert ended.error is not None
    assert why in ended.error.message
    await replays(site, run_id)
