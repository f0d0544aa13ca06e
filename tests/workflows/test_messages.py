"""The mailbox of a run on a real server: accepted means taken once, or reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from sample_graphs import Held
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError

from abeyance import START, Backoff, Context, Graph, Refusal, append, commands
from abeyance.core.events import Message
from abeyance.core.state import Limits
from abeyance.errors import Code

_ACCEPTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED


class Read(BaseModel):
    log: Annotated[list[str], append] = []
    enough: bool = False


def message(number: int, **about: Any) -> commands.SteerMessage:
    return commands.SteerMessage(message_id=f"m{number}", **{"text": f"hello {number}", **about})


async def accepted(site: Site, run_id: str) -> int:
    """How many updates the history of the run has."""
    history = await site.history(run_id)
    return sum(event.event_type == _ACCEPTED for event in history.events)


def reading(name: str = "reading", *, pause: float = 0.02) -> Graph:
    """Two nodes in turn, one with an inbox and one that asks, until one of them reads `enough`."""
    graph = Graph(name, state=Read)

    def told(found: Sequence[Message]) -> dict[str, Any]:
        return {
            "log": [each.message_id for each in found],
            "enough": any(each.text == "enough" for each in found),
        }

    @graph.node(retries=5)
    async def inboxed(state: Read, inbox: Sequence[Message]) -> dict[str, Any]:
        return told(inbox)

    @graph.node(retries=5)
    async def asking(state: Read, ctx: Context) -> dict[str, Any]:
        found: list[Message] = []
        for _ in range(5):
            if (each := await ctx.check_interrupt()) is not None:
                found.append(each)
            await asyncio.sleep(pause)
        return told(found)

    graph.edge(START, "inboxed")
    graph.edge("inboxed", "asking", when={"enough": False})
    graph.edge("asking", "inboxed", when={"enough": False})
    graph.edge("inboxed", "last", when="else")
    graph.edge("asking", "last", when="else")

    @graph.node
    async def last(state: Read) -> None:
        return None

    return graph


async def test_messages_are_taken_once_in_order_and_the_rest_is_reported(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        for number in range(3):
            receipt = await site.client.run(run_id).send_message(message(number))
            assert (receipt.duplicate, receipt.queue_depth) == (False, number + 1)
        again = await site.client.run(run_id).send_message(message(1))

        async def take(start: int, upto: int) -> list[str]:
            order = commands.TakeMessages(visit="graph:held;node:hold", start=start, upto=upto)
            return [each.message_id for each in await site.client.run(run_id).take_messages(order)]

        first = await take(0, 2)
        second = await take(2, 4)
        retried = await take(0, 2)
        before = await accepted(site, run_id)
        order = commands.TakeMessages(visit="graph:held;node:hold", start=3, upto=5)
        with pytest.raises(WorkflowUpdateFailedError):
            await temporal.get_workflow_handle(run_id).execute_update("take_messages", order)
        nothing = await take(3, 5)
        after = await accepted(site, run_id)
        await site.client.run(run_id).send_message(message(9))
        held.release.set()
        ended = await site.ended(run_id)
        result = await site.client.run(run_id).result()

        assert again.duplicate
        assert (first, second, retried, nothing) == (["m0", "m1"], ["m2"], ["m0", "m1"], [])
        assert before == after
        for reported in (ended.undelivered, result.undelivered):
            # What was taken in the node's name never reached its code, so nobody has read it.
            assert [left.message_id for left in reported] == ["m0", "m1", "m2", "m9"]
            assert {left.reason for left in reported} == {"completed"}
        assert ended.metrics is not None
        assert (ended.metrics.messages_queued, ended.metrics.messages_delivered) == (4, 0)
        await site.replays(run_id)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_message_of_hundreds_is_taken_once_or_reported_whatever_happens(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, reading(), patience=40)
    count = 200
    accepted: list[str] = []

    async def received(sent: commands.SteerMessage) -> None:
        while True:
            try:
                receipt = await site.client.run(run_id).send_message(sent)
            except Refusal as refusal:
                assert refusal.code is Code.QUEUE_FULL, refusal
                await asyncio.sleep(0.05)
            else:
                accepted.append(receipt.message_id)
                return

    async def send(numbers: Sequence[int]) -> None:
        for number in numbers:
            if number % 3:
                # It may meet a full queue: the receipt of the same message tells.
                await site.client.run(run_id).signal_message(message(number))
            await received(message(number))

    run_id = await site.start(limits=Limits(continue_as_new_after=60, max_queue_size=40))
    async with asyncio.TaskGroup() as group:
        pending = {group.create_task(send(range(first, count, 6))) for first in range(6)}
        while pending:
            # Workers come and go, in the middle of what their nodes read.
            async with site.worker():
                _, pending = await asyncio.wait(pending, timeout=1.5)
    async with site.worker():
        await received(message(count, text="enough", priority="low"))
        late = [f"late{number}" for number in range(5)]
        for id_ in late:
            try:
                given = commands.SteerMessage(message_id=id_, text="x", priority="low")
                accepted.append(await site.client.run(run_id).signal_message(given))
            except Refusal as refusal:
                assert refusal.code is Code.NOT_RUNNING
        ended = await site.ended(run_id, seconds=120)

    assert ended.status == "completed", ended.error
    taken = Counter(ended.values["log"])
    left = Counter(entry.message_id for entry in ended.undelivered)
    # A signal that comes after the end is rejected in the view of the run.
    told = Counter(note.message_id for note in ended.rejected if note.message_id in late)
    assert taken + left + told == Counter(accepted)
    assert {f"m{number}" for number in range(count + 1)} == set(taken) - set(late)
    assert await site.executions(run_id) > 1
    assert ended.rejected == [] or {note.code for note in ended.rejected} <= {
        "queue_full",
        "not_running",
    }
    assert ended.metrics is not None
    assert ended.metrics.messages_queued == len(accepted)
    assert ended.metrics.max_queue_depth <= 40


async def test_a_visit_that_is_tried_again_gets_what_it_took(temporal: TemporalClient) -> None:
    graph = Graph("clumsy", state=Read)
    backoff = Backoff(first="100ms", factor=1)
    seen: list[tuple[str, list[str]]] = []

    @graph.node(retries=2, backoff=backoff)
    async def inboxed(state: Read, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        found = [each.message_id for each in inbox]
        seen.append(("inbox", found))
        if ctx.attempt == 1:
            raise ValueError("again")
        return {"log": found}

    @graph.node(retries=2, backoff=backoff)
    async def asking(state: Read, ctx: Context) -> dict[str, Any]:
        found: list[str] = []
        while len(found) < 2 and (each := await ctx.check_interrupt()) is not None:
            found.append(each.message_id)
        seen.append(("asked", found))
        if ctx.attempt < 3:
            raise ValueError("again")
        return {"log": found}

    graph.interrupt("gate", prompt="Go?")
    graph.edge(START, "gate")
    graph.edge("gate", "inboxed")
    graph.edge("inboxed", "asking")
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).send_message(message(0, target="inboxed"))
        for number in (1, 2, 3):
            await site.client.run(run_id).send_message(message(number, target="asking"))
        await site.client.run(run_id).respond(response=None, principal=ANYBODY)
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert seen == [("inbox", ["m0"])] * 2 + [("asked", ["m1", "m2"])] * 3
    assert ended.values["log"] == ["m0", "m1", "m2"]
    assert [left.message_id for left in ended.undelivered] == ["m3"]


async def test_a_message_to_a_run_that_completes_is_taken_or_reported_or_refused(
    temporal: TemporalClient,
) -> None:
    graph = Graph("short", state=Read)

    @graph.node
    async def quick(state: Read, ctx: Context) -> dict[str, Any]:
        found = await ctx.check_interrupt()
        return {"log": [] if found is None else [found.message_id]}

    graph.edge(START, "quick")
    site = Site(temporal, graph)
    fates: Counter[str] = Counter()

    async def one_run(number: int) -> None:
        run_id = await site.start()
        receipts: dict[str, str | None] = {}

        async def send(index: int) -> None:
            # From before its first node to after its end, which one of them waits for.
            if index == 7:
                await site.ended(run_id)
            await asyncio.sleep(index * number % 13 * 0.004)
            run = site.client.run(run_id)
            way = run.signal_message if index % 2 else run.send_message
            try:
                await way(message(index))
            except Refusal as refusal:
                receipts[f"m{index}"] = refusal.code
            else:
                receipts[f"m{index}"] = None

        await asyncio.gather(*(send(index) for index in range(8)))
        ended = await site.ended(run_id)
        taken = set(ended.values["log"])
        left = {entry.message_id for entry in ended.undelivered}
        accepted = {id_ for id_, code in receipts.items() if code is None}
        assert not taken & left
        assert taken | left == accepted, receipts
        assert {code for code in receipts.values() if code} <= {Code.NOT_RUNNING}
        fates.update(taken=len(taken), left=len(left), refused=8 - len(accepted))

    async with site.worker():
        await asyncio.gather(*(one_run(number) for number in range(1, 11)))

    assert fates["refused"] >= 10
    assert fates["taken"] + fates["left"]
