"""Too many callers at once: a bound on the connections of a process."""

from __future__ import annotations

import asyncio

import httpx
from stack import app_for, head_of, served, status_of
from temporal_site import Site


async def test_a_caller_too_many_is_refused_and_nobody_is_cut(site: Site) -> None:
    async with served(app_for(site, max_connections=5)) as api:
        run_id, _ = await api.waiting("gated")
        query = {"wait": "30s", "until": "cancelled"}

        async def waiting() -> httpx.Response:
            async with httpx.AsyncClient(base_url=api.url, trust_env=False, timeout=40) as http:
                return await http.get(f"/runs/{run_id}", params=query)

        tasks = [asyncio.create_task(waiting()) for _ in range(3)]
        async with asyncio.timeout(20):
            while api.under_way < 3:
                await asyncio.sleep(0.02)
        refused = await api.raw(head_of(api, "/graphs", method="GET"))
        await site.client.run(run_id).cancel()
        views = [(await task).json() for task in tasks]

    assert status_of(refused) == 503
    assert {view["status"] for view in views} <= {"cancelled", "cancelling"}
