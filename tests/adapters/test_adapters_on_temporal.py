"""Agents of other frameworks on a real server: activities, events, transcript, usage, replays."""

from __future__ import annotations

import pytest
from foreign_office import FRAMEWORKS, THREE, Office, desk
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import views


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param(name, marks=[] if name == "pydantic_ai" else [pytest.mark.slow])
        for name in sorted(FRAMEWORKS)
    ],
)
async def test_a_foreign_agent_has_the_events_of_a_native_one(
    temporal: TemporalClient, framework: str
) -> None:
    office = Office(THREE, "Done.")
    site = Site(temporal, desk(FRAMEWORKS[framework](office)))

    async def both() -> list[views.InterruptView] | None:
        view = await site.client.run(run_id).view()
        return view.interrupts if len(view.interrupts) == 2 else None

    async with site.worker():
        run_id = await site.start()
        one, three = sorted(await eventually(both), key=lambda each: each.address)
        yes = {three.id: {"approved": True}}
        await site.client.run(run_id).respond(yes, principal=ANYBODY)
        await eventually(lambda: "pay 3" in office.lines)
    async with site.worker():
        no = {one.id: {"approved": False, "reason": "not today"}}
        await site.client.run(run_id).respond(no, principal=ANYBODY)
        ended = await site.ended(run_id)
        turns = await site.events(run_id, "model.turn")
        transcript = await site.client.run(run_id).transcript()
        await site.replays(run_id)

    assert ended.values["reply"] == "Done."
    assert sorted(office.lines) == ["look 2", "pay 3", "turn 1", "turn 2"]
    assert [turn["calls"] for turn in turns] == [["pay", "look", "pay"], []]
    assert [turn["usage"]["input_tokens"] for turn in turns] == [7, 7]
    assert "not today" in str(transcript)
    assert "looked 2" in str(transcript)


class _Wordy(Office):
    def look(self, x: int) -> str:
        return super().look(x) + "." * 50_000


async def test_a_large_state_is_stored_outside_the_history(temporal: TemporalClient) -> None:
    office = _Wordy([("c1", "look", 1)], [("c2", "pay", 2)], "Done.")
    site = Site(temporal, desk(FRAMEWORKS["pydantic_ai"](office)))

    async def question() -> views.InterruptView | None:
        return next(iter((await site.client.run(run_id).view()).interrupts), None)

    async with site.worker():
        run_id = await site.start()
        asked = await eventually(question)
        await site.client.run(run_id).respond({asked.id: {"approved": True}}, principal=ANYBODY)
        ended = await site.ended(run_id)
    history = await temporal.get_workflow_handle(run_id).fetch_history()

    assert ended.values["reply"] == "Done."
    assert max(map(len, office.heard)) > 50_000
    assert max(event.ByteSize() for event in history.events) < site.settings.max_payload
