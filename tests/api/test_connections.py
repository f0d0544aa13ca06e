"""The bounds on the connections and streams of a process, and how long a connection stays open."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import httpx
import pytest
from stack import app_for, head_of, served, status_of
from temporal_site import Site

from abeyance import Refusal
from abeyance.api.dependencies import StreamPlaces
from abeyance.errors import Code


async def test_a_caller_too_many_is_refused_and_nobody_is_cut(site: Site) -> None:
    async with served(app_for(site)) as api:
        api.server.config.limit_concurrency = 5
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


async def test_a_connection_takes_one_request_after_another_until_it_is_idle(site: Site) -> None:
    async with served(app_for(site)) as api:
        api.server.config.timeout_keep_alive = 1
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        for _ in range(2):
            writer.write(head_of(api, "/healthz", method="GET"))
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            assert status_of(answer) == 200
        rest = await asyncio.wait_for(reader.read(), 30)
        writer.close()

    assert rest == b""


def test_all_principals_have_at_most_five_hundred_streams() -> None:
    places = StreamPlaces()
    with ExitStack() as others, ExitStack() as own:
        for number in range(499):
            others.enter_context(places.one_of(f"reader {number // 20}"))
        own.enter_context(places.one_of("ada"))
        with pytest.raises(Refusal) as refused, places.one_of("bob"):
            pass
        own.close()
        with places.one_of("bob"):
            pass

    assert (refused.value.code, refused.value.details["limit"]) == (Code.TOO_MANY_RUNS, 500)
