"""Notifications on a real server: their start by a run, its cost in history, and their outcome."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from receiver import SECRET, Receiver, hook, receiver, rules
from sample_graphs import State, gated, gates
from standardwebhooks import Webhook
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowExecutionStatus,
    WorkflowHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from abeyance import START, Context, EventFilter, Graph, names
from abeyance.client.listing import LostNotification, undelivered
from abeyance.core.policy import ReadRights
from abeyance.core.state import Limits
from abeyance.notifications.config import Notifications
from abeyance.util import notifications_prefix
from abeyance.worker import make_notifier, make_worker
from abeyance.workflows import notification

YES = {"approved": True}


async def waiting(temporal: TemporalClient, file: Notifications | None) -> tuple[Site, str, int]:
    """Return a site, the id of its waiting run, and the length of that run's history at rest."""
    site = Site(temporal, gated(), notifications=file)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
    return site, run_id, await length(site, run_id)


async def length(site: Site, run_id: str) -> int:
    """Return the length of a history, without tasks and batches: late ones make it longer."""
    events = (await site.history(run_id)).events
    return sum(not _is_of_batch(event) for event in events)


def _is_of_batch(event: HistoryEvent) -> bool:
    if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED:
        (ran,) = event.marker_recorded_event_attributes.details["data"].payloads
        called: str = json.loads(ran.data)["activity_type"]
        return called == names.RECORD_ACTIVITY
    return re.search("_(WORKFLOW|ACTIVITY)_TASK_", EventType.Name(event.event_type)) is not None


def moments(hooked: Receiver) -> int:
    """Return the number of moments that a receiver got: a post whose answer is slow comes again."""
    return len({each.headers["webhook-id"] for each in hooked.posts()})


def emitting() -> Graph:
    """Return a graph with a local node that publishes an event, and a gate."""
    graph = Graph("emitting", state=State)

    @graph.node(local=True)
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        ctx.emit("charged", {"amount": 3})
        return {"log": ["worked"]}

    graph.interrupt("sign", prompt="Sign?")
    graph.edge(START, "work")
    graph.edge("work", "sign")
    return graph


async def test_a_rule_notifies_of_questions_and_ends(
    temporal: TemporalClient, hooked: Receiver
) -> None:
    file = rules(
        ({"event": ["interrupt.opened", "run.*"]}, [hook(f"{hooked.url}/hook")]),
        links={"base": "https://abeyance.example.com"},
    )
    site = Site(temporal, gated(), notifications=file)
    async with site.worker(), site.notifier():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        await eventually(lambda: moments(hooked) == 2)
        await site.client.run(run_id).respond(response=YES, principal=ANYBODY)
        await site.ended(run_id)
        await eventually(lambda: moments(hooked) == 3)
    await site.replays(run_id)

    posts = {each.json["type"]: each for each in hooked.posts()}
    assert posts.keys() == {"interrupt.opened", "run.awaiting_input", "run.completed"}
    post, (entry,) = posts["interrupt.opened"], view.interrupts
    body = Webhook(SECRET).verify(post.body, post.headers)
    assert body["data"]["event"]["data"]["id"] == entry.id
    assert body["data"]["run"] == {"run_id": run_id, "graph": "gated", "status": "awaiting-input"}
    assert body["data"]["interrupt"]["prompt"] == entry.prompt
    assert body["data"]["url"] == f"https://abeyance.example.com/inbox#{entry.id}"


async def test_a_rewind_notifies_again_of_open_questions(
    temporal: TemporalClient, hooked: Receiver
) -> None:
    file = rules(({"event": "interrupt.opened"}, [hook(f"{hooked.url}/hook")]))
    site = Site(temporal, gated(), notifications=file)
    async with site.worker(), site.notifier():
        run_id = await site.start()
        question = await site.answer(run_id, YES)
        await site.ended(run_id)
        for told, is_to_start in enumerate((False, True, False), start=2):
            await site.client.run(run_id).rewind(to="start" if is_to_start else question.id)
            await eventually(lambda: moments(hooked) == told)  # noqa: B023 it is awaited here
            question = await site.answer(run_id, YES)
            await site.ended(run_id)
    await site.replays(run_id)

    shown = {each.headers["webhook-id"]: each.json["data"]["interrupt"] for each in hooked.posts()}
    assert len({each["digest"] for each in shown.values()}) == len(shown) == 4


