"""Collections that share what has not changed, and what a fan-out costs because of them."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, Final

import pytest
from core_drive import edge, graph

from abeyance.core import events
from abeyance.core.effects import Publish, RunNode, Yield
from abeyance.core.machine import advance, check, new_run
from abeyance.core.outcome import Asked, Finished, Interrupted, Send, VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    END,
    START,
    Edge,
    FunctionNode,
    GraphSpec,
    InterruptNode,
    InterruptSpec,
    Node,
    SubgraphNode,
)
from abeyance.core.state import Limits
from abeyance.core.tables import ALL, Index, Row, Table

BY_LENGTH: Final = Index[str](lambda word: (len(word),))
BY_END: Final = Index[str](lambda word: (ALL,) if word else (), order=lambda word: word[-1:])
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
ANN: Final = Principal(subject="ann", capabilities=("*",))
QUESTION: Final = InterruptSpec(
    name="q",
    prompt="Is this right?",
    response_schema=True,
    requested_capability="a:b",
    timeout=86_400.0,
)


class Words(Table[str, str]):
    INDICES = (BY_LENGTH, BY_END)
    __slots__ = ()


def test_what_is_changed_in_a_copy_is_not_changed_in_the_table() -> None:
    before = Words({"a": "one", "b": "three", "c": "two"})
    copy = before.copied()
    copy["b"] = "four"
    del copy["c"]
    copy["d"] = "six"
    assert [*copy.items()] == [("a", "one"), ("b", "four"), ("d", "six")]
    copy.settle()
    later = copy.copied()
    later["a"] = "eleven"
    later.settle()
    assert [*before.items()] == [("a", "one"), ("b", "three"), ("c", "two")]
    assert [*copy.items()] == [("a", "one"), ("b", "four"), ("d", "six")]
    assert before.found(BY_LENGTH, 3) == ["one", "two"]
    assert copy.found(BY_LENGTH, 3) == ["one", "six"]
    assert later == {"a": "eleven", "b": "four", "d": "six"}


@pytest.mark.parametrize("is_settled", [False, True])
def test_an_index_finds_what_belongs_together_in_its_order(is_settled: bool) -> None:
    words = Words({"a": "one", "b": "three", "c": "two", "d": ""}).copied()
    words["a"], words["e"], words["c"] = "four", "six", "ten"
    del words["d"]
    if is_settled:
        words.settle()
    assert words.found(BY_LENGTH, 3) == ["ten", "six"]
    assert words.found(BY_END, ALL) == ["three", "ten", "four", "six"]
    assert words.found(BY_END, ALL, 2) == ["three", "ten"]
    assert words.first(BY_END, ALL) == "three"
    assert (words.first(BY_LENGTH, 3), words.first(BY_LENGTH, 9)) == ("ten", None)
    assert words.groups(BY_LENGTH) == {3, 4, 5}
    assert (words.count(BY_LENGTH, 3), words.count(BY_LENGTH, 9)) == (2, 0)
    assert words.following(BY_LENGTH, 3, 4) == (1, "four")
    assert words.following(BY_LENGTH, 3, 4, after=1) == (3, "ten")
    assert words.following(BY_LENGTH, 3, 4, after=5) is None


def test_what_is_taken_out_and_put_in_again_comes_last() -> None:
    words = Words({"a": "one", "b": "two"})
    del words["a"]
    words["a"] = "six"
    assert [*words] == ["b", "a"]
    words.clear()
    assert not words
    with pytest.raises(KeyError, match="'a'"):
        del words["a"]
    with pytest.raises(KeyError, match="'a'"):
        words["a"]


def test_a_copy_is_like_its_table_until_something_else_is_put_into_it() -> None:
    words = Words({"a": "one", "b": "two"})
    copy = words.copied(str.upper)
    copy["b"], copy["a"] = "two", "one"
    assert copy.is_like(words)
    assert [*copy.copied(str.upper).items()] == [("a", "ONE"), ("b", "TWO")]
    copy["a"] = "two"
    assert not copy.is_like(words)
    assert not copy.is_like({"a": "two"})


def test_a_row_keeps_its_values_when_a_copy_is_changed() -> None:
    row = Row(["a", "b", "c", "d", "e"])
    copy = row
    for index, value in enumerate(["A", "B", "C", "D"]):
        copy = copy.copied()
        copy.put(index, value)
    assert [*row] == ["a", "b", "c", "d", "e"]
    assert copy == ["A", "B", "C", "D", "e"]
    assert copy[1:3] == ("B", "C")
    assert [*copy.copied(str.lower)][2:] == ["C", "d", "e"]
    assert (copy[3], copy[-2], len(copy)) == ("D", "D", 5)
    assert copy not in (row, 5)


CODE: Final = FunctionNode(id="each", asks=("a:b",))
INNER: Final = graph("work", ways=[(START, "work"), ("work", END)], name="inner")


@pytest.mark.parametrize(
    ("each", "asks", "is_approved"),
    [
        (CODE, False, False),
        (CODE, True, False),
        (CODE, False, True),
        (InterruptNode(id="each", question=QUESTION), False, False),
        (SubgraphNode(id="each", graph=INNER), False, False),
    ],
    ids=["code", "code that asks", "approved code", "questions", "nested graphs"],
)
def test_an_item_of_a_fan_out_costs_the_same_however_many_there_are(
    each: Node, *, asks: bool, is_approved: bool
) -> None:
    few, many = (_calls(count, each, asks, is_approved) / count for count in (100, 400))
    assert many < few * 1.3


def _calls(count: int, each: Node, asks: bool, is_approved: bool) -> int:
    """Run a fan-out to its end, and return how many functions that has called: it takes no clock."""
    calls = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    ways: list[Edge | tuple[str, str]] = [(START, "send"), edge(["each"], "end"), ("end", END)]
    nodes: list[Node] = [FunctionNode(id="send", to=("each",)), each, FunctionNode(id="end")]
    if is_approved:
        nodes.append(InterruptNode(id="ask", question=QUESTION))
        ways[0:1] = [(START, "ask"), ("ask", "send")]
    spec = graph(*nodes, ways=ways)
    sends = tuple(Send(node="each", item=number) for number in range(count))
    sys.setprofile(called)
    try:
        _run_to_the_end(spec, sends, asks=asks)
    finally:
        sys.setprofile(None)
    return calls


def _run_to_the_end(spec: GraphSpec, sends: tuple[Send, ...], *, asks: bool) -> None:
    now = BEGIN
    state = new_run(run_id="r", spec=spec, limits=Limits(), values={}, now=now)
    waiting: deque[events.Event] = deque([events.Started(now=now)])
    while not state.finished:
        now += timedelta(milliseconds=1)
        event = replace(waiting.popleft(), now=now)
        check(state, event)
        state, made = advance(state, event)
        for effect in made:
            match effect:
                case RunNode(input=order):
                    outcome: VisitOutcome = Finished()
                    if order.node == "send":
                        outcome = Finished(sends=sends)
                    elif order.node == "each" and asks and not order.own_answers:
                        outcome = Interrupted(interrupts=(Asked(question=QUESTION),))
                    waiting.append(events.VisitEnded(now=now, visit=order.address, outcome=outcome))
                case Publish(type="interrupt.opened", data={"id": str(id_)}):
                    answer = {id_: True}
                    waiting.append(
                        events.Responded(
                            now=now, principal=ANN, answers=answer, schema_faults={id_: ()}
                        )
                    )
                case Yield():
                    waiting.append(events.TaskBegan(now=now))
                case _:
                    pass
