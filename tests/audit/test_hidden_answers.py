"""Who may see an answer in an audit, where not all that was shown is kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from abeyance.core.json import sha256
from abeyance.core.ledger import shown_of
from abeyance.core.spec import InterruptSpec
from abeyance.history.audit import Orders
from abeyance.views import Event
from abeyance.workflows.visibility import shown_within

CAPABILITY = "payments:approve"


def event(type_: str, **data: Any) -> Event:
    return Event(id="e", time=datetime.now(UTC), type=type_, run_id="r", data={"id": "q", **data})


def asked(type_: str, prompt: str, **data: Any) -> Event:
    question = InterruptSpec(name="ask", prompt=prompt, requested_capability=CAPABILITY)
    return event(type_, **data).showing(shown_within(shown_of(question, "digest")))


def capability_of_the_answer(*earlier: Event) -> Any:
    orders = Orders()
    orders.add("respond", {"response": "yes"})
    for each in earlier:
        orders.content(each)
    line = orders.content(event("interrupt.answered", answer_sha256=sha256("yes")))
    assert line["answer"] == "yes"
    return line["capability"]


@pytest.mark.parametrize("prompt", ["Pay?", "x" * 50_000])
def test_the_answer_takes_the_capability_of_the_question_however_large_the_question(
    prompt: str,
) -> None:
    opened = asked("interrupt.opened", prompt, capability=CAPABILITY)

    assert capability_of_the_answer(opened) == CAPABILITY


def test_a_changed_question_without_room_for_its_capability_is_for_who_may_do_everything() -> None:
    opened = asked("interrupt.opened", "Pay?", capability=CAPABILITY)

    assert capability_of_the_answer(opened, asked("interrupt.changed", "Pay 5?")) == CAPABILITY
    assert capability_of_the_answer(opened, asked("interrupt.changed", "x" * 50_000)) == "*"
