"""The payout: two of three managers, not the submitter; a reminder after a day, a director after two."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from abeyance import Principal, Refusal
from abeyance.testing import InMemoryRun
from examples.payout import graph

ADA, BOB, CAROL = (
    Principal(subject=name, groups=("managers",)) for name in ("ada", "bob", "carol")
)
FRIDAY = datetime(2026, 6, 5, 13, tzinfo=UTC)
MONDAY = datetime(2026, 6, 8, 13, tzinfo=UTC)
TUESDAY = datetime(2026, 6, 9, 13, tzinfo=UTC)


@pytest.fixture
async def run() -> InMemoryRun:
    """Start a payout that Carol submits on a Friday."""
    made = InMemoryRun(
        graph, {"payee": "the printer", "amount": 900}, started_by="carol", now=FRIDAY
    )
    await made.start()
    return made


async def refused(run: InMemoryRun, principal: Principal) -> str:
    with pytest.raises(Refusal) as refusal:
        await run.respond("approve", True, principal=principal)
    return refusal.value.code


async def types(run: InMemoryRun) -> list[str]:
    return [event.type async for event in run.events(follow=False) if event.type[:9] == "interrupt"]


async def test_two_managers_who_have_not_submitted_it_pay(run: InMemoryRun) -> None:
    (first,) = await run.respond("approve", True, principal=ADA)
    assert (first.status, first.missing) == ("voted", 1)
    assert await refused(run, CAROL) == "separation_of_duties"

    (second,) = await run.respond("approve", True, principal=BOB)
    assert (second.status, run.status) == ("held", "awaiting-input")
    await run.advance("5s")

    assert (run.status, run.values["receipt"]) == ("completed", "paid 900 to the printer")


async def test_over_a_weekend_nobody_is_reminded(run: InMemoryRun) -> None:
    (question,) = await run.interrupts()
    assert question.reminders == [MONDAY]
    assert [each.at for each in question.escalations] == [TUESDAY]

    await run.advance("71h")
    assert await types(run) == ["interrupt.opened"]
    await run.advance("1h")
    assert await types(run) == ["interrupt.opened", "interrupt.reminded"]
    await run.advance("1d")
    assert (await types(run))[-1] == "interrupt.escalated"
