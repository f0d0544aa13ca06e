"""Runs wait while the storage is away or a worker lacks a key, and nothing is done twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from sample_graphs import alone
from scripted_agents import desk
from stored import LARGE, State, connected, letters
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker

from abeyance import Agent, Context, Graph, views
from abeyance.activities.recording import HandOver, RecordingActivities
from abeyance.client.records import shared_database
from abeyance.records.writer import Writer
from abeyance.settings import Settings
from abeyance.storage.backends import ConfiguredBlobs
from abeyance.storage.blobs import FolderBlobs
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.workflows.run import AgentRun

STEPPED = LARGE[:50_000]


class Cellar:
    """A folder for blobs whose door can be shut: then no blob goes in or comes out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cellar"
        self._aside = folder / "aside"
        self._next = folder / "next"
        self._aside.mkdir()
        self.folder.symlink_to(self._aside)

    # Each replaces the folder in one step: between two steps, a writing worker would make a new folder.
    def shut(self) -> None:
        self._next.write_text("the door", encoding="utf-8")
        self._next.replace(self.folder)

    def open(self) -> None:
        self._next.symlink_to(self._aside)
        self._next.replace(self.folder)

    def site(self, temporal: TemporalClient, work: Callable[..., Any]) -> Site:
        """Return a site that keeps large values here, and whose only node has no retry."""
        stored = connected(temporal, Settings(storage=str(self.folder)))
        return Site(stored, one_node(work, retries=0))


@pytest.fixture
def cellar(tmp_path: Path) -> Cellar:
    return Cellar(tmp_path)


AWAY = [("node.blocked", "storage_unavailable"), ("node.unblocked", "storage_unavailable")]


async def blocked_events(site: Site, run_id: str) -> list[tuple[str, Any]]:
    """Return the type and the code of each event about a blocked visit."""
    found = await site.published(run_id, "node.blocked", "node.unblocked")
    return [(event.type, event.data["code"]) for event in found]


one_node = partial(alone, state=State)


@asynccontextmanager
async def only_workflows(site: Site) -> AsyncIterator[None]:
    """Run a worker that records but carries out no visits, so that they wait for another worker."""
    async with Worker(
        site.temporal,
        task_queue=site.settings.task_queue,
        workflows=[AgentRun],
        activities=[
            RecordingActivities(
                site.temporal,
                site.settings.task_queue,
                Writer(shared_database(site.settings)),
                HandOver(),
            ).record
        ],
        no_remote_activities=True,
        workflow_runner=AnyTypeRunner(),
    ):
        yield


async def pending(site: Site, run_id: str, attempt: int) -> bool:
    """Return whether the only visit under way has come to this attempt."""
    described = await site.temporal.get_workflow_handle(run_id).describe()
    return any(each.attempt >= attempt for each in described.raw_description.pending_activities)


