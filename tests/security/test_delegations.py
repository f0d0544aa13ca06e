"""Delegations where all has to be sealed: who has no key makes none, and none again that was deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from intruder import Intruder
from sealed_site import asking
from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError

from abeyance import Principal
from abeyance.util import delegations_workflow_id

ADA = Principal(subject="ada", capabilities=("pay",))


async def test_a_sealed_delegation_counts_and_no_copy_of_it_does(
    temporal: TemporalClient, site: Site, intruder: Intruder
) -> None:
    run_id, asked = await asking(site)
    until = datetime.now(UTC) + timedelta(days=1)
    made = await site.client.delegations.make("bob", until=until, principal=ADA)
    (receipt,) = await site.client.run(run_id).respond(
        asked.id, "yes", principal=Principal(subject="bob")
    )
    assert (receipt.answered_by, receipt.on_behalf_of) == ("bob", "ada")

    book = delegations_workflow_id(site.client.task_queue)
    (order,) = await intruder.updates(book, "delegate")
    await site.client.delegations.delete(made.id, principal=ADA)
    assert await intruder.update(book, "delegate", order) is not None
    assert await refused(temporal, book, {"id": "x", "maker": {"subject": "root"}, "to": "bob"})
    assert await site.client.delegations.list(ANYBODY) == []


async def refused(temporal: TemporalClient, book: str, order: dict[str, Any]) -> bool:
    """Whether an order that is not sealed is refused."""
    try:
        await temporal.get_workflow_handle(book).execute_update("delegate", order)
    except WorkflowUpdateFailedError:
        return True
    return False
