"""The data of a run in Temporal itself, which never grows beyond what the server bears."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from sample_graphs import State, chain, gated
from temporal_site import ANYBODY, Site, begun, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from abeyance import END, START, Graph
from abeyance.filters import RunFilter

COMPLETED = frozenset({"completed"})


async def test_temporals_ui_says_what_a_run_waits_for_and_how_to_answer(
    temporal: TemporalClient,
) -> None:
    graph = gated(capability="pay:approve", timeout="P2D", on_timeout="goto:late")
    async with begun(temporal, graph, {"amount": 3}) as (site, run):
        view = await site.until(run.run_id, "awaiting-input")
        handle = temporal.get_workflow_handle(run.run_id)
        details = (await handle.query("__temporal_workflow_metadata")).current_details
        described = await handle.describe()
        history = (await site.history(run.run_id)).events

        running = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in history
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        summaries = [
            event.user_metadata.summary.data.decode()
            for event in history
            if event.HasField("user_metadata")
        ]
        assert "Pay 3?" in details
        assert view.interrupts[0].id in details
        assert "pay:approve" in details
        assert f"POST /runs/{run.run_id}/respond" in details
        assert running == ["gated.before"]
        assert '"deadline of approve: goto:late"' in summaries
        ours = {name for name in described.search_attributes if name.startswith("Abeyance")}
        assert described.workflow_type == "gated"
        assert ours == {"AbeyanceStatus", "AbeyanceGraph"}
        assert described.search_attributes["AbeyanceGraph"] == ["gated"]
        assert described.search_attributes["AbeyanceStatus"] == ["awaiting-input"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_five_hundred_visits_with_sixty_kilobytes_of_values(temporal: TemporalClient) -> None:
    graph = Graph("wide")

    def add(number: int) -> None:
        @graph.node(name=f"n{number}", retries=0)
        async def one(state: dict[str, Any]) -> dict[str, Any]:
            return {f"size{number}": len(state["blob"])}

        graph.edge(START, f"n{number}")

    for number in range(500):
        add(number)
    site = Site(temporal, graph, patience=60)
    async with site.worker():
        run_id = await site.start({"blob": "x" * 60_000})
        ended = await site.ended(run_id, seconds=150)

        assert ended.status == "completed"
        assert [ended.values[f"size{number}"] for number in range(500)] == [60_000] * 500


async def test_a_plain_node_costs_six_events_and_a_run_without_gates_few_more(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, chain(5)) as (site, run):
        await site.ended(run.run_id)
        events = (await site.history(run.run_id)).events

        # 5 around the run, 6 for each node, 1 for the last status, and 1 for the recording at the end, or
        # 3 more if the database is slow.
        assert len(events) <= 5 + 5 * 6 + 1 + 1 + 3
        # The caller that starts a run records its beginning, so the run records only its end.
        markers = [
            each for each in events if each.event_type == EventType.EVENT_TYPE_MARKER_RECORDED
        ]
        assert len(markers) == 1


async def test_local_nodes_add_little_to_the_history_and_lists_show_the_run_all_the_same(
    temporal: TemporalClient,
) -> None:
    graph = Graph("quick", state=State)
    for name in ("before", "after"):

        @graph.node(name=name, local=True)
        async def code(state: State) -> dict[str, Any]:
            return {"log": ["done"]}

    graph.interrupt("approve", prompt="Go on?")
    for source, target in pairwise((START, "before", "approve", "after", END)):
        graph.edge(source, target)
    async with begun(temporal, graph) as (site, run):
        asked = await site.until(run.run_id, "awaiting-input")
        await run.respond({asked.interrupts[0].id: 1}, principal=ANYBODY)
        ended = await site.ended(run.run_id)
        history = await site.history(run.run_id)
        attributes = (await temporal.get_workflow_handle(run.run_id).describe()).search_attributes
        written = Counter(event.event_type for event in history.events)

        async def listed() -> list[str]:
            runs, _ = await site.client.runs.list(RunFilter(graph="quick", statuses=COMPLETED))
            return [view.status for view in runs if view.run_id == run.run_id]

        assert ended.values["log"] == ["done", "done"]
        assert written[EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED] == 0
        assert written[EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED] == 0
        assert written[EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES] == 2
        assert attributes["AbeyanceStatus"] == ["completed"]
        assert await eventually(listed) == ["completed"]
        await site.replays(run.run_id)