def two_sites(
    temporal: TemporalClient, what: str, folder: Path, keys: str, graph: Graph
) -> tuple[Site, Site]:
    """Return a site with storage and a key, and a second one whose worker lacks one of them."""
    settings = Settings(
        storage=str(folder / "blobs"), encryption_keys=keys, encryption_required=what == "key"
    )
    lacking = {
        "key": {"encryption_keys": keys.replace("first", "other")},
        "storage": {"storage": str(folder / "elsewhere")},
    }
    site = Site(connected(temporal, settings), graph)
    poor = connected(temporal, settings.model_copy(update=lacking[what]))
    return site, Site(poor, graph, beside=site)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        # The worker's message is encrypted too, with a key that this process lacks.
        (
            "key",
            ("key_missing", "the message cannot be read: this is encrypted with the key 'other'"),
        ),
        (
            "storage",
            (
                "storage_unavailable",
                "this worker cannot read the input of the visit: the blob run-",
            ),
        ),
    ],
)
async def test_a_visit_that_a_worker_cannot_read_costs_no_attempt(
    temporal: TemporalClient, tmp_path: Path, keys: str, what: str, expected: tuple[str, str]
) -> None:
    code, message = expected
    made: list[list[views.BlockedView]] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        blocked = (await site.client.run(ctx.run_id).view()).blocked
        # The view says that no worker could continue the run until a worker has done so.
        made.append([why for why in blocked if why.address])
        return {"log": ["done"]}

    site, poor = two_sites(temporal, what, tmp_path, keys, one_node(work, retries=0))
    async with only_workflows(site):
        run_id = await site.start({"given": LARGE})
        await eventually(lambda: pending(site, run_id, 1))
    async with poor.worker():
        await eventually(lambda: pending(site, run_id, 3), seconds=30)
        view = await site.client.run(run_id).view()
    async with site.worker():
        ended = await site.ended(run_id)

    # If the worker cannot read the run either, the view says that first.
    *_, why = view.blocked
    assert why.code == code
    assert why.message.startswith(message)
    assert ended.status == "completed", ended.error
    # Nothing blocks the visit once a worker can read it.
    assert made == [[]]
    # A worker without the key cannot signal the run either.
    assert await blocked_events(site, run_id) == ([] if what == "key" else AWAY)


async def test_a_run_that_its_worker_cannot_read_says_so_although_the_worker_can_tell_it_nothing(
    temporal: TemporalClient, tmp_path: Path, keys: str
) -> None:
    site, poor = two_sites(temporal, "key", tmp_path, keys, letters())
    # If a worker left within a task, the lost task would hide why the next worker fails.
    async with poor.worker():
        run_id = await site.start()
        (why,) = (await site.until_blocked(run_id, attempt=0)).blocked

    assert why.code == "key_missing"
    assert "a worker cannot read the run" in why.message


@pytest.mark.parametrize("what", ["key", "storage"])
async def test_steps_that_a_worker_cannot_read_are_kept_for_one_that_can(
    temporal: TemporalClient, tmp_path: Path, keys: str, what: str
) -> None:
    done: list[str] = []
    stepped = asyncio.Event()

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async def fetch() -> str:
            done.append("fetch")
            return STEPPED

        text = await ctx.step("fetch", fetch)
        done.append("attempt")
        if not stepped.is_set():
            stepped.set()
            await asyncio.Event().wait()  # until its worker stops, which counts as no attempt
        return {"given": text}

    site, poor = two_sites(temporal, what, tmp_path, keys, one_node(work, retries=0))
    async with site.worker():
        run_id = await site.start()
        await stepped.wait()
    await eventually(lambda: pending(site, run_id, 2))
    async with poor.worker():
        # If the attempts of this worker counted, none would be left.
        await eventually(lambda: pending(site, run_id, 3), seconds=30)
    async with site.worker():
        # Each worker does this when it starts, and must not lose the steps.
        await site.client.waking.wake()
        ended = await site.ended(run_id)

    assert ended.status == "completed", ended.error
    assert done == ["fetch", "attempt", "attempt"]
    assert ended.values["given"] == STEPPED


