"""Answers and their types on a real server: refused as such, kept as written, and replayed."""

from __future__ import annotations

import asyncio
from datetime import time
from typing import Any

import pytest
from answer_samples import Money, Share
from pydantic import BaseModel
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Refusal


class Shop(BaseModel):
    opens: time | None = None
    fee: Money | None = None
    said: str = ""


def shop() -> Graph:
    graph = Graph("shop", state=Shop, interrupt_before=["say"])
    graph.interrupt("opens", prompt="When?", answer_to="opens")
    graph.interrupt("fee", prompt="How much?", answer_to="fee")

    @graph.node(name="say", retries=0)
    async def say(state: Shop, ctx: Context) -> dict[str, Any]:
        share = await ctx.interrupt("share", prompt="Which share?", response=Share)
        return {"said": f"{state.opens} {state.fee} {share.percent}"}

    graph.edge(START, "opens")
    graph.edge("opens", "fee")
    graph.edge("fee", "say")
    return graph


async def asked(site: Site, run_id: str, name: str) -> Any:
    """Return the open interrupt of this name, once the run has asked it."""

    async def found() -> Any:
        view = await site.client.run(run_id).view()
        return next((each for each in view.interrupts if each.name == name), None)

    return await eventually(found)


async def test_a_server_refuses_and_keeps_answers_as_a_test_in_memory_does(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, shop(), strict_sandbox=True)
    async with site.worker():
        run_id = await site.start()
        run = site.client.run(run_id)

        async def refused(name: str, answer: Any) -> Refusal:
            with pytest.raises(Refusal) as refusal:
                await run.respond((await asked(site, run_id, name)).id, answer, principal=ANYBODY)
            return refusal.value

        assert (await refused("opens", "25:00")).code == "invalid_answer"
        opens = (await asked(site, run_id, "opens")).id
        # Two people answer at once, each in a form of their own.
        both = await asyncio.gather(
            run.respond(opens, "10:00", principal=ANYBODY),
            run.respond(opens, "11:00", principal=ANYBODY),
            return_exceptions=True,
        )
        lost = [each for each in both if isinstance(each, Refusal)]
        assert [each.code for each in lost] == ["already_answered"]
        assert (await refused("fee", "-5.00")).code == "invalid_answer"
        await run.respond(
            (await asked(site, run_id, "fee")).id, "12345678901234567.80", principal=ANYBODY
        )
        stop = await asked(site, run_id, "interrupt_before")
        kept = stop.payload["values"]
        assert kept["opens"] in ("10:00:00", "11:00:00")
        assert kept["fee"] == "12345678901234567.80"
        edit = {"values": {"opens": "9:99"}, "version": stop.payload["version"]}
        assert (await refused("interrupt_before", edit)).details["errors"][0]["pointer"] == (
            "/values/opens"
        )
        shown = {"values": {**kept, "opens": "09:30"}, "version": stop.payload["version"]}
        await run.respond(stop.id, shown, principal=ANYBODY)
        assert "must be even" in (await refused("share", {"percent": 3})).message
        await run.respond(
            (await asked(site, run_id, "share")).id, {"percent": 4}, principal=ANYBODY
        )
        view = await site.ended(run_id)
        assert view.values["said"] == "09:30:00 12345678901234567.80 4"
        await site.replays(run_id)
