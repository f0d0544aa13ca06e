"""The announcement of a moment by its run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import T0, Drive, chain, gate
from sample_graphs import State

from abeyance import START, Graph, Principal, Quorum, wire
from abeyance.core.effects import Publish
from abeyance.core.json import Json
from abeyance.core.state import RunState
from abeyance.notifications import moments
from abeyance.notifications.moments import Moment
from abeyance.testing import InMemoryRun


def moment(state: RunState, id_: str) -> Moment:
    opened = Publish(
        number=1, time=T0, type="interrupt.opened", address=None, actor=None, data={"id": id_}
    )
    start = wire.StartRun(run_id="r", notify=("interrupt.*",))
    (found,) = moments.of_facts(state, start, [opened])
    return found


@pytest.mark.parametrize("part", ["payload", "preview"])
def test_a_question_that_is_too_large_is_announced_without_what_belongs_to_it(part: str) -> None:
    node = gate("ask")
    large: dict[str, Json] = {part: {"summary": "x" * 120_000}}
    run = Drive(chain(replace(node, question=replace(node.question, **large))))
    found = moment(run.state, run.open("ask").id)

    assert found.interrupt is not None
    assert (found.interrupt[part], found.interrupt["abridged"]) == (None, True)
    assert found.interrupt["prompt"] == "Go on?"


async def test_nobody_is_notified_of_what_the_voters_answer() -> None:
    graph = Graph("voting", state=State)
    graph.interrupt("vote", prompt="Pay?", response=bool, quorum=Quorum(2))
    graph.edge(START, "vote")
    run = InMemoryRun(graph)
    await run.start()
    await run.respond("vote", True, principal=Principal(subject="ada"), note="as agreed")
    (question,) = await run.interrupts()

    said = moment(run.state, question.id).interrupt or {}

    assert [(vote["by"], vote["note"]) for vote in said["votes"]] == [("ada", "as agreed")]
    for each in (said, *said["votes"]):
        assert {"answer", "answer_sha256"}.isdisjoint(each)
