"""Transcripts where everything is encrypted and kept in storage: read by whoever has the key."""

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


@pytest.mark.parametrize("is_required", [False, True])
async def test_a_transcript_is_read_with_the_key_alone_also_where_no_worker_is_up(
    temporal: TemporalClient, tmp_path: Path, keys: str, *, is_required: bool
) -> None:
    settings = Settings(
        storage=str(tmp_path), encryption_keys=keys, encryption_required=is_required
    )
    connection = connected(temporal, settings)
    site = Site(connection, counters(), patience=2.0, blobs=ConfiguredBlobs(settings))
    async with site.worker():
        run_id = await site.start({"task": "8"}, limits=Limits(continue_as_new_after=20))
        await site.until(run_id, "awaiting-input")
        known, cursor = await site.client.run(run_id).transcript_page()
    transcript.forget()
    alone, again = await site.client.run(run_id).transcript_page()

    assert (len(alone), alone, again) == (18, known, cursor)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"euros" in path.read_bytes() for path in kept)

    other = f"first:{base64.b64encode(os.urandom(32)).decode()}"
    strange = Settings(storage=str(tmp_path), encryption_keys=other)
    transcript.forget()
    stranger = Client(
        connection,
        task_queue=site.settings.task_queue,
        patience=2.0,
        blobs=ConfiguredBlobs(strange),
    )
    with pytest.raises(Unavailable, match="first"):
        await stranger.run(run_id).transcript()
