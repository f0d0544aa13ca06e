"""How much a visit may be given: what people add is refused in time, and what is too large fails."""

from __future__ import annotations

from core_drive import ADA, Drive, chain, gate, graph, reader
from core_fans import fan, sent

from abeyance.core import events
from abeyance.core.spec import START, AskHuman, FunctionNode
from abeyance.core.state import Limits
from abeyance.errors import Code

SMALL = Limits(visit_bytes=1_000)


def large(bytes_: int) -> str:
    return "y" * bytes_


def test_an_answer_that_its_visit_could_not_be_given_is_refused_and_a_shorter_one_is_not() -> None:
    run = Drive(chain("work"), limits=SMALL, values={"x": large(300)})
    run.ask("work", "one", "two")
    run.answer("one", large(300))
    id_ = run.open("two").id
    refusal = run.refused(events.Responded, **run.response({id_: large(500)}))

    assert refusal.code is Code.PAYLOAD_TOO_LARGE
    assert refusal.details["limit"] == 1_000
    assert refusal.details["actual"] > 1_000
    assert refusal.details["interrupt_id"] == id_
    assert "shorten this" in refusal.message
    run.answer("two", large(200))
    assert run.running == ["work"]


def test_answers_that_come_together_count_together() -> None:
    run = Drive(chain("work"), limits=SMALL)
    run.ask("work", "one", "two")
    both = {run.open(name).id: large(600) for name in ("one", "two")}

    assert run.refused(events.Responded, **run.response(both)).code is Code.PAYLOAD_TOO_LARGE
    assert len(run.asking) == 2


def test_an_answer_that_is_written_to_a_field_counts_for_both() -> None:
    run = Drive(chain(gate("ask", answer_to="x"), "work"), limits=SMALL)
    id_ = run.open("ask").id

    assert (
        run.refused(events.Responded, **run.response({id_: large(600)})).details["actual"] > 1_200
    )
    run.answer("ask", large(300))
    assert run.running == ["work"]


def test_an_answer_travels_once_to_the_visit_that_asked_for_it() -> None:
    run = Drive(chain("work", "next"))
    run.ask("work", "one")
    run.answer("one", "yes")
    run.finish("work")

    assert [(dict(o.answers), dict(o.own_answers)) for o in run.orders("work")[1:]] == [
        ({}, {"one": "yes"})
    ]
    assert dict(run.orders("next")[0].answers) == {"one": "yes"}


def test_an_edit_with_which_a_visit_that_waits_could_not_go_on_is_refused() -> None:
    run = Drive(chain("work"), limits=SMALL, values={"x": ""})
    run.ask("work", "one")
    edit = {"principal": ADA, "version": run.state.root.version}
    refusal = run.refused(events.ValuesEdited, patch={"x": large(1_000)}, **edit)

    assert refusal.code is Code.PAYLOAD_TOO_LARGE
    run.feed(events.ValuesEdited, patch={"x": large(500)}, **edit)
    assert run.values["x"] == large(500)


def test_what_is_too_large_already_can_be_answered_and_fails_then() -> None:
    run = Drive(chain(gate("ask"), "work"), limits=SMALL, values={"x": large(2_000)})
    run.answer("ask", "yes")
    code, message, address = run.error

    assert (code, address) == ("visit_too_large", "graph:g;node:work")
    assert "visit_bytes allows 1000" in message
    assert run.started == []


def test_an_operator_is_asked_about_what_is_too_large_where_the_node_says_so() -> None:
    node = FunctionNode(id="work", on_error=AskHuman())
    run = Drive(chain(node), limits=SMALL, values={"x": large(2_000)})
    id_ = run.open("error").id
    run.feed(events.Responded, **run.response({id_: {"action": "skip"}}))

    assert run.status == "completed"


def test_messages_that_a_visit_would_be_handed_count_too() -> None:
    spec = graph(gate("ask"), reader(), ways=[(START, "ask"), ("ask", "work")])
    run = Drive(spec, limits=SMALL)
    run.send("m1", large(600))
    run.send("m2", large(600))
    run.answer("ask")

    assert run.error[0] == "visit_too_large"
    assert [entry.message_id for entry in run.state.mailbox.undelivered] == ["m1", "m2"]


def test_the_item_of_a_fan_out_counts_too() -> None:
    run = sent(fan(), [large(2_000)], limits=SMALL)

    assert run.error[0] == "visit_too_large"
