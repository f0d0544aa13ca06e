"""The blobs of a run are deleted with the run, after its end at the earliest."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from sample_graphs import asking
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.core.policy import Principal
from abeyance.core.state import Limits
from abeyance.errors import Refusal
from abeyance.settings import Settings
from abeyance.storage.blobs import FolderBlobs
from abeyance.temporal.connection import connect_temporal

LARGE = "letter" * 5_000
ANYBODY = Principal(subject="ada", capabilities=("*",))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
async def site(temporal: TemporalClient, tmp_path: Path) -> Site:
    address = temporal.service_client.config.target_host
    settings = Settings(storage=str(tmp_path))
    return Site(
        await connect_temporal(address, settings=settings), asking(), blobs=FolderBlobs(tmp_path)
    )


async def test_blobs_of_signals_are_bounded_and_erased_with_the_run(
    site: Site, tmp_path: Path
) -> None:
    run_id = await site.start(limits=Limits(max_queue_size=2, max_message_length=100_000))
    run = site.client.run(run_id)
    before = len(files(tmp_path))
    for number in range(12):
        with suppress(Refusal):
            await run.steer(f"{number}{LARGE * 3}", message_id=f"m{number}")
    # Each message has 90 kB, and no worker takes it.
    assert len(files(tmp_path)) - before == 11
    async with site.worker():
        view = await site.until(run_id, "awaiting-input")
        assert (view.queue_depth, len(view.rejected)) == (2, 9)
        await run.respond(response=True, principal=ANYBODY)
        await site.ended(run_id)
        # A replay still reads the rejected messages.
        assert len(files(tmp_path)) - before >= 11

        async def is_erased() -> bool:
            return await site.client.runs.erase(run_id) == "erased"

        await eventually(is_erased, seconds=60)
    assert files(tmp_path) == []
