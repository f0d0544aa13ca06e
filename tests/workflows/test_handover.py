"""Continue-as-new in the middle of everything: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import Any

import pytest
from sample_graphs import State, chain, gates
from temporal_site import ANYBODY, Site, begun
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowContinuedAsNewError, WorkflowExecutionStatus
from temporalio.service import RPCError

from abeyance import END, START, Context, Graph, Refusal, Send
from abeyance.core.state import Limits
from abeyance.records.claims import of_conversation
from abeyance.workflows import continue_as_new

SMALL = Limits(continue_as_new_after=6)


async def test_a_long_chain_is_handed_over_between_its_nodes_and_runs_each_once(
    temporal: TemporalClient,
) -> None:
    async with begun(
        temporal, chain(6), limits=SMALL, labels={"team": "blue"}, conversation_id="c1"
    ) as (site, run):
        ended = await site.ended(run.run_id)
        described = await temporal.get_workflow_handle(run.run_id).describe()
        assert ended.values["log"] == [f"n{number}" for number in range(6)]
        assert await site.executions(run.run_id) > 2
        assert (await run.result()).view.metrics is not None
        assert (ended.labels, ended.conversation_id) == ({"team": "blue"}, "c1")
        assert described.search_attributes["AbeyanceStatus"] == ["completed"]
        assert described.workflow_type == "chain"
        await site.replays(run.run_id)


def spread(count: int) -> Graph:
    """Return a graph whose node sends numbers, each of which a visit doubles."""
    graph = Graph("spread", state=State)

    @graph.node(to=["double"])
    async def split(state: State) -> list[Send]:
        return [Send("double", number) for number in range(count)]

    @graph.node
    async def double(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"{2 * ctx.item}"]}

    graph.edge(START, "split")
    graph.edge("double", END)
    return graph


async def test_a_run_whose_state_is_too_large_as_it_is_hands_it_over_in_fewer_bytes(
    temporal: TemporalClient, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(temporal, spread(120))
    async with site.worker():
        # A waiting visit takes some 900 bytes.
        small = Limits(continue_as_new_after=25, visit_bytes=25_000, max_parallel_visits=20)
        run_id = await site.start(limits=small)
        ended = await site.ended(run_id)

        assert sorted(map(int, ended.values["log"])) == [2 * number for number in range(120)]
        assert await site.executions(run_id) > 2
        await site.replays(run_id)
    assert "too large to continue as new" not in caplog.text


async def test_answers_controls_and_messages_at_once_over_many_hand_overs(
    temporal: TemporalClient,
) -> None:
    graph = Graph("loop", state=State)

    @graph.node(local=True)
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"{ctx.answers['more']}"]}

    graph.interrupt("more", prompt="Go on?")
    graph.edge(START, "more")
    graph.edge("more", "work")
    graph.route("work", lambda s: END if len(s.log) == 8 else "more", to=["more", END])
    site = Site(temporal, graph, patience=30)
    async with site.worker():
        run_id = await site.start(limits=SMALL)

        async def answer_all() -> None:
            for number in range(8):
                view = await site.until(run_id, "awaiting-input", "paused")
                # A degraded view may still show the previous question.
                while view.degraded or not view.interrupts:
                    view = await site.client.run(run_id).view()
                await site.client.run(run_id).respond(
                    {view.interrupts[0].id: number}, principal=ANYBODY
                )

        async def disturb() -> None:
            for number in range(10):
                try:
                    await site.client.run(run_id).pause()
                    await site.client.run(run_id).resume()
                    await site.client.run(run_id).send(message_id=f"m{number}", text="hello")
                except Refusal as over:
                    assert over.code == "not_running"
                    return

        await asyncio.gather(answer_all(), disturb())
        ended = await site.ended(run_id)

        assert ended.values["log"] == [str(number) for number in range(8)]
        assert ended.metrics is not None
        assert len(ended.undelivered) == ended.metrics.messages_queued
        assert ended.metrics.pause_count == ended.metrics.resume_count
        assert await site.executions(run_id) > 2


async def test_a_run_that_temporal_cancels_is_not_handed_over_and_leaves_its_conversation(
    temporal: TemporalClient,
) -> None:
    graph = gates(1, "cancelled-late")
    for name in ("one", "two", "three"):

        @graph.node(name=name)
        async def tidy(state: State) -> None:
            return None

        graph.finally_(name)
    talk = f"cancelled {uuid.uuid4()}"
    async with begun(temporal, graph, limits=SMALL, conversation_id=talk) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        handle = temporal.get_workflow_handle(run.run_id)
        await handle.cancel(reason="wrong customer")
        ended = await site.ended(run.run_id)

        assert (ended.status, ended.cancelled_by) == ("cancelled", "temporal")
        assert "wrong customer" in (ended.reason or "")
        assert await site.client.records.read(of_conversation, talk) == []
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
        await site.replays(run.run_id)


async def test_a_refusal_first_after_a_continue_as_new_forgets_nothing(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1, "refused-first"))
    async with site.worker():
        # The next execution begins with some events, and must not be handed over too.
        run_id = await site.start(limits=Limits(continue_as_new_after=20))
        await site.until(run_id, "awaiting-input")
        handle = temporal.get_workflow_handle(run_id)
        execution = (await handle.describe()).run_id
        first = temporal.get_workflow_handle(run_id, run_id=execution)
        handing_over = asyncio.create_task(first.result(follow_runs=False))
        while not handing_over.done():
            with suppress(RPCError):
                # Signal this execution alone: in the next one nothing may come before the refused answer.
                await first.signal("resume")
            await asyncio.wait([handing_over], timeout=0.05)
        assert isinstance(handing_over.exception(), WorkflowContinuedAsNewError)
        # The server delays a history that begins so soon after another, but not an update to it.
        with pytest.raises(Refusal):
            await site.client.run(run_id).respond({"nobody.0": 1}, principal=ANYBODY)
        history = await handle.fetch_history()
        types = [event.event_type for event in history.events]
        await handle.signal("cancel")
        ended = await site.ended(run_id)

        # Otherwise later events may wait forever, and a replay begins at another time.
        assert EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED in types
        assert ended.status == "cancelled"
        await site.replays(run_id)


@pytest.mark.parametrize(("largest", "is_kept"), [(1_900_000, False), (2_000, True)])
async def test_many_answers_while_an_idle_run_is_handed_over_every_few_events(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch, *, largest: int, is_kept: bool
) -> None:
    monkeypatch.setattr(continue_as_new, "_IDLE_EVENTS", 3)
    site = Site(temporal, gates(8), patience=30)
    async with site.worker():
        run_id = await site.start(limits=Limits(visit_bytes=largest))
        waiting = await site.until(run_id, "awaiting-input")
        ids = [entry.id for entry in await site.client.run(run_id).interrupts()]

        async def answer(number: int, id_: str) -> str:
            await site.client.run(run_id).send(message_id=f"m{number}", text="hello")
            (receipt,) = await site.client.run(run_id).respond({id_: number}, principal=ANYBODY)
            return receipt.interrupt_id

        *first, last = ids
        answered = await asyncio.gather(*(answer(n, id_) for n, id_ in enumerate(first)))
        answered.append(await answer(7, last))
        ended = await site.ended(run_id)

        assert waiting.status == "awaiting-input"
        assert answered == ids
        assert sorted(ended.values["log"]) == sorted(f"done{n} {n}" for n in range(8))
        assert (await site.executions(run_id) == 1) is is_kept
        await site.replays(run_id)
