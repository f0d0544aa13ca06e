"""Runs and signals that this deployment cannot decrypt hide no other runs, and stop nothing."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from sample_graphs import State, chain, gated
from stack import Api, new_id, served
from stored import connected
from temporal_site import ANYBODY, Site, eventually, refused, replay
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.common import RawValue

from abeyance import START, Graph, commands, views
from abeyance.api.app import create_app
from abeyance.client import claims
from abeyance.errors import Code, Unavailable
from abeyance.settings import Settings

YES = {"approved": True}
CAPABILITY = "refunds:approve"
OLD, NEW, LOST = (
    f"{name}:{base64.b64encode(os.urandom(32)).decode()}" for name in ("old", "new", "lost")
)
WITHOUT_OLD = "with the key 'old', which this process lacks (it has 'new')"


def sealing(temporal: TemporalClient, keys: str | None) -> TemporalClient:
    """Return the connection of a process that has these keys."""
    return connected(temporal, Settings(encryption_keys=keys))


def asking(name: str = "gated") -> Graph:
    return gated(name, capability=CAPABILITY, timeout="2h")


def twice() -> Graph:
    graph = Graph("twice", state=State)
    for name in ("a", "b"):
        graph.interrupt(name, prompt=f"Really {name}?", requested_capability=f"{name}:approve")
        graph.edge(START, name)
    return graph


@dataclass(frozen=True, kw_only=True)
class Retired:
    """A deployment whose key was retired too early: its API and its worker have only another key.

    `asks` awaits one answer, `twice` one of two, `over` has ended, and `mine` can be read.
    """

    site: Site
    api: Api
    label: str
    talk: str
    asks: views.RunView
    twice: views.RunView
    over: str
    mine: str

    @property
    def http(self) -> httpx.AsyncClient:
        return self.api.http

    async def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Return the items of a list."""
        response = await self.http.get(path, params={"limit": 1000, **query})
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["items"]
        return found

    async def inbox(self, **query: Any) -> list[dict[str, Any]]:
        """Return the questions of these runs that the inbox shows."""
        own = {self.asks.run_id, self.twice.run_id, self.mine}
        return [row for row in await self.items("/interrupts", **query) if row["run_id"] in own]


@pytest_asyncio.fixture(scope="module")
async def retired(temporal: TemporalClient) -> AsyncIterator[Retired]:
    label, talk = new_id("set"), new_id("talk")
    labels = {"set": label}
    before = Site(sealing(temporal, OLD), asking(), twice(), chain(1))
    async with before.worker():
        asks = await before.start(labels=labels, conversation_id=talk)
        two = await before.start(graph=before.graphs["twice"], labels=labels)
        over = await before.start(graph=before.graphs["chain"], labels=labels)
        waiting = await before.until(two, "awaiting-input")
        first = next(entry for entry in waiting.interrupts if entry.name == "a")
        await before.client.run(two).respond({first.id: 1}, principal=ANYBODY)
        views = [await before.until(each, "awaiting-input") for each in (asks, two)]
        await before.ended(over)
    site = Site(sealing(temporal, NEW), asking(), beside=before, patience=5)
    settings = Settings(encryption_keys=NEW, task_queue=site.settings.task_queue)
    app = create_app(settings, site.graphs, site.client)
    async with site.worker(), served(app) as api:
        mine = await site.start(labels=labels)
        await site.until(mine, "awaiting-input")
        found = Retired(
            site=site,
            api=api,
            label=f"set={label}",
            talk=talk,
            asks=views[0],
            twice=views[1],
            over=over,
            mine=mine,
        )

        async def is_listed() -> bool:
            rows = await found.inbox()
            told = {row["run_id"] for row in rows if row["requested_capability"]}
            return len(told) == 3 and len(await found.items("/runs", label=found.label)) == 4

        await eventually(is_listed)
        yield found


async def test_a_list_with_an_unreadable_run_shows_the_others(retired: Retired) -> None:
    rows = {row["run_id"]: row for row in await retired.items("/runs", label=retired.label)}

    assert {run_id: row["status"] for run_id, row in rows.items()} == {
        retired.asks.run_id: "awaiting-input",
        retired.twice.run_id: "awaiting-input",
        retired.over: "completed",
        retired.mine: "awaiting-input",
    }
    assert rows[retired.mine]["interrupts"][0]["prompt"] == "Pay 0?"