async def test_a_moment_costs_the_run_one_event_and_nothing_without_a_rule(
    temporal: TemporalClient, hooked: Receiver
) -> None:
    many = [hook(f"{hooked.url}/{number}") for number in range(4)]
    _, _, without = await waiting(temporal, None)
    _, _, elsewhere = await waiting(temporal, rules(({"event": "*", "graph": "another"}, many)))
    site, run_id, announced = await waiting(temporal, rules(({"event": "interrupt.opened"}, many)))
    async with site.worker(), site.notifier():
        await eventually(lambda: len({each.path for each in hooked.received}) == len(many))
        # A worker that has just started may look at the run once.
        await site.client.run(run_id).view()
    after = await length(site, run_id)

    assert elsewhere == without
    assert announced - without == 1
    assert after == announced


async def test_a_receiver_that_refuses_holds_up_nobody_and_is_seen(
    temporal: TemporalClient,
) -> None:
    async with receiver([410]) as gone, receiver() as well:
        file = rules(
            (
                {"event": "interrupt.opened"},
                [hook(f"{gone.url}/hook"), {"assignees": "apprise"}, hook(f"{well.url}/hook")],
            ),
        )
        site = Site(temporal, gated(), notifications=file)
        async with site.worker(), site.notifier():
            run_id = await site.start()
            await site.until(run_id, "awaiting-input")
            (event,) = await eventually(lambda: site.events(run_id, "notification.failed"))
            await site.client.run(run_id).respond(response=YES, principal=ANYBODY)
            view = await site.ended(run_id)

            async def failed() -> list[Any]:
                query = f"WorkflowId STARTS_WITH '{notifications_prefix(run_id)}'"
                found = [each async for each in temporal.list_workflows(query)]
                return [each for each in found if each.status is WorkflowExecutionStatus.FAILED]

            (notification,) = await eventually(failed)
            memo = await notification.memo()
            found = await undelivered(temporal, site.settings.task_queue, limit=10)
    await site.replays(run_id)

    assert view.status == "completed"
    assert len(well.posts()) == len(gone.posts()) == 1
    assert event == {
        "event": "interrupt.opened",
        "receiver": f"{gone.url}/hook",
        "reason": "the receiver answered 410",
        "attempts": 1,
        "id": view.run_id and memo[names.MEMO_MOMENT]["interrupt"],
    }
    assert memo[names.MEMO_MOMENT]["run_id"] == run_id
    assert [each["receiver"] for each in memo[names.MEMO_UNDELIVERED]] == [f"{gone.url}/hook"]
    assert found == [
        LostNotification(
            event="interrupt.opened",
            run_id=run_id,
            reasons=(f"{gone.url}/hook: the receiver answered 410",),
        )
    ]


async def test_failed_notifications_after_the_end_are_recorded_once(
    temporal: TemporalClient,
) -> None:
    async with receiver([410, 410]) as gone:
        events = ["interrupt.opened", "run.completed"]
        file = rules(({"event": events}, [hook(f"{gone.url}/hook")]))
        site = Site(temporal, gated(capability="refunds:approve"), notifications=file)
        only = EventFilter(types=("notification.failed",))
        async with site.worker(), site.notifier(), aclosing(site.client.events(only)) as stream:
            run_id = await site.start(labels={"team": "finance"})
            await site.until(run_id, "awaiting-input")
            first = await anext(stream)
            await site.client.run(run_id).respond(response=YES, principal=ANYBODY)
            await site.ended(run_id)
            last = await anext(stream)
        in_its_feed = await site.events(run_id, "notification.failed")

    assert [first.data, last.data] == in_its_feed
    assert last.data == {**first.data, "event": "run.completed", "id": None}
    assert (last.run_id, last.graph) == (run_id, "gated")
    assert [each async for each in site.client.events(only, follow=False)] == [first, last]
    assert [each async for each in site.client.events(only, after=first.id, follow=False)] == [last]
    bound = [replace(only, reads=ReadRights.of({"team": [team]})) for team in ("finance", "legal")]
    read = [[each async for each in site.client.events(one, follow=False)] for one in bound]
    assert read == [[first, last], []]


