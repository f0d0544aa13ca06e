"""The support desk pays money back if a person agrees, or has agreed to such refunds before."""

from __future__ import annotations

from pathlib import Path

import pytest

from abeyance import Principal, Refusal
from abeyance.notifications.config import InSlack, load_notifications
from abeyance.settings import Settings
from abeyance.testing import InMemoryRun
from examples.support_desk import __main__ as desk
from examples.support_desk.desk import graph

ADA = Principal(subject="ada", capabilities=("refunds:approve",))
REMEMBERED = {"approved": True, "remember": {"for": "8h", "where": "run"}}
LETTER = "A-7: 120 euros, late. A-8: 30 euros, late. A-9: 40 euros, broken."


async def asked(letter: str) -> InMemoryRun:
    run = InMemoryRun(graph, {"letter": letter})
    await run.start()
    return run


async def test_each_refund_asks_an_approver_with_the_capability() -> None:
    run = await asked("A-7: 120 euros, late. A-8: 30 euros, late.")
    with pytest.raises(Refusal, match="refunds:approve"):
        await run.respond("approve", {"approved": True}, principal=Principal(subject="ben"))
    for amount in (120, 30):
        (question,) = await run.interrupts()
        assert question.reason["arguments"]["amount"] == amount
        await run.respond("approve", {"approved": True}, principal=ADA)

    assert run.values["reply"] == "We are sorry. We pay back 120 euros for A-7, 30 euros for A-8."


async def test_a_yes_that_is_remembered_pays_small_refunds_for_the_same_reason_unasked() -> None:
    run = await asked(LETTER)
    await run.respond("approve", REMEMBERED, principal=ADA)

    (question,) = await run.interrupts()
    assert question.prompt == "Refund 40 euros for the order A-9, which came broken?"
    await run.respond("approve", {"approved": False}, principal=ADA)
    assert run.values["reply"] == "We are sorry. We pay back 120 euros for A-7, 30 euros for A-8."


def test_its_rules_post_refunds_in_slack() -> None:
    file = Path(desk.__file__).parent / "notifications.yaml"
    rules = load_notifications(Settings(notifications=file))

    assert rules is not None
    assert [target for rule in rules.rules for target in rule.to] == [InSlack(slack="#refunds")]
