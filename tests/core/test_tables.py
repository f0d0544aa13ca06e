"""Tables: rows and their indices, which keep the cost of a fan-out's item constant."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, replace
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
from abeyance.core.tables import ALL, Index, Table

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


@dataclass
class Box:
    size: int


BY_SIZE: Final = Index[Box](lambda box: (box.size,))


class Boxes(Table[str, Box]):
    ROW = Box
    INDICES = (BY_SIZE,)
    __slots__ = ()


class Words(Table[str, str]):
    ROW = str
    INDICES = (BY_LENGTH, BY_END)
    __slots__ = ()


def test_an_index_finds_what_belongs_together_in_its_order() -> None:
    words = Words({"a": "one", "b": "three", "c": "two", "d": ""})
    words["a"], words["e"], words["c"] = "four", "six", "ten"
    del words["d"]
    assert words.found(BY_LENGTH, 3) == ["ten", "six"]
    assert words.found(BY_END, ALL) == ["three", "ten", "four", "six"]
    assert words.found(BY_END, ALL, 2) == ["three", "ten"]
    assert words.first(BY_END, ALL) == "three"
    assert (words.first(BY_LENGTH, 3), words.first(BY_LENGTH, 9)) == ("ten", None)
    assert (words.count(BY_LENGTH, 3), words.count(BY_LENGTH, 9)) == (2, 0)
    assert words.after(BY_LENGTH, 3, 0) == (3, "ten")
    assert words.after(BY_LENGTH, 3, 3) == (5, "six")
    assert words.after(BY_LENGTH, 3, 5) is None


def test_a_row_that_is_removed_and_added_again_comes_last() -> None:
    words = Words({"a": "one", "b": "two"})
    del words["a"]
    words["a"] = "six"
    assert [*words] == ["b", "a"]
    assert words.found(BY_LENGTH, 3) == ["two", "six"]
    words.clear()
    assert not words
    assert words.count(BY_LENGTH, 3) == 0
    with pytest.raises(KeyError, match="'a'"):
        del words["a"]


@pytest.mark.parametrize("name", ["pop", "popitem", "setdefault", "update", "__ior__"])
def test_rows_come_and_go_by_their_keys_alone_so_that_indices_know_of_it(name: str) -> None:
    words = Words({"a": "one"})
    with pytest.raises(TypeError, match="by del table"):
        getattr(words, name)({"b": "two"})
    assert (words, words.found(BY_LENGTH, 3)) == ({"a": "one"}, ["one"])


def test_a_row_that_has_changed_is_found_where_it_belongs_now() -> None:
    boxes = Boxes({"a": Box(size=1), "b": Box(size=2)})
    boxes["a"].size = 2
    boxes.moved("a")
    assert boxes.found(BY_SIZE, 2) == [Box(size=2), Box(size=2)]
    assert boxes.count(BY_SIZE, 1) == 0


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
    """Run a fan-out to its end, and return how many functions that called, which needs no clock."""
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
        made = advance(state, event)
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
