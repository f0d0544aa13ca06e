"""What a run shows of itself in Temporal, within what the server allows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core_drive import T0, Drive, at, gate, graph

from abeyance import wire
from abeyance.core import events
from abeyance.core.effects import Publish
from abeyance.core.json import size
from abeyance.core.spec import START, Default, GoTo
from abeyance.workflows import visibility

START_RUN = wire.StartRun(run_id="r")
MEMO = 64_000
ATTRIBUTE = 2_000


def asking(*gates: Any) -> Drive:
    return Drive(graph(*gates, ways=[(START, each.id) for each in gates]))


# The memo


def test_the_memo_shows_the_nearest_fifty_and_how_many_more_there_are() -> None:
    gates = [gate(f"g{number}", timeout=1_000 - number) for number in range(60)]
    state = asking(gate("patient"), *gates).state
    rows = visibility.memo_rows(state)

    names = [row["name"] for row in rows.values()]
    assert names == [f"g{number}" for number in range(59, 9, -1)]
    summary = visibility.memo_summary(state, rows)
    assert (summary["open"], summary["more"], summary["status"]) == (61, 11, "awaiting-input")
    assert summary["deadline"] == at(941).isoformat()


def test_a_row_says_what_an_inbox_needs_and_is_cut() -> None:
    run = asking(gate("ask", prompt="Pay?" * 100, capability="pay", timeout=60))
    ((key, row),) = visibility.memo_rows(run.state).items()

    assert key == f"interrupt:{run.open('ask').id}"
    assert (row["name"], row["requested_capability"]) == ("ask", "pay")
    assert row["address"] == "graph:g;node:ask"
    assert (row["created_at"], row["deadline"]) == (T0.isoformat(), at(60).isoformat())
    assert len(row["prompt"]) == 200
    assert row["prompt"].endswith("...")
    assert row["digest"] == run.open("ask").digest


@pytest.mark.parametrize("prompt", ["x" * 10_000, "\U0001f600" * 10_000, '\\"\n\t' * 3_000])
def test_the_memo_keeps_its_budget_whatever_is_asked(prompt: str) -> None:
    gates = [gate(f"g{n}", prompt=prompt, capability="\U0001f600" * 200) for n in range(60)]
    state = asking(*gates).state
    rows = visibility.memo_rows(state)

    assert rows
    assert size({**rows, "summary": visibility.memo_summary(state, rows)}) < MEMO


def fact(number: int, **data: Any) -> Publish:
    return Publish(number=number, time=T0, type="node.failed", address=None, actor=None, data=data)


def test_facts_are_told_in_order_in_batches_that_fit() -> None:
    facts = [fact(number, message="x" * 900) for number in range(100)]
    batches = list(visibility.fact_batches(facts))

    assert [row["n"] for batch in batches for row in batch] == list(range(100))
    assert 10 < len(batches) < 20
    assert max(map(size, batches)) < 10_000
    assert list(visibility.fact_batches([])) == []


def test_a_large_fact_has_a_batch_of_its_own() -> None:
    batches = list(visibility.fact_batches([fact(1), fact(2, message="x" * 9_000), fact(3)]))

    assert [[row["n"] for row in batch] for batch in batches] == [[1], [2], [3]]


# Search attributes


def test_the_capabilities_are_those_that_are_asked_for_once_each() -> None:
    gates = [
        gate("a", capability="pay"),
        gate("b", capability="pay"),
        gate("c"),
        gate("d", capability="hire"),
    ]

    assert visibility.capabilities(asking(*gates).state) == ["hire", "pay"]
    assert visibility.capabilities(asking(gate("a")).state) == []


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["a", "b"], True),
        (["x" * 1_492], True),
        (["x" * 1_493], False),
        (["\U0001f600" * 400], False),
        ([f"capability{number}" for number in range(100)], False),
    ],
)
def test_what_no_search_attribute_can_hold_is_a_star(names: list[str], kept: bool) -> None:
    found = visibility.within_attribute(names)

    assert found == (names if kept else ["*"])
    assert len(json.dumps(found, ensure_ascii=False).encode()) < ATTRIBUTE


def test_the_deadline_is_that_of_the_nearest_interrupt() -> None:
    gates = [gate("a", timeout=60), gate("b"), gate("c", timeout=30)]

    assert visibility.interrupt_deadline(asking(*gates).state) == at(30)
    assert visibility.interrupt_deadline(asking(gate("a")).state) is None


# The timer


def test_a_timer_says_what_it_is_for() -> None:
    goto = asking(gate("a", timeout=60), gate("b", timeout=30, on_timeout=GoTo(node="a")))
    default = asking(gate("c", timeout=30, on_timeout=Default(answer={"secret": 1})))
    paused = Drive(graph("n", ways=[(START, "n")]))
    paused.feed(events.Paused, actor="ada", timeout=60)
    ending = Drive(graph("n", ways=[(START, "n")]))
    ending.cancel()

    assert visibility.timer_summary(goto.state) == "deadline of b: goto:a"
    assert visibility.timer_summary(default.state) == "deadline of c: default"
    assert visibility.timer_summary(paused.state) == "deadline of the pause"
    assert visibility.timer_summary(ending.state) == "grace of the ending"


# The failure


def test_a_failed_run_tells_temporal_where_it_failed() -> None:
    run = Drive(graph("n", ways=[(START, "n")]))
    run.fail("n", message="no bank")

    assert visibility.failure_message(run.ending.error) == "graph:g;node:n: no bank"
    assert visibility.failure_message(None) == "the run failed"
