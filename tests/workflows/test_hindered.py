"""A run that no worker can replay is shown as blocked to all who read it, with a remedy."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sample_graphs import asking
from stack import app_for, served
from temporal_site import Site, eventually
from temporalio import workflow
from temporalio.client import Client as TemporalClient
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from abeyance import views
from abeyance.cli.doctor import examine
from abeyance.filters import RunFilter


@workflow.defn(name="asking")
class Otherwise:
    """A run of other code, which begins with a timer."""

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        await workflow.sleep(3_600)


def other_code(site: Site, code: type) -> Worker:
    """Return a worker of the site with other code for its runs."""
    return Worker(
        site.temporal,
        task_queue=site.settings.task_queue,
        workflows=[code],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


async def begun_by_other_code(site: Site) -> str:
    """Start a run that the code of today cannot replay and that has work to do, and return its id."""
    run_id = await site.start()
    async with other_code(site, Otherwise):

        async def has_begun() -> bool:
            return len((await site.history(run_id)).events) > 3

        await eventually(has_begun)
    await site.temporal.get_workflow_handle(run_id).signal("pause")
    return run_id


async def blocked(site: Site, run_id: str) -> views.BlockedView | None:
    view = await site.client.run(run_id).view()
    return view.blocked[0] if view.blocked else None


async def test_a_run_that_todays_code_cannot_replay_is_blocked_and_the_worker_says_so(
    temporal: TemporalClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "abeyance.worker")
    site = Site(temporal, asking(), patience=1.0)
    run_id = await begun_by_other_code(site)
    async with site.worker():
        why = await eventually(lambda: blocked(site, run_id))

    assert (why.code, why.address) == ("cannot_replay", None)
    assert "Nondeterminism" in why.message
    assert "temporal workflow reset" in why.message
    assert why.since is not None
    (line, *_) = [line for line in caplog.messages if f"run={run_id} code=cannot_replay" in line]
    assert "temporal workflow reset" in line


@pytest.mark.slow
async def test_lists_readiness_and_doctor_tell_of_a_run_that_no_worker_can_replay(
    temporal: TemporalClient, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    site = Site(temporal, asking(), patience=1.0)

    async def listed(*, blocked: bool | None = None) -> dict[str, list[str]]:
        runs, _ = await site.client.runs.list(RunFilter(blocked=blocked), limit=10)
        return {view.run_id: [why.code for why in view.blocked] for view in runs}

    run_id = await begun_by_other_code(site)
    async with site.worker():
        well = await site.start()
        await site.until(well, "awaiting-input")

        async def found_blocked() -> dict[str, list[str]]:
            # A worker does this once a minute.
            await site.client.janitor.round()
            return await listed(blocked=True)

        found = await eventually(found_blocked, seconds=120)
        others = await listed(blocked=False)
        every = await listed()
        async with served(app_for(site)) as api:
            ready = await api.http.get("/readyz")
        findings = {each.check: each async for each in examine(site.settings)}

    assert found == {run_id: ["cannot_replay"]}
    assert others == {well: []}
    assert every == found | others
    assert ready.status_code == 200, ready.text
    (warning,) = ready.json()["warnings"]
    assert warning.startswith("1 open run cannot be read or replayed")
    assert findings["blocked runs"].status == "warn"
    assert run_id in findings["blocked runs"].text
