"""Questions or answers that are large together: the run goes on, and people can read it whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from sample_graphs import asking
from temporal_site import ANYBODY, Site, begun, eventually, refused
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Send
from abeyance.errors import Code


class State(BaseModel):
    total: int = 0


class Document(BaseModel):
    text: str = ""


@pytest.mark.slow
async def test_the_answer_with_which_a_run_would_stand_still_is_refused(
    temporal: TemporalClient,
) -> None:
    graph = Graph("large", state=State)

    @graph.node
    async def ask(state: State, ctx: Context) -> dict[str, Any]:
        return {"total": sum([len(await ctx.interrupt(f"q{number}")) for number in range(5)])}

    graph.edge(START, "ask")
    async with begun(temporal, graph) as (site, run):

        async def question(number: int) -> str:
            """Return the id of the question with this number, as soon as it is open."""

            async def found() -> str | None:
                asked = (await run.view()).interrupts
                return next((each.id for each in asked if each.name == f"q{number}"), None)

            return str(await eventually(found))

        for number in range(4):
            answer = {await question(number): "y" * 450_000}
            await run.respond(answer, principal=ANYBODY)
        last = await question(4)
        refusal = await refused(run.respond({last: "y" * 450_000}, principal=ANYBODY))
        await run.respond({last: "short"}, principal=ANYBODY)
        ended = await site.ended(run.run_id)

    assert refusal.code is Code.PAYLOAD_TOO_LARGE
    assert ended.status == "completed", ended.error
    assert ended.values["total"] == 4 * 450_000 + len("short")


async def test_a_call_that_temporal_would_not_take_is_refused_and_the_run_takes_the_next(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, asking(state=Document, answer_to="text"))
    large = "y" * 2_200_000
    async with site.worker():
        run = site.client.run(await site.start())
        await site.until(run.run_id, "awaiting-input")
        for call in (
            run.respond(response=large, principal=ANYBODY),
            run.send(large, principal=ANYBODY),
            run.steer("short", metadata={"letter": large}, principal=ANYBODY),
        ):
            refusal = await refused(call)
            assert refusal.code is Code.PAYLOAD_TOO_LARGE
            assert refusal.details["limit"] < refusal.details["actual"]
        await run.respond(response="short", principal=ANYBODY)
        ended = await site.ended(run.run_id)

    assert ended.values["text"] == "short"


async def test_a_run_that_asks_more_than_temporal_could_return_is_read_whole_and_controlled(
    temporal: TemporalClient,
) -> None:
    graph = Graph("looked", state=Document, interrupt_before=["one"])

    @graph.node(to=["one"])
    async def split(state: Document) -> list[Send]:
        return [Send("one", number) for number in range(25)]

    graph.node(name="one")(lambda state: {})
    graph.edge(START, "split")
    async with begun(temporal, graph, {"text": "x" * 200_000}) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        # Views that are read while the run is being paused must be whole, too.
        _, *others = await asyncio.gather(run.pause(), *(run.view() for _ in range(3)))
        paused = await run.view()
        listed = await run.interrupts()
        last = await run.interrupt(listed[-1].id)
        assert last is not None
        await run.respond({last.id: None}, principal=ANYBODY)
        await run.resume()
        resumed = await run.view()

    assert (paused.status, paused.degraded, len(paused.interrupts)) == ("paused", False, 25)
    assert [view.degraded for view in others if view is not None] == [False] * 3
    assert {(entry.abridged, len(entry.payload["values"]["text"])) for entry in listed} == {
        (False, 200_000)
    }
    assert (last.abridged, len(last.payload["values"]["text"])) == (False, 200_000)
    assert len(resumed.interrupts) == 24
