"""The mailbox: an accepted message is delivered or reported, and a full box refuses at once."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from typing import Any

import pytest
from core_drive import Drive, chain, graph, reader

from abeyance.core import events, machine
from abeyance.core.events import Message
from abeyance.core.json import Json, sha256, size
from abeyance.core.mailbox import Mailbox
from abeyance.core.outcome import Asked, Finished, Interrupted
from abeyance.core.spec import START, AskHuman, FunctionNode, InterruptSpec
from abeyance.core.state import Limits
from abeyance.errors import Code


def message(
    id_: str = "m", text: str = "hello", *, ttl: float | None = None, **metadata: Json
) -> Message:
    return Message(message_id=id_, text=text, sender="ada", ttl=ttl, metadata=metadata)


def working(max_queue_size: int = 100) -> Drive:
    """Start a run whose only node is at work."""
    return Drive(chain("work"), limits=Limits(max_queue_size=max_queue_size))


def take(run: Drive, most: int, visit: str = "graph:g;node:work") -> list[Json]:
    """Return the ids of the messages that a visit takes."""
    before = len(run.facts("message.delivered"))
    known = run.state.visits.get(visit)
    run.feed(
        events.MessagesTaken,
        visit=visit,
        upto=most + (0 if known is None else len(known.inbox.taken)),
    )
    return [fact.data["message_id"] for fact in run.facts("message.delivered")[before:]]


def test_messages_are_delivered_once_in_order_and_published() -> None:
    run = working()
    for number in range(3):
        run.send(f"m{number}")

    assert take(run, 2) == ["m0", "m1"]
    assert take(run, 2) == ["m2"]
    assert take(run, 2) == []
    counters = run.state.counters
    assert (counters.messages_queued, counters.messages_delivered) == (3, 3)
    assert counters.max_queue_depth == 3
    delivered, *_ = run.facts("message.delivered")
    assert (delivered.address, delivered.data) == ("graph:g;node:work", {"message_id": "m0"})
    first, second, _ = run.facts("message.queued")
    assert (first.actor, first.data) == ("ada", {"message_id": "m0", "queue_depth": 1})
    assert second.data == {"message_id": "m1", "queue_depth": 2}


def test_a_repeat_is_recognised_also_after_its_delivery_and_after_the_end() -> None:
    run = working()
    run.send("m")
    run.send("m")
    assert len(run.state.mailbox.queue) == 1

    take(run, 1)
    run.send("m")
    assert not run.state.mailbox.queue

    run.finish("work")
    run.send("m")
    assert run.status == "completed"
    assert run.last == ()


def test_a_full_queue_refuses_at_once_and_says_how_full() -> None:
    run = working(max_queue_size=2)
    run.send("m0")
    run.send("m1")

    refusal = run.refused(events.MessageSent, message=message("m2"))
    assert refusal.code is Code.QUEUE_FULL
    assert refusal.details == {"limit": 2, "actual": 2}
    assert "holds 2 unread messages, and its bound is 2" in refusal.message

    run.send("m1")
    assert take(run, 1) == ["m0"]
    run.send("m2")
    assert take(run, 9) == ["m1", "m2"]


@pytest.mark.parametrize(
    ("id_", "text", "code"), [("new", "x" * 51, "queue_full"), ("m", "x" * 51, "message_conflict")]
)
def test_a_signalled_message_that_is_refused_is_on_record(id_: str, text: str, code: str) -> None:
    run = working(max_queue_size=1)
    run.send("m")
    run.send(id_, text, signalled=True)

    (note,) = run.state.mailbox.rejected
    assert (note.message_id, note.code, note.preview) == (id_, code, "x" * 50 + "...")
    (fact,) = run.facts("message.rejected")
    assert (fact.actor, fact.data["message_id"], fact.data["code"]) == ("ada", id_, code)
    assert fact.data["reason"]
    assert len(run.state.mailbox.queue) == 1


def test_a_signal_that_cannot_be_written_down_is_noted_and_a_repeated_one_is_not() -> None:
    run = working(max_queue_size=1)
    run.send("m")
    run.send("m", signalled=True)
    assert (run.state.mailbox.rejected, run.last) == ((), ())
    run.send("n", metadata={"score": float("inf")}, signalled=True)
    assert run.rejected() == [("n", "invalid_message")]

    refusal = run.refused(events.MessageSent, message=message("t", text="\ud800"))
    assert (refusal.code, refusal.details) == (Code.INVALID_MESSAGE, {"message_id": "t"})
    assert "is not JSON" in refusal.message


def test_only_the_last_hundred_rejections_are_kept() -> None:
    run = working(max_queue_size=1)
    run.send("m")
    for number in range(101):
        run.send(f"n{number}", signalled=True)

    kept = [note.message_id for note in run.state.mailbox.rejected]
    assert kept == [f"n{number}" for number in range(1, 101)]


def test_a_run_that_is_ending_reads_no_more_messages() -> None:
    run = working()
    run.cancel(actor="ada")

    refusal = run.refused(events.MessageSent, message=message())
    assert refusal.code is Code.NOT_RUNNING
    assert refusal.details == {"run_status": "ending"}
    assert refusal.message == "The run is ending and reads no more messages."


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
def test_unread_messages_are_reported_with_the_outcome(outcome: str) -> None:
    run = working()
    run.send("m0")
    run.send("m1", "x" * 60)
    match outcome:
        case "completed":
            run.finish("work")
        case "failed":
            run.fail("work")
        case _:
            run.cancel(actor="ada", mode="now")

    assert run.status == outcome
    assert run.state.mailbox.queue == ()
    assert [
        (left.message_id, left.reason, left.preview) for left in run.state.mailbox.undelivered
    ] == [
        ("m0", outcome, "hello"),
        ("m1", outcome, "x" * 50 + "..."),
    ]
    assert [fact.data for fact in run.facts("message.undelivered")] == [
        {"message_id": "m0", "reason": outcome},
        {"message_id": "m1", "reason": outcome},
    ]


def test_unread_messages_take_no_more_bytes_than_a_snapshot_has_room_for() -> None:
    run = Drive(
        chain("work"), limits=Limits(max_message_length=2_000_000, max_metadata_size=2_000_000)
    )
    run.send("m0", "x" * 600_000)
    queued = size({"text": "x" * 600_000, "metadata": {}})
    rest = 1_000_000 - queued - size({"text": "", "metadata": {}})
    refusal = run.refused(events.MessageSent, message=message("m1", "x" * (rest + 1)))
    assert refusal.code is Code.QUEUE_FULL
    assert refusal.details == {"limit": 1_000_000, "actual": queued}
    assert f"take {queued} bytes" in refusal.message
    run.send("m1", "x" * rest)
    assert run.state.mailbox.queued_bytes == 1_000_000
    assert take(run, 2) == ["m0", "m1"]

    assert (run.state.mailbox.queue, run.state.mailbox.queued_bytes) == ((), 0)


@pytest.mark.parametrize("ttl", [None, 60.0])
def test_the_cost_of_a_refused_message_does_not_grow_with_the_queue(
    ttl: float | None,
) -> None:
    def calls_of_a_refusal(unread: int) -> int:
        run = working(max_queue_size=unread)
        for number in range(unread):
            run.send(f"m{number}", ttl=ttl)
        flood = message("late", ttl=ttl)
        calls = itertools.count()
        sys.setprofile(lambda *_: next(calls))
        try:
            machine.advance(
                run.state, events.MessageSent(now=run.now, message=flood, signalled=True)
            )
        finally:
            sys.setprofile(None)
        return next(calls)

    assert calls_of_a_refusal(unread=3) == calls_of_a_refusal(unread=300)


def test_a_message_that_was_rejected_and_is_admitted_later_is_not_rejected_any_more() -> None:
    run = working(max_queue_size=1)
    run.send("m0")
    run.send("m1", signalled=True)
    run.send("m2", signalled=True)
    take(run, 1)
    run.send("m1", signalled=True)

    assert run.rejected() == [("m2", "queue_full")]
    assert take(run, 2) == ["m1"]


def test_a_message_is_recognised_by_a_hash_that_stays_the_same() -> None:
    about: dict[str, Any] = {
        "metadata": {"a": 1},
        "action": "note",
        "params": {"b": 2},
        "target": "work",
        "ttl": 60.0,
        "priority": "high",
    }
    part = {"type": "text", "text": "x"}
    plain = message(a=1)
    full = Message(message_id="f", text="hello", sender="ada", parts=(part,), **about)
    box = Mailbox().with_message(plain).with_message(full)

    def hash_of(body: Json) -> str:
        return sha256(body).removeprefix("sha256:")[:16]

    assert box.seen == {
        "m": hash_of({"text": "hello", "metadata": {"a": 1}}),
        "f": hash_of({"text": "hello", "parts": [part], **about}),
    }


def test_the_last_thousand_ids_are_remembered() -> None:
    box = Mailbox()
    for number in range(1001):
        box = box.with_message(message(f"m{number}"))

    assert not box.knows(message("m0"))
    assert box.knows(message("m1"))
    assert box.knows(message("m1000"))
    assert len(box.seen) == 1000


def test_the_next_visit_reads_messages_that_were_taken_but_not_delivered() -> None:
    run = Drive(chain("work", "next"))
    for number in range(3):
        run.send(f"m{number}")
    take(run, 2)
    run.end(Finished, visit="graph:g;node:work", messages_read=1)

    (fact,) = run.facts("message.returned")
    assert (fact.address, fact.data) == ("graph:g;node:work", {"message_id": "m1"})
    assert run.state.counters.messages_delivered == 1
    assert take(run, 9, visit="graph:g;node:next") == ["m1", "m2"]


def test_a_refused_visit_takes_its_unread_messages_again() -> None:
    work = FunctionNode(id="work", on_error=AskHuman())
    run = Drive(graph(work, "other", ways=[(START, "work"), (START, "other")]))
    for number in range(3):
        run.send(f"m{number}")
    take(run, 3)
    run.end(Finished, visit="graph:g;node:work", patch={"nope": 1}, messages_read=1)
    assert take(run, 1, visit="graph:g;node:other") == ["m1"]
    run.answer("error", {"action": "retry"})

    assert run.take("work", 1) == ["m0"]
    assert run.take("work", 9) == ["m0", "m2"]
    run.end(Finished, visit="graph:g;node:work", messages_read=0)
    assert [fact.data["message_id"] for fact in run.facts("message.returned")] == ["m1", "m2", "m2"]
    assert run.state.counters.messages_delivered == 2


def test_a_refused_visit_gets_its_first_messages_again() -> None:
    work = replace(reader(), on_error=AskHuman())
    run = Drive(chain("first", work, "next"))
    run.send("m0")
    run.finish("first")
    run.end(Finished, visit="graph:g;node:work", patch={"nope": 1})
    run.answer("error", {"action": "retry"})
    first, again = run.orders("work")
    assert (len(first.inbox), again.inbox) == (1, first.inbox)
    run.finish("work")

    assert take(run, 9, visit="graph:g;node:next") == []


def test_messages_read_before_a_question_stay_read() -> None:
    run = working()
    run.send("m0")
    run.send("m1")
    take(run, 2)
    run.end(
        Interrupted,
        visit="graph:g;node:work",
        interrupts=(Asked(question=InterruptSpec(name="q", prompt="?")),),
        messages_read=1,
    )
    run.answer("q", "yes")
    run.end(Finished, visit="graph:g;node:work", messages_read=0)

    assert [fact.data["message_id"] for fact in run.facts("message.returned")] == ["m1"]
    assert run.state.counters.messages_delivered == 1


def test_a_message_that_is_put_back_stands_before_all_of_its_priority() -> None:
    low, normal, high = (
        Message(message_id=priority, text="x", sender="ada", priority=priority)
        for priority in ("low", "normal", "high")
    )
    back = replace(normal, message_id="back")

    box = Mailbox()
    for each in (low, normal, high):
        box = box.with_message(each)
    box = box.with_returned((back,))
    assert [each.message_id for each in box.queue] == ["high", "back", "normal", "low"]
