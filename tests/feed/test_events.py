"""The events in the feed of a run."""

from __future__ import annotations

from typing import Any

from sample_graphs import Held, State
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, commands, views


async def told(site: Site, run_id: str) -> list[views.Event]:
    """Return all events so far."""
    events, _ = await site.client.feed.page(run_id, None, 10_000)
    return events


def lines(events: list[views.Event]) -> list[str]:
    """Return the type and the last segment of the address of each event."""
    return [
        event.type + (f" {event.address.split(';')[-1]}" if event.address else "")
        for event in events
    ]


async def test_local_nodes_have_events_and_route_decisions_have_none(
    temporal: TemporalClient,
) -> None:
    graph = Graph("routed", state=State)
    graph.interrupt("ask", prompt="Which way?")

    @graph.node(local=True)
    async def route(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": ["route"]}

    graph.edge(START, "ask")
    graph.route("ask", lambda state: "route", to=["route"])
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).respond(response=1, principal=ANYBODY)
        await site.ended(run_id)
        names = [
            event.marker_recorded_event_attributes.details["data"].payloads[0].data
            for event in (await site.history(run_id)).events
            if event.HasField("marker_recorded_event_attributes")
        ]
    events = await told(site, run_id)

    names = [each for each in names if b'"record"' not in each]
    assert len(names) == 2
    assert b"routed.ask.route" in names[0]
    assert lines(events)[-4:] == [
        "interrupt.answered node:ask",
        "node.started node:route",
        "node.finished node:route",
        "run.completed",
    ]
    assert events[-3].time <= events[-2].time


async def test_a_visit_stopped_by_a_pause_has_events_of_both_starts(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        await site.client.run(run_id).control(
            commands.Pause(mode="now", actor="bea", reason="lunch")
        )
        await eventually(lambda: held.stopped)
        await site.until(run_id, "paused")

        async def is_stopped() -> bool:
            return not (await site.client.run(run_id).view()).running

        await eventually(is_stopped)
        await site.client.run(run_id).control(commands.Resume(actor="cem"))
        await eventually(lambda: held.started > 1)
        await site.client.run(run_id).control(commands.Cancel(actor="dan", reason="enough"))
        await site.ended(run_id)
    events = await told(site, run_id)

    assert lines(events) == [
        "run.started",
        "node.started node:hold",
        "run.paused",
        "node.stopped node:hold",
        "run.resumed",
        "node.started node:hold",
        "node.stopped node:hold",
        "node.started node:cleanup",
        "node.finished node:cleanup",
        "run.cancelled",
    ]
    assert (events[2].actor, events[2].data["reason"]) == ("bea", "lunch")
    assert events[4].actor == "cem"
    assert (events[-1].actor, events[-1].data) == ("dan", {"reason": "enough"})
