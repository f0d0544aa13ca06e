"""The size of a visit's input: what people add beyond it is refused, and a larger visit fails."""

from __future__ import annotations

import pytest
from core_drive import ADA, Drive, asked, chain, gate, graph, reader
from core_graphs import fan, sent

from abeyance.core import events
from abeyance.core.outcome import Asked
from abeyance.core.policy import Principal
from abeyance.core.spec import START, FunctionNode, GoTo, InterruptNode
from abeyance.core.state import Limits
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code

SMALL = Limits(visit_bytes=1_000)


def large(bytes_: int) -> str:
    return "y" * bytes_


def test_an_answer_that_its_visit_could_not_be_given_is_refused_and_a_shorter_one_is_not() -> None:
    run = Drive(chain("work"), limits=SMALL, values={"x": large(300)})
    run.ask("work", "one", "two")
    run.answer("one", large(300))
    id_ = run.open("two").id
    refusal = run.refused_response({id_: large(500)})

    assert refusal.code is Code.PAYLOAD_TOO_LARGE
    too_many = refusal.details["actual"] - 1_000
    assert refusal.details == {"limit": 1_000, "actual": 1_000 + too_many, "interrupt_id": id_}
    assert f"to {1_000 + too_many} bytes" in refusal.message
    assert "shorten this" in refusal.message
    run.answer("two", large(500 - too_many))
    assert run.running == ["work"]


def test_a_visit_whose_input_has_all_that_it_may_have_gets_no_further_answer() -> None:
    def actual(values: int) -> int:
        run = Drive(chain("work"), limits=SMALL, values={"x": large(values)})
        run.ask("work", "one")
        answer = run.response({run.open("one").id: large(998)})
        return int(run.refused(events.Responded, **answer).details["actual"])

    added = len('{"one":""}') + 998
    full = 1_000 - (actual(0) - added)
    assert actual(full) == 1_000 + added
    assert Drive(chain("work"), limits=SMALL, values={"x": large(full)}).running == ["work"]


APPROVAL = {"properties": {"approved": {"type": "boolean"}}}
VOTES = Terms(quorum=Quorum(count=2))


@pytest.mark.parametrize(
    ("asks", "answer", "vote"),
    [
        (asked("ask"), 1, 0),
        (asked("ask", response_schema=APPROVAL, terms=VOTES), 2, 1),
        (gate("ask"), 2, 0),
        (gate("ask", schema=APPROVAL, terms=VOTES), 4, 2),
    ],
)
def test_an_answer_and_the_votes_before_it_count_as_often_as_a_visit_may_be_given_them(
    asks: Asked | InterruptNode, answer: int, vote: int
) -> None:
    def actual(first: int, last: int) -> int:
        run = Drive(chain("work" if isinstance(asks, Asked) else asks), limits=SMALL)
        if isinstance(asks, Asked):
            run.ask("work", asks)
        entry = run.open("ask")
        if entry.quorum is not None:
            run.answer("ask", {"approved": True, "comment": large(first)})
        about = run.response({entry.id: {"approved": True, "comment": large(last)}})
        bob = Principal(subject="bob")
        refusal = run.refused(events.Responded, **{**about, "principal": bob})
        return int(refusal.details["actual"])

    assert actual(0, 1_010) - actual(0, 1_000) == 10 * answer
    assert actual(10, 1_000) - actual(0, 1_000) == 10 * vote


def test_an_answer_that_was_given_before_does_not_count_again() -> None:
    run = Drive(chain("work"), limits=SMALL)
    run.ask("work", "one", "two")
    ids = {name: run.open(name).id for name in ("one", "two")}
    run.answer("one", large(400))
    both = {ids["one"]: large(400), ids["two"]: large(600)}
    assert run.refused_response(both).code is Code.PAYLOAD_TOO_LARGE
    run.respond({**both, ids["two"]: large(400)})

    assert run.running == ["work"]


def test_answers_that_come_together_count_together() -> None:
    run = Drive(chain("work"), limits=SMALL)
    run.ask("work", "one", "two")
    both = {run.open(name).id: large(600) for name in ("one", "two")}

    assert run.refused_response(both).code is Code.PAYLOAD_TOO_LARGE
    assert len(run.asking) == 2


def test_an_answer_that_is_written_to_a_field_counts_for_both() -> None:
    run = Drive(chain(gate("ask", answer_to="x"), "work"), limits=SMALL)
    id_ = run.open("ask").id

    assert run.refused_response({id_: large(600)}).details["actual"] > 1_200
    run.answer("ask", large(300))
    assert run.running == ["work"]


def test_an_edit_with_which_a_visit_that_waits_could_not_go_on_is_refused() -> None:
    run = Drive(chain("work"), limits=SMALL, values={"x": ""})
    run.ask("work", "one")
    edit = {"principal": ADA, "version": run.state.root.version}
    refusal = run.refused(events.ValuesEdited, patch={"x": large(1_000)}, **edit)

    assert refusal.code is Code.PAYLOAD_TOO_LARGE
    run.feed(events.ValuesEdited, patch={"x": large(500)}, **edit)
    assert run.values["x"] == large(500)


def test_a_run_with_too_large_values_can_be_answered_and_then_fails() -> None:
    run = Drive(chain(gate("ask"), "work"), limits=SMALL, values={"x": large(2_000)})
    run.answer("ask", "yes")
    code, message, address = run.error

    assert (code, address) == ("visit_too_large", "graph:g;node:work")
    assert "visit_bytes allows 1000" in message
    assert run.started == []


def test_messages_that_a_visit_would_be_handed_count_too() -> None:
    spec = graph(gate("ask"), reader(), ways=[(START, "ask"), ("ask", "work")])
    run = Drive(spec, limits=SMALL, values={"x": large(600)})
    run.send("m", large(600))
    run.answer("ask")

    assert run.error[0] == "visit_too_large"
    assert [entry.message_id for entry in run.state.mailbox.undelivered] == ["m"]


def test_messages_that_a_visit_was_handed_count_when_it_goes_on() -> None:
    run = Drive(chain(gate("first"), reader()), limits=SMALL)
    run.send("m", large(500))
    run.answer("first")
    run.ask("work", "one")
    answer = run.response({run.open("one").id: large(600)})

    assert run.refused(events.Responded, **answer).code is Code.PAYLOAD_TOO_LARGE


def test_the_failure_route_of_a_too_large_visit_is_entered_at_once() -> None:
    node = FunctionNode(id="work", on_error=GoTo(node="ask"))
    run = Drive(
        graph(node, gate("ask"), ways=[(START, "work")]), limits=SMALL, values={"x": large(2_000)}
    )

    assert run.asking == [("ask", "graph:g;node:ask")]


@pytest.mark.parametrize("changed", [False, True])
def test_the_item_of_a_fan_out_and_what_it_has_changed_count_too(*, changed: bool) -> None:
    spec = fan("then", ways=[("one", "then")])
    run = sent(spec, ["item" if changed else large(2_000)], limits=SMALL)
    if changed:
        run.finish("one", {"x": large(2_000)})

    assert run.error[0] == "visit_too_large"
