"""What a run does on a real server: it works, waits, is answered, ends, and can be replayed."""

from __future__ import annotations

import asyncio
from typing import Any

from sample_graphs import gated, gates
from temporal_site import ANYBODY, begun, refused
from temporalio.client import Client as TemporalClient

from abeyance import Principal, Refusal
from abeyance.errors import Code


async def test_a_run_waits_for_a_person_and_goes_on_with_the_answer(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated(), {"amount": 12.5}) as (site, run):
        waiting = await site.until(run.run_id, "awaiting-input")
        (receipt,) = await run.respond(
            {waiting.interrupts[0].id: {"approved": True}}, principal=ANYBODY
        )
        ended = await site.ended(run.run_id)

        assert waiting.interrupts[0].prompt == "Pay 12.5?"
        assert waiting.interrupts[0].address == "graph:gated;node:approve"
        assert receipt.answered_by == "ada"
        assert ended.status == "completed"
        assert ended.values["log"] == ["before", "after {'approved': True}"]
        assert ended.values["decision"] == {"approved": True}
        await site.replays(run.run_id)


async def test_eight_people_answer_at_once_and_one_gets_the_receipt(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated()) as (site, run):
        waiting = await site.until(run.run_id, "awaiting-input")
        id_ = waiting.interrupts[0].id
        people = [Principal(subject=f"p{n}", capabilities=("*",)) for n in range(8)]
        answers = await asyncio.gather(
            *(
                run.respond({id_: {"approved": True, "by": n}}, principal=person)
                for n, person in enumerate(people)
            ),
            return_exceptions=True,
        )
        ended = await site.ended(run.run_id)

        receipts = [answer for answer in answers if isinstance(answer, list)]
        refusals = [answer for answer in answers if isinstance(answer, Refusal)]
        assert len(receipts) == 1
        assert [refusal.code for refusal in refusals] == [Code.ALREADY_ANSWERED] * 7
        assert ended.status == "completed"
        await site.replays(run.run_id)


async def test_a_refused_answer_leaves_nothing_in_the_history(temporal: TemporalClient) -> None:
    async with begun(temporal, gated(capability="pay:approve")) as (site, run):
        waiting = await site.until(run.run_id, "awaiting-input")
        id_ = waiting.interrupts[0].id
        before = len((await site.history(run.run_id)).events)
        nobody = Principal(subject="bob")

        async def code(
            answers: dict[str, Any], who: Principal = ANYBODY, digest: str | None = None
        ) -> Code:
            digests = {} if digest is None else {id_: digest}
            refusal = await refused(run.respond(answers, principal=who, digests=digests))
            return refusal.code

        assert await code({id_: {"approved": "perhaps"}}) is Code.INVALID_ANSWER
        assert await code({id_: None}) is Code.INVALID_ANSWER
        assert await code({id_: {"approved": True}}, nobody) is Code.CAPABILITY_REQUIRED
        assert await code({f"{run.run_id}.0000": True}) is Code.UNKNOWN_INTERRUPT
        assert await code({id_: {"approved": True}, f"{run.run_id}.0": 1}) is Code.UNKNOWN_INTERRUPT
        assert await code({id_: {"approved": True}}, digest="sha256:00") is Code.STALE
        assert len((await site.history(run.run_id)).events) == before
        assert (await run.view()).status == "awaiting-input"


async def test_a_repeated_answer_gets_the_first_receipt_also_after_the_end(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gates(2)) as (site, run):
        waiting = await site.until(run.run_id, "awaiting-input")
        first, second = (entry.id for entry in waiting.interrupts)
        (receipt,) = await run.respond({first: {"n": 1}}, principal=ANYBODY)
        before = len((await site.history(run.run_id)).events)
        (again,) = await run.respond({first: {"n": 1.0}}, principal=ANYBODY)
        after = len((await site.history(run.run_id)).events)
        await run.respond({second: 0}, principal=ANYBODY)
        await site.ended(run.run_id)
    # No worker is up any more, so the client answers from the records.
    (much_later,) = await run.respond({first: {"n": 1}}, principal=ANYBODY)
    other = await refused(run.respond({first: {"n": 2}}, principal=ANYBODY))
    unnamed = await refused(run.respond(response=1, principal=ANYBODY))

    assert again.replayed
    assert again.accepted_at == receipt.accepted_at == much_later.accepted_at
    assert before == after
    assert other.code is Code.ALREADY_ANSWERED
    assert unnamed.code is Code.RUN_FINISHED