async def test_the_inbox_finds_a_question_that_cannot_be_read_by_its_capability_and_deadline(
    retired: Retired,
) -> None:
    both = {retired.asks.run_id, retired.mine}
    late = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    for query in ({"capability": CAPABILITY}, {"before": late}):
        assert {row["run_id"] for row in await retired.inbox(**query)} == both
    (other,) = await retired.inbox(capability="b:approve")
    assert other["run_id"] == retired.twice.run_id
    assert await retired.inbox(capability="c:approve") == []


async def test_a_run_that_cannot_be_read_in_temporal_is_shown_as_it_was_recorded(
    retired: Retired,
) -> None:
    for query in ({}, {"wait": "PT0.1S", "until": "paused"}):
        response = await retired.http.get(f"/runs/{retired.asks.run_id}", params=query)
        assert response.status_code == 200, response.text
        found = response.json()
        assert (found["status"], found["degraded"]) == ("awaiting-input", True)
        assert found["blocked"][0]["code"] == "key_missing"
        assert WITHOUT_OLD in found["blocked"][0]["message"]
    over = (await retired.http.get(f"/runs/{retired.over}")).json()
    assert (over["status"], over["blocked"]) == ("completed", [])
    (asked,) = (await retired.http.get(f"/runs/{retired.asks.run_id}/interrupts")).json()["items"]
    assert asked["id"] == retired.asks.interrupts[0].id
    # The records have the result, and are not sealed here.
    result = await retired.http.get(f"/runs/{retired.over}/result")
    assert result.json()["outcome"] == "completed"


async def test_labels_and_conversation_of_a_run_that_cannot_be_read_are_known_by_its_records(
    retired: Retired,
) -> None:
    for run_id in (retired.asks.run_id, retired.over):
        run = retired.site.client.run(run_id)
        assert f"set={(await run.labels())['set']}" == retired.label
        view = await run.view()
        assert f"set={view.labels['set']}" == retired.label
        assert view.conversation_id == (retired.talk if run_id == retired.asks.run_id else None)


