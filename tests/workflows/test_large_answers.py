"""Answers that are large together: the one too many is refused, and the run goes on with the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Refusal
from abeyance.errors import Code


class State(BaseModel):
    total: int = 0


async def test_the_answer_with_which_a_run_would_stand_still_is_refused(
    temporal: TemporalClient,
) -> None:
    graph = Graph("large", state=State)

    @graph.node
    async def ask(state: State, ctx: Context) -> dict[str, Any]:
        return {"total": sum([len(await ctx.interrupt(f"q{number}")) for number in range(5)])}

    graph.edge(START, "ask")
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()

        async def question(number: int) -> str:
            """The id of the question with this number, as soon as it is open."""

            async def found() -> str | None:
                asked = (await site.client.view(run_id)).interrupts
                return next((each.id for each in asked if each.name == f"q{number}"), None)

            return str(await eventually(found))

        for number in range(4):
            answer = {await question(number): "y" * 450_000}
            await site.client.respond(run_id, answer, principal=ANYBODY)
        last = await question(4)
        with pytest.raises(Refusal) as refused:
            await site.client.respond(run_id, {last: "y" * 450_000}, principal=ANYBODY)
        await site.client.respond(run_id, {last: "short"}, principal=ANYBODY)
        ended = await site.ended(run_id)

    assert refused.value.code is Code.PAYLOAD_TOO_LARGE
    assert ended.status == "completed", ended.error
    assert ended.values["total"] == 4 * 450_000 + len("short")
