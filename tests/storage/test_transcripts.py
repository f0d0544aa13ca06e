"""Transcripts that are encrypted and kept in storage: whoever has the key can read them."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from agent_graphs import counters
from stored import connected
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.agents import transcript
from abeyance.client import Client
from abeyance.core.state import Limits
from abeyance.errors import Unavailable
from abeyance.settings import Settings
from abeyance.storage.backends import ConfiguredBlobs


def reader(site: Site, settings: Settings) -> Client:
    """Return a client that does not wait long for a worker."""
    return Client(
        site.temporal,
        task_queue=site.settings.task_queue,
        patience=0.5,
        blobs=ConfiguredBlobs(settings),
    )


async def test_a_transcript_is_read_with_the_key_alone_also_where_no_worker_is_up(
    temporal: TemporalClient, tmp_path: Path, keys: str
) -> None:
    settings = Settings(storage=str(tmp_path), encryption_keys=keys, encryption_required=True)
    connection = connected(temporal, settings)
    site = Site(connection, counters(), blobs=ConfiguredBlobs(settings))
    async with site.worker():
        run_id = await site.start({"task": "8"}, limits=Limits(continue_as_new_after=20))
        await site.until(run_id, "awaiting-input")
        known, cursor = await site.client.run(run_id).transcript_page()
    transcript.forget()
    alone, again = await reader(site, settings).run(run_id).transcript_page()

    assert (len(alone), alone, again) == (18, known, cursor)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"euros" in path.read_bytes() for path in kept)

    other = f"first:{base64.b64encode(os.urandom(32)).decode()}"
    strange = Settings(storage=str(tmp_path), encryption_keys=other)
    transcript.forget()
    with pytest.raises(Unavailable, match="first"):
        await reader(site, strange).run(run_id).transcript()
