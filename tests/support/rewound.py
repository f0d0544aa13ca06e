"""What tests of rewinds share: the events and questions of a run, and answers to it."""

from __future__ import annotations

from typing import Any

import pytest
from temporal_site import ANYBODY, Site

from abeyance import Principal, Refusal, views
from abeyance.records import events as told

APPROVER = Principal(subject="olga", capabilities=("runs:control", "runs:read", "pay"))


async def events(site: Site, run_id: str, **options: Any) -> list[views.Event]:
    found: list[views.Event] = await site.client.records.read(told.of_run, run_id, **options)
    return found


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        await call
    return refusal.value


async def opened(site: Site, run_id: str) -> views.InterruptView:
    (question,) = (await site.until(run_id, "awaiting-input")).interrupts
    return question


async def answer(site: Site, run_id: str, response: Any, **options: Any) -> views.InterruptView:
    """Answer the open question of a run, and return it as it was."""
    question = await opened(site, run_id)
    await site.client.run(run_id).respond(question.id, response, principal=ANYBODY, **options)
    return question
