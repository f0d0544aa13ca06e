"""The metrics of runs, read over HTTP from the worker, and the counts in their own view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ports import free_port
from sample_graphs import State, gated
from scraped import Scraped, scraped
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, commands, metrics
from abeyance.core.state import Limits
from abeyance.temporal.connection import connect_temporal
from abeyance.temporal.workers import process_runtime


class Measured(Site):
    """A site whose workers serve their metrics to Prometheus."""

    def __init__(self, temporal: TemporalClient, port: int, *graphs: Graph) -> None:
        super().__init__(temporal, *graphs)
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def scraped(self) -> Scraped:
        return await scraped(self._url)

    async def operations(self, operation: str, status: str = "success", **labels: str) -> float:
        told = {"operation": operation, "status": status, "via": "run", **labels}
        return (await self.scraped()).total("interrupt_operations_total", **told)


@asynccontextmanager
async def measured(temporal: TemporalClient, *graphs: Graph) -> AsyncIterator[Measured]:
    port = free_port()
    target = temporal.service_client.config.target_host
    own = await connect_temporal(target, runtime=process_runtime(f"127.0.0.1:{port}"))
    yield Measured(own, port, *graphs)


def stepping() -> Graph:
    """Return a graph of a node with two steps, and a gate."""
    graph = Graph("stepping", state=State)

    @graph.node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async def one() -> int:
            return 1

        return {"log": [f"{await ctx.step('a', one)}{await ctx.step('b', one)}"]}

    graph.interrupt("sign", prompt="Sign?")
    graph.edge(START, "work")
    graph.edge("work", "sign")
    return graph


async def test_a_worker_tells_prometheus_what_its_runs_were_asked_and_replays_count_nothing_twice(
    temporal: TemporalClient,
) -> None:
    async with measured(temporal, gated()) as site:
        async with site.worker():
            run_id = await site.start()
            await site.until(run_id, "awaiting-input")
            await site.client.run(run_id).pause()
            await site.client.run(run_id).pause()
            for number in range(3):
                await site.client.run(run_id).send(message_id=f"m{number}", text="hello")
            before = await site.scraped()
        # A worker that comes back reads the whole history again.
        async with site.worker():
            await site.client.run(run_id).view()
            await site.replays(run_id)
            replayed = await site.scraped()
            await site.client.run(run_id).resume()
            await site.answer(run_id, {"approved": True})
            await site.ended(run_id)
            after = await site.scraped()

    def operations(told: Scraped) -> dict[str, float]:
        names = ("pause", "message", "resume", "respond")
        return {
            name: told.total("interrupt_operations_total", operation=name, status="success")
            for name in names
        }

    assert operations(before) == {"pause": 2, "message": 3, "resume": 0, "respond": 0}
    assert operations(replayed) == operations(before)
    assert operations(after) == {"pause": 2, "message": 3, "resume": 1, "respond": 1}
    assert before.total("interrupt_queue_depth", graph="gated") == 3
    assert after.total("interrupt_queue_depth", graph="gated") == 0
    assert after.total("interrupt_wait_seconds_count", graph="gated", kind="question") == 1
    assert 0 < after.total("interrupt_wait_seconds_sum") < 30
    assert after.labels("interrupt_wait_seconds_bucket") >= {*metrics.WAIT.attributes, "le"}
    assert after.total("interrupt_wait_seconds_bucket", le="2592000") == 1
    assert any(name.startswith("temporal_workflow_task") for name in after.names)


async def test_signals_are_counted_with_their_refusal_codes(
    temporal: TemporalClient,
) -> None:
    async with measured(temporal, gated()) as site, site.worker():
        run_id = await site.start(limits=Limits(max_queue_size=1))
        await site.until(run_id, "awaiting-input")
        run, handle = site.client.run(run_id), site.temporal.get_workflow_handle(run_id)
        await handle.signal("pause", commands.Pause(on_timeout="goto:nowhere", timeout=60))
        for number in range(2):
            await handle.signal("steer", {"message_id": f"m{number}", "text": "hello"})
        assert [note.message_id for note in (await run.view()).rejected] == ["m1"]
        assert await site.operations("pause", "refused", code="unknown_node") == 1
        assert await site.operations("message", "refused", code="queue_full") == 1
        assert await site.operations("message") == 1

        await run.clear_messages()
        await handle.signal("steer", {"message_id": "m1", "text": "hello"})
        view = await run.view()
        assert (view.rejected, view.queue_depth) == ([], 1)
        assert await site.operations("message", "refused", code="queue_full") == 1
        assert await site.operations("message") == 2
        await run.cancel()
        await site.ended(run_id)
        assert await site.operations("cancel") == 1


async def test_steps_and_hand_overs_are_checkpoints(temporal: TemporalClient) -> None:
    async with measured(temporal, stepping()) as site, site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=6))
        await site.until(run_id, "awaiting-input")
        for _ in range(3):
            await site.pause_and_resume(run_id)
        told = await site.scraped()

        def checkpoints(kind: str) -> float:
            done = told.total("checkpoint_operations_total", kind=kind, status="success")
            assert told.total("checkpoint_latency_milliseconds_count", kind=kind) == done
            return done

        assert checkpoints("journal") == 2
        assert checkpoints("hand-over") >= 2
        assert told.total("checkpoint_latency_milliseconds_sum", kind="journal") > 0
        assert await site.operations("pause") == 3


async def test_metrics_can_be_turned_off_and_the_sdk_keeps_its_own(
    temporal: TemporalClient,
) -> None:
    async with measured(temporal, stepping()) as site:
        site.settings = site.settings.model_copy(update={"enable_metrics": False})
        async with site.worker():
            run_id = await site.start()
            await site.until(run_id, "awaiting-input")
            await site.answer(run_id, True)
            ended = await site.ended(run_id)
            told = await site.scraped()

    assert ended.status == "completed"
    assert ended.metrics is not None
    assert not [name for name in told.names if name.startswith(("interrupt_", "checkpoint_"))]
    assert any(name.startswith("temporal_") for name in told.names)
