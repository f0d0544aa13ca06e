"""Followers while the records are away for a moment, and when they stay away."""

from __future__ import annotations

import asyncio

import pytest
from postgres import running_cluster
from sample_graphs import gates
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.client import records
from abeyance.errors import RecordsUnavailable


async def test_a_follower_outlasts_a_moment_without_records_and_gives_up_in_the_end(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_cluster() as cluster, cluster.database() as url:
        monkeypatch.setenv("ABEYANCE_DATABASE_URL", url)
        site = Site(temporal, gates(1))
        name = url.rpartition("/")[2]

        reads: list[list[views.Event]] = []

        async def follow(run_id: str) -> list[views.Event]:
            read: list[views.Event] = []
            reads.append(read)
            async for event in await site.client.feed.opened(run_id, None):
                read += [event]
            return read

        def take_away() -> None:
            cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            cluster.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'abeyance'"
            )

        async with site.worker():
            run_id = await site.start()
            view = await site.until(run_id, "awaiting-input")
            followers = [asyncio.create_task(follow(run_id)) for _ in range(3)]
            # A follower that has read nothing yet does not wait for the records.
            await eventually(lambda: len([*filter(None, reads)]) == 3)
            await eventually(lambda: site.client.records.following.is_at_work)
            take_away()
            with pytest.raises(RecordsUnavailable):
                await site.client.feed.page(run_id, None, 1)
            await asyncio.sleep(1.5)
            assert not any(follower.done() for follower in followers)
            cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await site.client.run(run_id).respond({view.interrupts[0].id: 1}, principal=ANYBODY)
            read = await asyncio.wait_for(asyncio.gather(*followers), 60)

            monkeypatch.setattr(records, "_BACK_WITHIN", 0.5)
            waiting = await site.client.feed.opened(await site.start(), None)
            assert (await asyncio.wait_for(anext(waiting), 30)).type == "run.started"
            take_away()
            with pytest.raises(RecordsUnavailable):
                async for _ in waiting:
                    pass
            cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

        events, cursor = await site.client.feed.page(run_id, None, 100)
        assert ([event.type for event in events][-1], cursor) == ("run.completed", None)
        assert read == [events] * 3
        site.client.records.database.close()
