"""Scenarios: messages that are taken, left over, repeated and turned away."""

from __future__ import annotations

from sample_graphs import Held, gated
from temporal_site import eventually
from temporalio.client import WorkflowUpdateFailedError

from abeyance.core.state import Limits
from abeyance.errors import Code
from tests.replay.stage import Scenario, Stage, all_at_once
from tests.replay.waits import YES, refused

HOLD = "graph:held;node:hold"


async def messages_taken_and_left_over(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        for id_ in ("m0", "m1", "m1", "m2"):
            await run.say(id_)
        assert await run.take(HOLD, 2) == ["m0", "m1"]
        assert await run.take(HOLD, 4, start=2) == ["m2"]
        try:
            await run.take(HOLD, 4, start=3)
        except WorkflowUpdateFailedError:
            await run.say("m3")
        held.release.set()
        view = await run.ended()
        # Others took them in the name of the visit, whose own code has read none of them.
        left = sorted(each.message_id for each in view.undelivered)
        assert left == ["m0", "m1", "m2", "m3"], view.undelivered


async def messages_turned_away(stage: Stage) -> None:
    async with stage.run(gated(), limits=Limits(max_queue_size=1)) as run:
        await run.waiting()
        await run.say("m0")
        await refused(Code.QUEUE_FULL, run.say("m1"))
        # A signal has nobody to tell, so the run writes it down.
        await run.handle.signal("steer", {"message_id": "m2", "text": "hello"})
        await run.handle.signal("steer", {"message_id": "m0", "text": "hello"})
        await run.answer(approve=YES)
        view = await run.ended()
        assert [note.message_id for note in view.rejected] == ["m2"]


async def messages_by_signal(stage: Stage) -> None:
    held = Held()
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        for id_ in ("m0", "m0", "m1"):
            await run.handle.signal("steer", {"message_id": id_, "text": "hello"})
        await run.pause()
        assert await run.take(HOLD, 5) == ["m0", "m1"]
        await run.resume()
        held.release.set()
        await run.ended()


async def more_facts_than_one_memo_holds(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await all_at_once([run.say(f"message-{number:0100}") for number in range(60)])
        await run.cancel()
        view = await run.ended("cancelled")
        assert len(view.undelivered) == 60


async def messages_are_cleared(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.say("m0")
        assert await run.site.client.run(run.id).clear_messages() == 1
        await run.answer(approve=YES)
        await run.ended()


async def a_signal_that_is_no_message(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        await run.waiting()
        await run.handle.signal("steer", {"text": 5})
        await run.handle.signal("steer", "nonsense")
        await run.answer(approve={"approved": True})
        view = await run.ended()
        assert [left.code for left in view.rejected] == ["invalid_message"] * 2


SCENARIOS: tuple[Scenario, ...] = (
    messages_taken_and_left_over,
    messages_turned_away,
    messages_by_signal,
    more_facts_than_one_memo_holds,
    messages_are_cleared,
    a_signal_that_is_no_message,
)
