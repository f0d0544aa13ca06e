"""Messages: which ones a run accepts, which visit reads them, and when they expire."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from core_drive import Drive, at, chain, gate, graph, reader

from abeyance.core import events, messages
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.spec import START, FunctionNode, GraphSpec, SubgraphNode
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal


def working(**limits: Any) -> Drive:
    """Start a run whose first node is at work."""
    return Drive(chain("work", "next"), limits=Limits(**limits))


def refused(run: Drive, **about: Any) -> Refusal:
    given = {"message_id": "m", "text": "hello", "sender": "ada", **about}
    return run.refused(events.MessageSent, message=Message(**given))


# Accepted and refused


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_message_is_refused(text: str) -> None:
    refusal = refused(working(), text=text)

    assert (refusal.code, refusal.details) == (Code.INVALID_MESSAGE, {"message_id": "m"})
    assert "empty" in refusal.message


@pytest.mark.parametrize(
    "about", [{"parts": ({"type": "text", "text": "x"},)}, {"action": "continue"}]
)
def test_a_message_without_text_may_have_parts_or_an_action(about: dict[str, Any]) -> None:
    run = working()
    run.send("m", "", **about)

    assert len(run.state.mailbox.queue) == 1


@pytest.mark.parametrize("id_", ["", "m" * 201])
def test_an_id_has_a_length(id_: str) -> None:
    refusal = refused(working(), message_id=id_)

    assert refusal.code is Code.INVALID_MESSAGE
    assert f"this one has {len(id_)}" in refusal.message
    run = working()
    run.send("m" * 200)
    assert len(run.state.mailbox.queue) == 1


def test_a_text_is_as_long_as_the_limit_and_no_longer() -> None:
    run = working(max_message_length=60)
    run.send("m0", "x" * 60)
    refusal = refused(run, text="y" * 61)

    assert refusal.code is Code.INVALID_MESSAGE
    assert refusal.details == {"message_id": "m", "limit": 60, "actual": 61}
    for told in ("61 characters", "max_message_length allows 60", "Shorten", f"'{'y' * 50}...'"):
        assert told in refusal.message


@pytest.mark.parametrize(
    "about",
    [
        {"metadata": {"a": "é" * 46}},
        {"params": {"a": "x" * 90}},
        {"parts": ({"type": "text", "text": "x" * 90},)},
        {"metadata": {"a": "x" * 45}, "params": {"b": "x" * 45}},
    ],
)
def test_the_size_of_a_messages_data_is_counted_in_bytes_of_json(about: dict[str, Any]) -> None:
    run = working(max_metadata_size=98)
    run.send("small", metadata={"a": "x" * 90})
    refusal = refused(run, text="y" * 51, **about)

    assert refusal.code is Code.INVALID_MESSAGE
    assert refusal.details["limit"] == 98 < refusal.details["actual"] < 140
    assert refusal.message.endswith(f"Its text begins: '{'y' * 50}...'")


@pytest.mark.parametrize(
    ("about", "what"),
    [
        ({"metadata": {"a": float("nan")}}, "metadata"),
        ({"metadata": {"a": {1, 2}}}, "metadata"),
        ({"metadata": {1: "a"}}, "metadata"),
        ({"params": {"a": float("inf")}}, "params"),
        ({"parts": ({"type": b"x"},)}, "parts"),
    ],
)
def test_message_data_that_is_not_json_is_refused_by_its_name(
    about: dict[str, Any], what: str
) -> None:
    run = working()
    with pytest.raises(Refusal) as caught:
        run.send("m", **about)

    assert caught.value.code is Code.INVALID_MESSAGE
    assert f"The {what} of the message cannot be written as JSON" in caught.value.message
    assert run.state.mailbox.queue == ()


def test_actions_may_be_restricted_to_a_list() -> None:
    run = working(allowed_actions=("sing", "dance"))
    run.send("m0")
    run.send("m1", action="sing")
    run.send("m2", action="dance")

    refusal = refused(run, action="shout")
    assert refusal.code is Code.ACTION_NOT_ALLOWED
    assert refusal.details == {"message_id": "m", "allowed_actions": ["sing", "dance"]}
    assert "'shout' is not allowed in this run; allowed are 'sing', 'd" in refusal.message


def media(url: str) -> tuple[dict[str, Json], ...]:
    return ({"type": "media", "media_type": "image/png", "url": url},)


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/x?y#z",
        "https://A.example",
        "https://a.example:443",
        "https://b.example:8443/x",
    ],
)
def test_media_may_be_named_by_a_url_of_a_host_that_is_allowed(url: str) -> None:
    run = working(allowed_media_hosts=("a.example", "b.example:8443"))
    run.send("m", parts=media(url))

    assert run.state.mailbox.queue[0].parts == media(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/x",
        "https://b.example/x",
        "https://a.example:8443/x",
        "https://a.example.evil.example/",
        "https://a.example@evil.example/",
        "https://evil.example\\@a.example/",
        "https://a.example\n.evil.example/",
        "https:///a.example",
        "https://",
        "a.example",
        "javascript:alert(1)",
        "",
    ],
)
def test_any_other_url_is_refused(url: str) -> None:
    run = working(allowed_media_hosts=("a.example", "b.example:8443"))

    refusal = refused(run, parts=media(url))
    assert refusal.code is Code.INVALID_MESSAGE
    assert f"The url {url!r} is not" in refusal.message
    assert "a.example, b.example:8443" in refusal.message
    assert "has none." in refused(working(), parts=media("https://a.example/")).message


@pytest.mark.parametrize(
    "target",
    [
        "next",
        "inside",
        "graph:g",
        "graph:g;node:next:7",
        "graph:g;node:outer;graph:inner",
        "graph:g;node:outer;graph:inner;node:inside",
    ],
)
def test_a_target_is_a_node_or_an_address_also_of_what_is_still_to_come(target: str) -> None:
    run = Drive(around(FunctionNode(id="inside")))
    run.send("m", target=target)

    assert run.state.mailbox.queue[0].target == target


@pytest.mark.parametrize(
    "target",
    ["nobody", "", ";", "graph:other", "graph:gg;node:next", "node:next", "graph:g;node:nobody"],
)
def test_a_target_that_does_not_exist_is_refused_with_those_that_do(target: str) -> None:
    refusal = refused(Drive(around(FunctionNode(id="inside"))), target=target)

    assert (refusal.code, refusal.details) == (Code.UNKNOWN_NODE, {"message_id": "m"})
    assert "'inside', 'next', 'outer', 'work'" in refusal.message


def around(*nodes: FunctionNode) -> GraphSpec:
    """Return a graph with another inside: work, outer (inner), next."""
    inner = chain(*nodes)
    inner = GraphSpec(name="inner", fields=inner.fields, nodes=inner.nodes, edges=inner.edges)
    return chain("work", SubgraphNode(id="outer", graph=inner), "next")


def test_a_signal_that_is_not_a_message_is_recorded_with_its_fault() -> None:
    run = working()
    for text in ("short", "long" * 5_000):
        message = Message(message_id=text[:5], text=text, sender="temporal")
        run.feed(events.MessageSent, message=message, signalled=True, fault="it is a list")

    assert run.rejected() == [("short", "invalid_message"), ("longl", "invalid_message")]
    facts = run.facts("message.rejected")
    assert {(fact.actor, fact.data["reason"]) for fact in facts} == {("temporal", "it is a list")}
    short, long = [(fact.audit or {})["message"] for fact in facts]
    assert short == {"text": "short"}
    assert (long.keys(), len(long["text"])) == ({"text"}, 1_000)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_signal_that_comes_when_the_run_ends_is_noted(is_over: bool) -> None:
    run = working()
    run.cancel(mode="now" if is_over else "graceful")
    assert run.state.finished == is_over
    before = run.seen()
    run.send("m", signalled=True)

    assert run.rejected() == [("m", "not_running")]
    assert run.status == str(before.status)
    (fact,) = run.facts("message.rejected")
    assert fact.data["code"] == "not_running"


# Readers


def test_a_visit_that_is_tried_again_takes_the_same_messages_in_the_same_order() -> None:
    run = working()
    for number in range(3):
        run.send(f"m{number}")
    assert run.take("work", upto=1) == ["m0"]
    assert run.take("work", upto=2) == ["m0", "m1"]
    run.pause(mode="now")
    run.stopped("work")
    run.resume()

    assert run.take("work", upto=1) == ["m0", "m1"]
    assert run.take("work", upto=3) == ["m0", "m1", "m2"]
    assert len(run.facts("message.delivered")) == 3


def test_a_message_goes_into_a_nested_graph() -> None:
    run = Drive(around(reader("inside")))
    run.send("to all")
    run.send("in", target="inside")
    run.send("there", target="graph:g;node:outer;graph:inner;node:inside")
    run.send("around", target="outer")
    run.finish("work")

    assert [m.message_id for m in run.orders("inside")[0].inbox] == ["to all", "in", "there"]


@pytest.mark.parametrize("reads", [True, False])
def test_a_function_with_an_inbox_is_handed_all_that_is_there_when_it_starts(
    *, reads: bool
) -> None:
    run = Drive(chain("first", reader() if reads else "work"))
    for number in range(3):
        run.send(f"m{number}", priority="low" if number == 0 else "high")
    run.finish("first")
    run.send("late")

    (order,) = run.orders("work")
    handed = ["m1", "m2", "m0"]
    assert [message.message_id for message in order.inbox] == (handed if reads else [])
    left = [message.message_id for message in run.state.mailbox.queue]
    assert sorted(left) == (["late"] if reads else ["late", *sorted(handed)])
    delivered = run.facts("message.delivered")
    assert {fact.address for fact in delivered} == ({"graph:g;node:work"} if reads else set())
    assert run.state.counters.messages_delivered == len(delivered)


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
def test_messages_of_a_visit_that_never_began_are_reported_as_undelivered(
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


def test_finally_nodes_read_nothing_because_all_was_reported() -> None:
    run = Drive(graph("a", reader("tidy"), ways=[(START, "a")], finally_=["tidy"]))
    run.send("m")
    run.finish("a")

    assert run.orders("tidy")[0].inbox == ()
    assert [left.reason for left in run.state.mailbox.undelivered] == ["completed"]


def test_messages_that_expire_at_a_clearing_do_not_count_as_cleared() -> None:
    run = Drive(chain(gate("ask")))
    run.send("m0")
    run.send("m1", ttl=60)
    now = run.now + timedelta(seconds=60)
    count = messages.unread(run.state, now)
    run.wait(60)
    run.feed(events.MessagesCleared, actor="bob")

    assert (run.now, count) == (now, 1)
    (fact,) = run.facts("messages.cleared")
    assert fact.data == {"count": count}


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
    # The run still knows their ids.
    run.send("m0")
    assert run.state.mailbox.queue == ()
    assert refused(run, message_id="m0", text="other").code is Code.MESSAGE_CONFLICT


# Expiry


def test_a_message_that_is_not_read_in_time_is_reported() -> None:
    run = working()
    for id_, ttl in (("taken", 5), ("long", 20), ("short", 10)):
        run.send(id_, ttl=ttl)
    assert run.state.next_deadline() == at(5)
    assert run.take("work") == ["taken"]
    assert run.state.next_deadline() == run.state.mailbox.first_expiry == at(10)
    run.tick(9.9)
    assert len(run.state.mailbox.queue) == 2
    run.tick(0.1)

    assert [m.message_id for m in run.state.mailbox.queue] == ["long"]
    (fact,) = run.facts("message.undelivered")
    assert fact.data == {"message_id": "short", "reason": "expired"}
    run.wait(10)
    assert run.take("work", 2) == ["taken"]
    assert [left.reason for left in run.state.mailbox.undelivered] == ["expired", "expired"]
    assert run.state.next_deadline() is None
