"""What a model says while it speaks: told to whoever watches, and written down nowhere."""

from __future__ import annotations

from speaking import TURN, Listener, Speaker
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.history.feed import Feed


async def test_a_watcher_hears_what_a_model_says_before_its_turn_is_over(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    site = Site(temporal, speaker.desk())
    async with site.worker():
        run_id = await site.start()
        listener = Listener(await Feed(temporal, site.settings.task_queue).watched(run_id, None))
        await listener.until(lambda it: any(each.address == TURN for each in it.events))
        speaker.say("The letter ")
        await listener.hears("The letter ")
        speaker.say("is ", "on ")
        await listener.hears("The letter is on ")
        speaker.say("its way.")
        await listener.hears("The letter is on its way.")
        speaker.end()
        view = await site.ended(run_id)
        assert view.values["report"] == "The letter is on its way."
        await listener.close()
