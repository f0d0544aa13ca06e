"""When Temporal goes away for a while, and when it stays away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from killable import killable_server
from sample_graphs import gates
from temporal_site import ANYBODY, Site

from abeyance import Unavailable, views
from abeyance.history.feed import Feed


async def test_a_server_that_is_killed_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    async with killable_server(tmp_path) as server:
        client = await server.client()
        site = Site(client.temporal, gates(1))
        feed = Feed(client.temporal, site.settings.task_queue)

        async def follow(run_id: str) -> list[views.Event]:
            return [event async for event in feed.follow(run_id, None)]

        async with site.worker():
            run_id = await site.start()
            view = await site.until(run_id, "awaiting-input")
            followers = [asyncio.create_task(follow(run_id)) for _ in range(3)]
            hasty = await Feed(client.temporal, site.settings.task_queue, patience=0.2).opened(
                run_id, None
            )
            for _ in range(3):
                await anext(hasty)
            server.kill()
            with pytest.raises(Unavailable, match=r"for 0\.2 s .* last id received"):
                await asyncio.wait_for(anext(hasty), 30)
            assert not any(follower.done() for follower in followers)
            server.start()
            await site.client.run(run_id).respond({view.interrupts[0].id: 1}, principal=ANYBODY)
            read = await asyncio.wait_for(asyncio.gather(*followers), 30)

        events, cursor = await Feed(client.temporal, site.settings.task_queue).page(
            run_id, None, 100
        )
        assert [event.type for event in events][-1] == "run.completed"
        assert read == [events] * 3
        assert (cursor, feed.tails) == (None, 0)
        server.kill()
        hasty_feed = Feed(client.temporal, site.settings.task_queue, patience=0.1)
        for ask in (hasty_feed.page(run_id, None, 1), hasty_feed.opened(run_id, None)):
            with pytest.raises(Unavailable, match=r"did not answer for 0\.1 s"):
                await ask
        assert hasty_feed.tails == 0
