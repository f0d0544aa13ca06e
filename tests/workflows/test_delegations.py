"""The book of delegations on a real server: it outlives its histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sample_graphs import gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Principal
from abeyance.errors import Unavailable
from abeyance.util import delegations_workflow_id
from abeyance.workflows import delegations as book_of_delegations

ADA = Principal(subject="ada", capabilities=("pay",))
_ROUNDS = 12
"""Two updates each, of five events or so: more than a history of a hundred events has."""


async def test_delegations_outlive_a_history_that_grows_long(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_of_delegations, "_MOST_EVENTS", 100)
    site = Site(temporal, gated(capability="pay"))
    until = datetime.now(UTC) + timedelta(days=1)
    book = temporal.get_workflow_handle(delegations_workflow_id(site.client.task_queue))
    async with site.worker():
        kept = await site.client.delegations.make("bob", until=until, principal=ADA)
        first = (await book.describe()).run_id
        for _ in range(_ROUNDS):
            made = await site.client.delegations.make("eve", until=until, principal=ADA)
            await site.client.delegations.delete(made.id, principal=ADA)

        async def is_continued() -> bool:
            return (await book.describe()).run_id != first

        await eventually(is_continued)
        listed = await site.client.delegations.list(ANYBODY)
        run_id = await site.start()
        (question,) = (await site.until(run_id, "awaiting-input")).interrupts
        (receipt,) = await site.client.run(run_id).respond(
            question.id, {"approved": True}, principal=Principal(subject="bob")
        )
        await book.terminate()

    assert [each.id for each in listed] == [kept.id]
    assert (receipt.answered_by, receipt.on_behalf_of) == ("bob", "ada")


async def test_where_no_worker_is_up_the_delegations_do_not_answer_and_no_run_is_named(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(capability="pay"), patience=0.5)
    delegations = site.client.delegations
    until = datetime.now(UTC) + timedelta(days=1)
    for call in (
        lambda: delegations.make("bob", until=until, principal=ADA),
        lambda: delegations.list(ADA),
    ):
        with pytest.raises(Unavailable, match=r"^the delegations did not answer within"):
            await call()
    book = delegations_workflow_id(site.client.task_queue)
    await temporal.get_workflow_handle(book).terminate()
