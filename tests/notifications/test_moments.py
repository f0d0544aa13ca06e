"""The announcement of a moment by its run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import T0, Drive, chain, gate

from abeyance import wire
from abeyance.core.effects import Publish
from abeyance.core.json import Json
from abeyance.notifications import moments


@pytest.mark.parametrize("part", ["payload", "preview"])
def test_a_question_that_is_too_large_is_announced_without_what_belongs_to_it(part: str) -> None:
    node = gate("ask")
    large: dict[str, Json] = {part: {"summary": "x" * 120_000}}
    run = Drive(chain(replace(node, question=replace(node.question, **large))))
    opened = Publish(
        number=1,
        time=T0,
        type="interrupt.opened",
        address=None,
        actor=None,
        data={"id": run.open("ask").id},
    )

    start = wire.StartRun(run_id="r", notify=("interrupt.*",))
    (found,) = moments.of_facts(run.state, start, [opened])

    assert found.interrupt is not None
    assert (found.interrupt[part], found.interrupt["abridged"]) == (None, True)
    assert found.interrupt["prompt"] == "Go on?"