async def test_a_step_and_a_result_wait_for_the_storage_and_are_done_once(
    temporal: TemporalClient, cellar: Cellar, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async def fetch() -> str:
            done.append("fetch")
            cellar.shut()
            return STEPPED

        text = await ctx.step("fetch", fetch)
        done.append("fetched")
        cellar.shut()
        return {"given": text}

    async def seen(count: int) -> bool:
        return len(await blocked_events(site, run_id)) == count

    site = cellar.site(temporal, work)
    with caplog.at_level(logging.WARNING, logger="abeyance.node"):
        async with site.worker():
            run_id = await site.start()
            await eventually(lambda: seen(1))
            assert done == ["fetch"]
            cellar.open()
            await eventually(lambda: seen(3))
            assert done == ["fetch", "fetched"]
            cellar.open()
            ended = await site.ended(run_id)

    assert await blocked_events(site, run_id) == [*AWAY, *AWAY]
    told = [record for record in caplog.records if "the visit is blocked" in record.getMessage()]
    assert len(told) == 2
    assert not any(record.exc_info for record in caplog.records)
    assert ended.status == "completed", ended.error
    assert done == ["fetch", "fetched"]
    assert ended.values["given"] == STEPPED
    await FolderBlobs(cellar.folder).delete_run(run_id)
    assert not [path for path in cellar.folder.rglob("*") if path.is_file()]


async def test_a_model_is_asked_once_for_a_turn_that_waits_for_the_storage(
    temporal: TemporalClient, cellar: Cellar
) -> None:
    turns: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turns.append(len(messages))
        cellar.shut()
        return ModelResponse(parts=[TextPart("Done.")])

    async def is_blocked() -> bool:
        return await blocked_events(site, run_id) == AWAY[:1] and await pending(site, run_id, 2)

    clerk = Agent("clerk", model=FunctionModel(answer))
    settings = Settings(storage=str(cellar.folder))
    site = Site(connected(temporal, settings), desk(clerk), blobs=ConfiguredBlobs(settings))
    async with site.worker():
        run_id = await site.start({"question": "How many?"})
        await eventually(is_blocked)
        cellar.open()
        ended = await site.ended(run_id)

    assert (ended.error, ended.values["report"], turns) == (None, "Done.", [1])


async def test_a_visit_with_large_steps_goes_on_while_the_storage_is_away(
    temporal: TemporalClient, cellar: Cellar, keys: str
) -> None:
    attempts: list[int] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        attempts.append(ctx.attempt)

        async def fetch() -> str:
            return STEPPED

        await ctx.step("fetch", fetch)
        if len(attempts) == 1:
            cellar.shut()
            # Long enough for two heartbeats, each of which carries the result of the step.
            await asyncio.sleep(2.5)
            cellar.open()
            raise RuntimeError("once more")
        return {"log": [str(len(await ctx.step("again", fetch)))]}

    settings = Settings(storage=str(cellar.folder), encryption_keys=keys, encryption_required=True)
    site = Site(connected(temporal, settings), one_node(work, retries=1))
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)

    assert ended.status == "completed", ended.error
    assert attempts == [1, 2]
    assert ended.values["log"] == ["50000"]


async def test_a_visit_that_is_stopped_while_the_storage_is_away_goes_on_with_its_steps(
    temporal: TemporalClient, cellar: Cellar
) -> None:
    done: list[str] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async def fetch() -> str:
            done.append("fetch")
            cellar.shut()
            return STEPPED

        text = await ctx.step("fetch", fetch)
        return {"given": text}

    site = cellar.site(temporal, work)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: done)
        await site.client.run(run_id).pause(mode="now")
        await site.until(run_id, "paused")
        cellar.open()

        async def stopped() -> bool:
            return not (await site.client.run(run_id).view()).running

        await eventually(stopped)
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)

    assert ended.status == "completed", ended.error
    assert done == ["fetch"]
    assert ended.values["given"] == STEPPED


async def test_a_stopped_visit_keeps_its_result_while_the_storage_is_away(
    temporal: TemporalClient, cellar: Cellar
) -> None:
    runs: list[str] = []
    is_stopped = asyncio.Event()

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async def watch() -> None:
            while not ctx.is_cancelled():
                await asyncio.sleep(0.01)
            is_stopped.set()

        runs.append("once")
        watching.append(asyncio.create_task(watch()))
        cellar.shut()
        return {"given": STEPPED}

    watching: list[asyncio.Task[None]] = []
    site = cellar.site(temporal, work)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: runs)
        await site.client.run(run_id).pause(mode="now")
        async with asyncio.timeout(60):
            await is_stopped.wait()
        cellar.open()
        await site.until(run_id, "paused")
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)
        await asyncio.gather(*watching)

    assert ended.status == "completed", ended.error
    assert runs == ["once"]
    assert ended.values["given"] == STEPPED