async def test_a_receiver_given_up_is_recorded_while_others_are_tried(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = replace(notification._DOUBLING, initial_interval=timedelta(seconds=0.1))
    monkeypatch.setattr(notification, "_DOUBLING", soon)
    monkeypatch.setattr(notification, "_GATHERED", timedelta(seconds=0.2))
    async with receiver([410]) as gone, receiver([503] * 9) as busy:
        targets = [hook(f"{each.url}/hook") for each in (gone, busy)]
        file = rules(({"event": "run.completed"}, targets))
        site = Site(temporal, gates(1), notifications=file)
        only = EventFilter(types=("notification.failed",))
        async with site.worker(), site.notifier():
            run_id = await site.start()
            await site.until(run_id, "awaiting-input")
            await site.client.run(run_id).respond(response=1, principal=ANYBODY)
            await site.ended(run_id)

            async def streamed() -> list[Any]:
                return [each async for each in site.client.events(only, follow=False)]

            (event,) = await eventually(streamed, seconds=30)
            (lost,) = await undelivered(temporal, site.settings.task_queue, limit=10)
            # A reader that has this event does not get it again.
            after = site.client.events(only, after=event.id, follow=False)
            again = [each async for each in after]
            first, second = await eventually(lambda: len(busy.posts()) > 1 and busy.posts()[:2])

    # Each attempt is the same message.
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert event.data["receiver"] == f"{gone.url}/hook"
    assert (event.run_id, event.data["event"], again) == (run_id, "run.completed", [])
    assert lost.reasons == (f"{gone.url}/hook: the receiver answered 410",)


async def test_a_run_learns_from_its_worker_what_somebody_wants_to_know(
    temporal: TemporalClient, hooked: Receiver
) -> None:
    file = rules(({"event": ["user.charged", "interrupt.opened"]}, [hook(f"{hooked.url}/hook")]))
    site, unaware = Site(temporal, emitting(), notifications=file), Site(temporal, emitting())
    site.client = unaware.client
    site.settings = unaware.settings
    async with site.worker(), site.notifier():
        run_id = await site.start()
        await eventually(lambda: moments(hooked) == 2)
    await site.replays(run_id)

    data = {each.json["type"]: each.json["data"] for each in hooked.posts()}
    assert data["user.charged"]["event"]["data"] == {"data": {"amount": 3}}
    assert data["interrupt.opened"]["interrupt"]["name"] == "sign"


async def test_moments_are_announced_before_a_run_goes_on_in_a_new_history(
    temporal: TemporalClient, hooked: Receiver
) -> None:
    file = rules(({"event": ["run.paused", "run.resumed"]}, [hook(f"{hooked.url}/hook")]))
    site = Site(temporal, gates(1), notifications=file)
    async with site.worker(), site.notifier():
        run_id = await site.start(limits=Limits(continue_as_new_after=6))
        await site.until(run_id, "awaiting-input")
        for _ in range(3):
            await site.pause_and_resume(run_id)
        await eventually(lambda: moments(hooked) == 6)
        described = await temporal.get_workflow_handle(run_id).describe()
    await site.replays(run_id)

    assert described.run_id != described.raw_description.workflow_execution_info.first_run_id
    assert len({each.headers["webhook-id"] for each in hooked.posts()}) == 6


async def test_an_erased_run_leaves_no_notification_not_even_one_on_its_way(
    temporal: TemporalClient,
) -> None:
    async with receiver([503] * 9) as busy, receiver() as well:
        targets = [hook(f"{busy.url}/hook")], [hook(f"{well.url}/hook")]
        file = rules(({"event": "interrupt.opened"}, targets[0]), ({"event": "run.*"}, targets[1]))
        site = Site(temporal, gated(), notifications=file)
        async with site.worker(), site.notifier():
            run_id = await site.start()
            await site.until(run_id, "awaiting-input")
            await eventually(busy.posts)
            await site.client.run(run_id).cancel()
            await site.ended(run_id)
            query = f"WorkflowId STARTS_WITH '{notifications_prefix(run_id)}'"

            async def listed(count: int) -> bool:
                return count == len([each async for each in temporal.list_workflows(query)])

            # The run announces three moments: it asked, it waited, and it was cancelled.
            await eventually(lambda: listed(3))

            async def is_erased() -> bool:
                return await site.client.runs.erase(run_id) == "erased"

            await eventually(is_erased, seconds=60)
            await eventually(lambda: listed(0))


class _NoStarts(Interceptor):
    """A client that cannot start workflows: Temporal refuses them."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Refusing(super().intercept_client(next))


class _Refusing(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        raise RPCError("too many", RPCStatusCode.RESOURCE_EXHAUSTED, b"")


async def test_the_run_notifies_if_its_worker_cannot_start_workflows(
    temporal: TemporalClient, hooked: Receiver
) -> None:
    file = rules(({"event": "run.completed"}, [hook(f"{hooked.url}/hook")]))
    site = Site(temporal, gates(1), notifications=file)
    config = temporal.config()
    config["interceptors"] = [_NoStarts()]
    barred = TemporalClient(**config)
    async with (
        make_worker(barred, site.graphs, site.settings, blobs=site.blobs, notifications=file),
        make_notifier(temporal, site.settings, file),
    ):
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).respond(response=1, principal=ANYBODY)
        await site.ended(run_id)
        await eventually(hooked.posts)
    await site.replays(run_id)
