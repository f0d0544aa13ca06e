"""The snapshot for a retry is kept where the large and secret values of the run are."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select, update
from stored import LARGE, LOGGED, SECRET, State, connected, letters, shows
from temporal_site import ANYBODY, Site, begun
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph
from abeyance.errors import Refusal, Unavailable
from abeyance.records.documents import Transaction
from abeyance.records.selecting import the_run
from abeyance.records.tables import runs
from abeyance.settings import Settings
from abeyance.storage.blobs import FolderBlobs


@pytest.mark.parametrize(
    "way",
    [
        # The slow lane tries all ways but the strictest.
        pytest.param("stored", marks=pytest.mark.slow),
        pytest.param("encrypted", marks=pytest.mark.slow),
        "required",
    ],
)
async def test_a_large_and_secret_run_is_retried(
    temporal: TemporalClient, tmp_path: Path, keys: str, way: str
) -> None:
    settings = Settings(
        storage=None if way == "encrypted" else str(tmp_path),
        encryption_keys=None if way == "stored" else keys,
        encryption_required=way == "required",
    )
    site = Site(connected(temporal, settings), letters(), blobs=FolderBlobs(tmp_path))
    async with site.worker():
        run_id = await site.start({}, limits=settings.limits())
        asked = await site.asked(run_id)
        run = site.client.run(run_id)
        await run.cancel()
        assert (await site.ended(run_id)).status == "cancelled"
        await run.retry(principal=ANYBODY)
        again = await site.answer(run_id, {"note": LARGE})
        ended = await site.ended(run_id)
        handle = site.temporal.get_workflow_handle(run_id)
        history = (await handle.fetch_history()).to_json()

    # No worker is up: this refusal needs none.
    with pytest.raises(Refusal, match="The run completed, so there is nothing to retry"):
        await run.retry(principal=ANYBODY)
    assert again.id == asked.id
    assert ended.values["log"] == LOGGED
    assert [event.type async for event in run.events()].count("run.retried") == 1
    assert not shows(history, SECRET)
    assert len(history) < len(LARGE) or way == "encrypted"


async def test_a_run_that_fails_with_the_largest_values_is_retried(
    temporal: TemporalClient,
) -> None:
    done: list[str] = []
    graph = Graph("largest", state=State)

    @graph.node
    async def collect(state: State) -> dict[str, str]:
        done.append("collect")
        return {"text": "x" * 1_200_000}

    @graph.node(retries=0)
    async def fails_once(state: State) -> dict[str, list[str]]:
        done.append("fails_once")
        if len(done) == 2:
            raise RuntimeError("once")
        return {"log": [str(len(state.text))]}

    graph.edge(START, "collect")
    graph.edge("collect", "fails_once")
    async with begun(temporal, graph, {}) as (site, run):
        assert (await site.ended(run.run_id)).status == "failed"
        await run.retry(principal=ANYBODY)
        ended = await site.ended(run.run_id)

    assert ended.values["log"] == ["1200000"]
    assert done == ["collect", "fails_once", "fails_once"]


async def test_a_retry_does_not_use_the_snapshot_of_an_earlier_end(
    temporal: TemporalClient,
) -> None:
    graph = Graph("earlier", state=State)

    @graph.node(retries=0)
    async def fail(state: State) -> dict[str, str]:
        raise RuntimeError(f"with {len(state.text)}")

    graph.edge(START, "fail")
    async with begun(temporal, graph, {"text": "x" * 1_200_000}) as (site, run):
        assert (await site.ended(run.run_id)).status == "failed"
        earlier = await site.client.records.read(stored_extras, run.run_id)
        await run.retry(principal=ANYBODY)
        await site.ended(run.run_id)
        await site.client.records.write(store_extras, run.run_id, earlier)
        with pytest.raises(Unavailable, match="reindex"):
            await run.retry(principal=ANYBODY)


def stored_extras(tx: Transaction, run_id: str) -> str:
    query = select(runs.c.extras).where(*the_run(tx.deployment, run_id))
    return str(tx.connection.execute(query).scalar_one())


def store_extras(tx: Transaction, run_id: str, extras: str) -> None:
    tx.connection.execute(update(runs).where(*the_run(tx.deployment, run_id)).values(extras=extras))
