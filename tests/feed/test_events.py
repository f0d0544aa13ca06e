"""What the feed tells of a run."""

from __future__ import annotations

from typing import Any

from sample_graphs import Held, State, gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Fatal, Graph, commands, views


async def told(site: Site, run_id: str) -> list[views.Event]:
    """All events so far."""
    events, _ = await site.client.feed.page(run_id, None, 10_000)
    return events


def lines(events: list[views.Event]) -> list[str]:
    """Type and last segment of the address."""
    return [
        event.type + (f" {event.address.split(';')[-1]}" if event.address else "")
        for event in events
    ]


async def test_a_run_with_a_question_is_told_from_its_start_to_its_end(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start({"amount": 31337}, started_by="bea", conversation_id="c1")
        view = await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).respond(response={"approved": True}, principal=ANYBODY)
        ended = await site.ended(run_id)
    events = await told(site, run_id)

    assert lines(events) == [
        "run.started",
        "node.started node:before",
        "node.finished node:before",
        "interrupt.opened node:approve",
        "run.awaiting_input",
        "interrupt.answered node:approve",
        "node.started node:after",
        "node.finished node:after",
        "run.completed",
    ]
    by_type = {event.type: event for event in events}
    assert by_type["run.started"].actor == "bea"
    assert by_type["run.started"].data == {
        "graph": "gated",
        "graph_version": view.graph_version,
        "conversation_id": "c1",
        "session_type": "agent",
    }
    assert by_type["interrupt.opened"].data["id"] == view.interrupts[0].id
    assert by_type["interrupt.answered"].actor == "ada"
    assert events[1].address == "graph:gated;node:before"
    assert {event.run_id for event in events} == {run_id}
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert events[-1].time >= ended.updated_at
    told_all = "".join(event.model_dump_json() for event in events)
    assert "31337" not in told_all
    assert '"approved"' not in told_all


async def test_visits_in_local_activities_are_told_and_route_decisions_are_not(
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


async def test_a_node_that_fails_is_told_with_its_code_and_so_is_the_run(
    temporal: TemporalClient,
) -> None:
    for local in (False, True):
        graph = Graph("failing", state=State)

        @graph.node(local=local)
        async def bad(state: State) -> dict[str, Any]:
            raise Fatal("no such account")

        graph.edge(START, "bad")
        site = Site(temporal, graph)
        async with site.worker():
            run_id = await site.start()
            await site.ended(run_id)
        events = await told(site, run_id)

        assert lines(events)[1:] == [
            "node.started node:bad",
            "node.failed node:bad",
            "run.failed node:bad",
        ]
        assert events[-2].data["code"] == "node_failed"
        assert "no such account" in events[-2].data["message"]
        assert events[-1].data["code"] == "node_failed"
        assert "no such account" in events[-1].data["message"]


async def test_a_node_that_takes_too_long_is_told_as_failed_and_so_is_its_run(
    temporal: TemporalClient,
) -> None:
    held = Held(timeout=0.3, retries=0)
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        ended = await site.ended(run_id)
        held.release.set()
    events = await told(site, run_id)

    assert ended.status == "failed"
    (failed,) = (event for event in events if event.type == "node.failed")
    assert "timeout" in failed.data["message"]
    assert lines(events)[-3:] == [
        "node.started node:cleanup",
        "node.finished node:cleanup",
        "run.failed node:hold",
    ]


async def test_a_visit_that_a_pause_stops_is_told_to_stop_and_to_start_again(
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


async def test_messages_are_told_and_what_became_of_them(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        await site.client.run(run_id).send_message(
            commands.SteerMessage(message_id="m1", text="be quick", sender="bea")
        )
        soon = commands.EditDeadline(interrupt_id=asked.id, timeout=0.1, principal=ANYBODY)
        await site.client.run(run_id).edit(soon)
        await site.ended(run_id)
    events = await told(site, run_id)

    (queued,) = (event for event in events if event.type == "message.queued")
    assert (queued.actor, queued.data["message_id"]) == ("bea", "m1")
    assert "be quick" not in "".join(event.model_dump_json() for event in events)
    assert lines(events)[-3:] == [
        "interrupt.expired node:approve",
        "message.undelivered",
        "run.halted",
    ]
    assert events[-1].data == {"reason": "interrupt-timeout"}
