"""The longest ids that callers may choose, on a server with the limits of a store over SQL."""

from __future__ import annotations

import pytest
from receiver import SECRET, SECRET_ENV, hook, receiver, rules
from sample_graphs import gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Refusal
from abeyance.client import Client
from abeyance.errors import Code

LONGEST, NAME = "i" * 200, "n" * 100


def nested() -> Graph:
    """Return a graph in three others, with the longest names: its addresses are longer than any id."""
    inner = Graph("inner")

    @inner.node(name=NAME)
    async def ask(state: object, ctx: Context) -> dict[str, object]:
        return {"said": await ctx.interrupt(NAME, prompt="?", remind=["1s"])}

    inner.edge(START, NAME)
    for number in range(3):
        outer = Graph("g" * 100 if number == 2 else f"outer{number}")
        outer.subgraph(NAME, inner, output={"said": "said"})
        outer.edge(START, NAME)
        outer.route(NAME, lambda state: "END", to=["END"])
        inner = outer
    return inner


async def test_the_longest_ids_of_all_kinds_work_with_notifications(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    async with receiver() as hooked:
        file = rules(({"event": ["interrupt.*", "run.*"]}, [hook(f"{hooked.url}/hook")]))
        site = Site(temporal, nested(), notifications=file)
        async with site.worker(), site.notifier():
            await site.start(run_id=LONGEST, conversation_id="\u00fc" * 100)
            run = site.client.run(LONGEST)
            await site.until(LONGEST, "awaiting-input")
            await run.steer("hear", message_id=LONGEST)
            await eventually(
                lambda: {"interrupt.reminded"} <= {each.json["type"] for each in hooked.posts()}
            )
            await run.respond(response="yes", principal=ANYBODY, key="k" * 200)
            ended = await site.ended(LONGEST)
            await eventually(lambda: any(p.json["type"] == "run.completed" for p in hooked.posts()))
            assert ended.values["said"] == "yes"
            await site.replays(LONGEST)
            await site.client.runs.erase(LONGEST)


@pytest.mark.parametrize("conversation_id", [None, "c"])
async def test_a_start_that_temporal_finds_invalid_is_refused_with_its_words(
    temporal: TemporalClient, conversation_id: str | None
) -> None:
    client = Client(temporal, task_queue="q" * 300)

    with pytest.raises(Refusal) as caught:
        await client.runs.start(gated(), {}, run_id="r", conversation_id=conversation_id)

    assert caught.value.code is Code.INVALID_BODY
    assert "exceed" in caught.value.message
