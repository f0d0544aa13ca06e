"""Delegations where all has to be sealed: what was lent, and why, is sealed in the records too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sealed_site import asking
from sqlalchemy import select
from temporal_site import Site

from abeyance import Principal
from abeyance.records.tables import delegations

ADA = Principal(subject="ada", capabilities=("pay",))


async def test_a_sealed_delegation_counts_and_is_sealed_in_the_records(site: Site) -> None:
    run_id, asked = await asking(site)
    until = datetime.now(UTC) + timedelta(days=1)
    made = await site.client.delegations.make("bob", until=until, reason="ill", principal=ADA)
    (receipt,) = await site.client.run(run_id).respond(
        asked.id, "yes", principal=Principal(subject="bob")
    )
    with site.client.records.database.reading() as connection:
        query = select(delegations.c.document).where(delegations.c.id == made.id)
        document = connection.execute(query).scalar_one()

    assert (receipt.answered_by, receipt.on_behalf_of) == ("bob", "ada")
    assert document.startswith("sealed:")
