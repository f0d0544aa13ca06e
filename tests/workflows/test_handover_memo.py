"""What a run has told Temporal stands in the history that it is handed over to."""

from __future__ import annotations

from sample_graphs import gates
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.core.state import Limits
from abeyance.filters import InboxFilter, RunFilter


async def test_questions_that_were_open_at_a_hand_over_stay_in_the_inbox(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(4, "handed-over"))
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=12))
        waiting = await site.until(run_id, "awaiting-input")
        ids = [entry.id for entry in waiting.interrupts]
        for answered in ids[:3]:
            await site.client.run(run_id).respond({answered: 1}, principal=ANYBODY)
        # Sooner than a wait that has to look at its end.
        await site.until(run_id, "awaiting-input", seconds=15)

        async def asked() -> bool:
            rows, _ = await site.client.inbox.list(InboxFilter(graph="handed-over"))
            return [row.id for row in rows] == ids[3:]

        await eventually(asked)
        handle = site.temporal.get_workflow_handle(run_id)
        first = (await handle.fetch_history()).events[0]
        started = first.workflow_execution_started_event_attributes
        assert started.continued_execution_run_id, "it was not handed over"
        (listed,), _ = await site.client.runs.list(RunFilter(graph="handed-over"))
        assert listed.created_at == waiting.created_at, "it was started once"
        await site.replays(run_id)
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