async def test_a_run_that_cannot_be_read_keeps_its_conversation(
    retired: Retired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_UNSTARTED", timedelta(0))
    busy = await refused(retired.site.start(conversation_id=retired.talk))

    assert busy.code is Code.CONVERSATION_BUSY


async def test_a_batch_goes_on_past_a_run_that_cannot_be_read(retired: Retired) -> None:
    body = {"filter": {"label": retired.label}, "body": {}}
    told = (await retired.http.post("/batch/resume", json=body)).json()

    # A control is a signal, which a run gets once a worker can read the run.
    assert {row["run_id"]: row["ok"] for row in told["results"]} == {
        retired.asks.run_id: True,
        retired.twice.run_id: True,
        retired.mine: True,
    }


async def refusals(site: Site, run_id: str) -> list[tuple[str, str, str]]:
    """Return the refusals of signals and messages: the type, the signal or code, and the reason."""
    return [
        (event.type, event.data.get("signal") or event.data["code"], event.data["reason"])
        for event in await site.published(run_id, "signal.refused", "message.rejected")
    ]


async def failed_tasks(site: Site, run_id: str) -> int:
    events = (await site.history(run_id)).events
    return sum(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED for event in events)


@pytest.mark.parametrize("keys", [OLD, None], ids=["another key", "no key"])
async def test_an_undecryptable_signal_is_recorded_and_the_run_goes_on(
    temporal: TemporalClient, keys: str | None
) -> None:
    site = Site(sealing(temporal, keys), asking())
    sender = sealing(temporal, LOST)
    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        handle = sender.get_workflow_handle(run_id)
        for name in ("pause", "cancel", "resume"):
            await handle.signal(name, commands.Control(actor="eve"))
        await handle.signal("steer", commands.SteerMessage(message_id="m", text="hello"))
        (sealed,) = await sealing(temporal, OLD).data_converter.encode([commands.Pause()])
        for data in (sealed.data[:-1], sealed.data[:20], b"", b"\x00" * 200):
            broken = Payload(metadata=sealed.metadata, data=data)
            await temporal.get_workflow_handle(run_id).signal("pause", RawValue(broken))
        # Signals come in order, so the run has processed those before.
        await site.client.run(run_id).steer(message_id="n", text="hello")
        now = await site.client.run(run_id).view()
        await site.client.run(run_id).respond({view.interrupts[0].id: YES}, principal=ANYBODY)
        ended = await site.ended(run_id)

    assert (now.status, now.paused, now.queue_depth) == ("awaiting-input", False, 1)
    assert ended.status == "completed"
    told = await refusals(site, run_id)
    assert [row[:2] for row in told] == [
        ("signal.refused", "pause"),
        ("signal.refused", "cancel"),
        ("signal.refused", "resume"),
        ("message.rejected", "invalid_message"),
        *[("signal.refused", "pause")] * 4,
    ]
    assert all("The signal cannot be decrypted" in reason for *_, reason in told[:4])
    assert await failed_tasks(site, run_id) == 0


async def test_a_worker_that_has_the_key_replays_what_one_without_it_has_refused(
    temporal: TemporalClient,
) -> None:
    site = Site(sealing(temporal, OLD), asking())
    better = Site(sealing(temporal, f"{OLD},{LOST}"), asking(), beside=site)
    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        sender = sealing(temporal, LOST)
        for _ in range(3):
            await sender.get_workflow_handle(run_id).signal("pause", commands.Pause())
        await eventually(lambda: _told(site, run_id, 3))
    for connection in (site.temporal, better.temporal):
        await replay(await site.history(run_id), connection)
    async with better.worker():
        # This worker has the key. Even so, the signals that were refused do not take effect later.
        await (
            sealing(temporal, LOST)
            .get_workflow_handle(run_id)
            .signal("steer", commands.SteerMessage(message_id="m", text="hello"))
        )
        assert (await better.client.run(run_id).view()).paused is False
        await better.client.run(run_id).respond({view.interrupts[0].id: YES}, principal=ANYBODY)
        ended = await better.ended(run_id)

    assert ended.status == "completed"
    assert [message.message_id for message in ended.undelivered] == ["m"]
    assert len(await refusals(better, run_id)) == 3
    assert await failed_tasks(better, run_id) == 0


async def _told(site: Site, run_id: str, count: int) -> bool:
    return len(await refusals(site, run_id)) == count


async def test_a_worker_without_the_key_does_not_refuse_an_accepted_signal(
    temporal: TemporalClient,
) -> None:
    site = Site(sealing(temporal, f"{OLD},{LOST}"), asking())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await sealing(temporal, LOST).get_workflow_handle(run_id).signal("pause", commands.Pause())
        await site.until(run_id, "paused")
        await site.client.run(run_id).cancel()
        await site.ended(run_id)

    await replay(await site.history(run_id), site.temporal)
    # The worker fails the task, naming the key. Temporal retries until a worker has the key.
    with pytest.raises(RuntimeError, match="WrongKey"):
        await replay(await site.history(run_id), sealing(temporal, OLD))
    assert await refusals(site, run_id) == []


async def test_an_answer_that_cannot_be_decrypted_is_refused_and_leaves_nothing(
    temporal: TemporalClient,
) -> None:
    site = Site(sealing(temporal, OLD), asking())
    stranger = Site(sealing(temporal, f"{LOST},{OLD}"), asking(), beside=site, patience=5)
    async with site.worker():
        run_id = await site.start()
        asked = await site.asked(run_id)
        before = len((await site.history(run_id)).events)
        with pytest.raises(Unavailable, match=r"could not handle this: .* with the key 'lost'"):
            await stranger.client.run(run_id).respond({asked.id: YES}, principal=ANYBODY)
        assert len((await site.history(run_id)).events) == before
        await site.client.run(run_id).respond({asked.id: YES}, principal=ANYBODY)
        assert (await site.ended(run_id)).status == "completed"


async def test_a_start_that_cannot_be_decrypted_is_shown_and_can_be_ended(
    temporal: TemporalClient,
) -> None:
    site = Site(sealing(temporal, OLD), chain(1))
    stranger = Site(sealing(temporal, LOST), chain(1), beside=site)
    async with site.worker():
        run_id = await stranger.start()
        await eventually(lambda: failed_tasks(site, run_id))
        view = await site.client.run(run_id).view()
        await temporal.get_workflow_handle(run_id).terminate()
        ended = await site.client.run(run_id).view()

    assert (view.status, view.degraded, view.graph) == ("running", True, "chain")
    assert view.blocked[0].code == "key_missing"
    assert (ended.status, ended.blocked) == ("terminated", [])
