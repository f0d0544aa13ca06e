"""Who reads a message, when, and what becomes of the rest."""

from __future__ import annotations

import pytest
from core_drive import Drive, chain, gate, graph, reader

from abeyance.core import events
from abeyance.core.spec import START


def test_a_function_with_an_inbox_is_handed_all_that_is_there_when_it_starts() -> None:
    run = Drive(chain("first", reader()))
    for number in range(3):
        run.send(f"m{number}", priority="low" if number == 0 else "high")
    run.finish("first")
    run.send("late")

    (order,) = run.orders("work")
    assert [message.message_id for message in order.inbox] == ["m1", "m2", "m0"]
    assert [message.message_id for message in run.state.mailbox.queue] == ["late"]
    assert {fact.address for fact in run.facts("message.delivered")} == {"graph:g;node:work"}
    assert run.state.counters.messages_delivered == 3


def test_a_function_without_an_inbox_is_handed_nothing() -> None:
    run = Drive(chain("first", "work"))
    run.send("m")
    run.finish("first")

    assert run.orders("work")[0].inbox == ()
    assert len(run.state.mailbox.queue) == 1


def test_a_visit_that_is_stopped_gets_its_inbox_again_and_nobody_else_does() -> None:
    run = Drive(chain("first", reader(), reader("after")))
    run.send("m")
    run.finish("first")
    run.pause(mode="now")
    run.send("new")
    run.stopped("work")
    run.read_again()
    run.resume()

    assert [[m.message_id for m in order.inbox] for order in run.orders("work")] == [["m"], ["m"]]
    run.finish("work")
    assert [m.message_id for m in run.orders("after")[0].inbox] == ["new"]


@pytest.mark.parametrize(("begun", "is_again"), [(False, False), (True, False), (False, True)])
def test_what_a_visit_was_handed_is_reported_if_its_code_never_begins(
    begun: bool, is_again: bool
) -> None:
    run = Drive(chain("first", reader()))
    run.send("m")
    run.finish("first")
    if is_again:
        run.pause(mode="now")
        run.stopped("work")
        run.resume()
    run.cancel(actor="ada")
    run.stopped("work", begun=begun)

    left = [(each.message_id, each.reason) for each in run.state.mailbox.undelivered]
    is_read = begun or is_again
    assert left == ([] if is_read else [("m", "cancelled")])
    assert run.state.counters.messages_delivered == int(is_read)
    returned = [(fact.address, fact.data) for fact in run.facts("message.returned")]
    assert returned == ([] if is_read else [("graph:g;node:work", {"message_id": "m"})])
    assert run.status == "cancelled"


def test_a_message_waits_for_the_node_that_it_names() -> None:
    run = Drive(chain("work", "next"))
    run.send("for next", target="next")
    run.send("for this visit", target="graph:g;node:work")
    run.send("for another visit", target="graph:g;node:work:2")
    run.send("for the graph", target="graph:g")
    assert run.take("work", upto=9) == ["for this visit", "for the graph"]
    run.finish("work")
    assert run.take("next", upto=9) == ["for next"]
    run.finish("next")

    (left,) = run.state.mailbox.undelivered
    assert (left.message_id, left.reason) == ("for another visit", "completed")


def test_whoever_reads_first_gets_it() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), (START, "b")]))
    run.send("m")

    assert (run.take("b"), run.take("a")) == (["m"], [])


def test_finally_nodes_read_nothing_because_all_was_reported() -> None:
    run = Drive(graph("a", reader("tidy"), ways=[(START, "a")], finally_=["tidy"]))
    run.send("m")
    run.finish("a")

    assert run.orders("tidy")[0].inbox == ()
    assert [left.reason for left in run.state.mailbox.undelivered] == ["completed"]


def test_clearing_reports_all_and_changes_nothing_else() -> None:
    run = Drive(chain(gate("ask")))
    run.send("m0")
    run.send("m1", target="ask", ttl=60)
    run.wait(1)
    run.feed(events.MessagesCleared, actor="bob")

    assert run.state.last_activity_at == run.now
    assert [(left.message_id, left.reason) for left in run.state.mailbox.undelivered] == [
        ("m0", "cleared"),
        ("m1", "cleared"),
    ]
    (fact,) = run.facts("messages.cleared")
    assert (fact.actor, fact.data) == ("bob", {"count": 2})
    assert (run.status, run.waiting) == ("awaiting-input", ["ask"])
    run.wait(1)
    run.feed(events.MessagesCleared, actor="bob")
    assert run.last == ()
