"""Notifications when encryption is required for every payload of a run."""

from __future__ import annotations

from receiver import hook, receiver, rules
from sealed_site import a_key, asking, paid, paying, replays
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.client.listing import undelivered
from abeyance.settings import Settings
from abeyance.temporal.connection import connect_temporal
from abeyance.util import notifications_prefix


async def test_a_notification_is_delivered_and_its_failure_is_seen_by_who_has_the_keys(
    temporal: TemporalClient,
) -> None:
    settings = Settings(encryption_keys=a_key(), encryption_required=True)
    address = temporal.service_client.config.target_host
    sealed = await connect_temporal(address, settings=settings)
    async with receiver() as well, receiver([410]) as gone:
        targets = [hook(f"{well.url}/hook"), hook(f"{gone.url}/hook")]
        file = rules(({"event": "interrupt.opened"}, targets))
        site = Site(sealed, paying(), notifications=file)
        async with site.worker(), site.notifier():
            run_id, asked = await asking(site)
            (post,) = await eventually(well.posts)
            (failed,) = await eventually(lambda: site.published(run_id, "notification.failed"))

            async def is_listed() -> bool:
                return bool(await undelivered(sealed, site.settings.task_queue, limit=9))

            await eventually(is_listed)
            assert await paid(site, run_id)
        await replays(site, run_id)
        query = f"WorkflowId STARTS_WITH '{notifications_prefix(run_id)}'"
        stored = [each async for each in temporal.list_workflows(query)]

    assert post.json["data"]["interrupt"]["id"] == asked.id
    assert failed.data["receiver"] == f"{gone.url}/hook"
    for each in stored:
        raw = each.raw_info.SerializeToString()
        assert failed.data["reason"].encode() not in raw
        assert asked.prompt.encode() not in raw
