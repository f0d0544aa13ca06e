"""What a run does on a real server: it works, waits, is answered, ends, and can be replayed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, Field
from sample_graphs import State, gated, gates
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Principal, Refusal, views
from abeyance.errors import Code


async def test_a_run_waits_for_a_person_and_goes_on_with_the_answer(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start({"amount": 12.5})
        waiting = await site.until(run_id, "awaiting-input")
        (receipt,) = await site.client.run(run_id).respond(
            {waiting.interrupts[0].id: {"approved": True}}, principal=ANYBODY
        )
        ended = await site.ended(run_id)

        assert waiting.interrupts[0].prompt == "Pay 12.5?"
        assert waiting.interrupts[0].address == "graph:gated;node:approve"
        assert receipt.answered_by == "ada"
        assert ended.status == "completed"
        assert ended.values["log"] == ["before", "after {'approved': True}"]
        assert ended.values["decision"] == {"approved": True}
        await site.replays(run_id)


async def test_eight_people_answer_at_once_and_one_gets_the_receipt(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        waiting = await site.until(run_id, "awaiting-input")
        id_ = waiting.interrupts[0].id
        people = [Principal(subject=f"p{n}", capabilities=("*",)) for n in range(8)]
        answers = await asyncio.gather(
            *(
                site.client.run(run_id).respond(
                    {id_: {"approved": True, "by": n}}, principal=person
                )
                for n, person in enumerate(people)
            ),
            return_exceptions=True,
        )
        ended = await site.ended(run_id)

        receipts = [answer for answer in answers if isinstance(answer, list)]
        refusals = [answer for answer in answers if isinstance(answer, Refusal)]
        assert len(receipts) == 1
        assert [refusal.code for refusal in refusals] == [Code.ALREADY_ANSWERED] * 7
        assert ended.status == "completed"
        await site.replays(run_id)


async def test_a_refused_answer_leaves_nothing_in_the_history(temporal: TemporalClient) -> None:
    site = Site(temporal, gated(capability="pay:approve"))
    async with site.worker():
        run_id = await site.start()
        waiting = await site.until(run_id, "awaiting-input")
        id_ = waiting.interrupts[0].id
        before = len((await site.history(run_id)).events)
        nobody = Principal(subject="bob")

        async def code(
            answers: dict[str, Any], who: Principal = ANYBODY, digest: str | None = None
        ) -> Code:
            digests = {} if digest is None else {id_: digest}
            with pytest.raises(Refusal) as refused:
                await site.client.run(run_id).respond(answers, principal=who, digests=digests)
            return refused.value.code

        assert await code({id_: {"approved": "perhaps"}}) is Code.INVALID_ANSWER
        assert await code({id_: None}) is Code.INVALID_ANSWER
        assert await code({id_: {"approved": True}}, nobody) is Code.CAPABILITY_REQUIRED
        assert await code({f"{run_id}.0000": True}) is Code.UNKNOWN_INTERRUPT
        assert await code({id_: {"approved": True}, f"{run_id}.0": 1}) is Code.UNKNOWN_INTERRUPT
        assert await code({id_: {"approved": True}}, digest="sha256:00") is Code.STALE
        assert len((await site.history(run_id)).events) == before
        assert (await site.client.run(run_id).view()).status == "awaiting-input"


async def test_a_repeated_answer_gets_the_first_receipt_also_after_the_end(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    async with site.worker():
        run_id = await site.start()
        waiting = await site.until(run_id, "awaiting-input")
        first, second = (entry.id for entry in waiting.interrupts)
        (receipt,) = await site.client.run(run_id).respond({first: {"n": 1}}, principal=ANYBODY)
        before = len((await site.history(run_id)).events)
        (again,) = await site.client.run(run_id).respond({first: {"n": 1.0}}, principal=ANYBODY)
        after = len((await site.history(run_id)).events)
        await site.client.run(run_id).respond({second: 0}, principal=ANYBODY)
        await site.ended(run_id)
    # No worker any more: the closing record answers.
    (much_later,) = await site.client.run(run_id).respond({first: {"n": 1}}, principal=ANYBODY)
    with pytest.raises(Refusal) as other:
        await site.client.run(run_id).respond({first: {"n": 2}}, principal=ANYBODY)
    with pytest.raises(Refusal) as unnamed:
        await site.client.run(run_id).respond(response=1, principal=ANYBODY)

    assert again.replayed
    assert again.accepted_at == receipt.accepted_at == much_later.accepted_at
    assert before == after
    assert other.value.code is Code.ALREADY_ANSWERED
    assert unnamed.value.code is Code.RUN_FINISHED


async def test_a_node_that_fails_for_good_fails_the_run_and_says_where(
    temporal: TemporalClient,
) -> None:
    tried: list[int] = []
    graph = Graph("hopeless", state=State)

    @graph.node(retries=1)
    async def hopeless(state: State) -> None:
        tried.append(1)
        raise ValueError("no such account: 7")

    @graph.node
    async def report(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"the end: {ctx.outcome}"]}

    graph.edge(START, "hopeless")
    graph.finally_("report")
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)
        result = await site.client.run(run_id).result()
        described = await temporal.get_workflow_handle(run_id).describe()

        assert len(tried) == 2
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error.code == "node_failed"
        assert ended.error.message == "ValueError: no such account: 7"
        assert ended.error.address == "graph:hopeless;node:hopeless"
        assert result.values["log"] == ["the end: failed"]
        assert described.status is not None
        assert described.status.name == "FAILED"
        await site.replays(run_id)


@pytest.mark.parametrize("local", [False, True])
async def test_an_answer_that_todays_type_refuses_is_asked_for_again(
    temporal: TemporalClient, *, local: bool
) -> None:
    class Stricter(State):
        amount: float = Field(0, le=100)

    def graph(model: type[BaseModel]) -> Graph:
        made = Graph("stricter", state=model)
        made.interrupt("how_much", prompt="How much?", answer_to="amount")
        made.interrupt("sure", prompt="Sure?", response=bool)

        @made.node(local=local)
        async def pay(state: Any) -> dict[str, Any]:
            return {"log": [f"paid {state.amount:g}"]}

        made.edge(START, "how_much")
        made.edge("how_much", "sure")
        made.edge("sure", "pay")
        return made

    site = Site(temporal, graph(State))
    run_id = await site.start()
    run = site.client.run(run_id)
    async with site.worker():
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        await run.respond(asked.id, 250, principal=ANYBODY)
    async with site.worker(graph(Stricter)):
        (sure,) = (await site.until(run_id, "awaiting-input")).interrupts
        await run.respond(sure.id, True, principal=ANYBODY)

        async def is_asked_again() -> views.InterruptView | None:
            found = (await run.view()).interrupts
            return next((each for each in found if each.name == "how_much"), None)

        again = await eventually(is_asked_again)
        assert "Asked again, because the answer does not fit: /amount" in again.prompt
        await run.respond(again.id, 90, principal=ANYBODY)
        (sure,) = (await site.until(run_id, "awaiting-input")).interrupts
        await run.respond(sure.id, True, principal=ANYBODY)
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert (ended.status, ended.values["log"]) == ("completed", ["paid 90"])
