"""A control with an idempotency key happens once, however often it comes and whatever came between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from core_drive import ADA, CONTROL, T0, Drive, chain, gate

from abeyance.core import events, idempotency, ledger
from abeyance.core.json import rfc3339
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import GoTo
from abeyance.core.text import truncate

RESPONDED = events.Responded(now=T0, principal=ADA, answers={"i": True}, schema_faults={})
MOVED = events.DeadlineEdited(now=T0, principal=ADA, interrupt_id="i", moves=True, deadline=T0)
MIGRATED = events.Migrated(now=T0, principal=ADA, spec=chain("work"), request="{}", patch={"x": 1})

PAUSE: dict[str, Any] = {
    "capabilities": ("runs:control",),
    "actor": "ada",
    "reason": "audit",
    "key": "k1",
}


def waiting() -> Drive:
    return Drive(chain(gate("ask"), "work"))


def test_a_pause_that_comes_again_after_the_resume_does_not_pause_again() -> None:
    run = waiting()
    run.feed(events.Paused, **PAUSE)
    run.resume()
    before = run.seen()
    run.wait(5)
    run.feed(events.Paused, **PAUSE)

    assert run.seen() == before
    assert (run.status, run.last, run.state.counters.pause_count) == ("awaiting-input", (), 1)


def test_a_resume_or_cancel_that_comes_again_does_not_count_again() -> None:
    run = waiting()
    run.pause()
    run.resume(key="k1")
    run.pause()
    run.resume(key="k1")
    assert run.status == "paused"

    run = Drive(chain("work"))
    for _ in "12":
        run.cancel(actor="ada", key="k1")
    assert (run.status, run.state.counters.cancel_count) == ("ending", 1)


def test_calls_without_a_key_or_with_other_keys_all_count() -> None:
    run = waiting()
    for key in (None, None, "k1", "k2"):
        run.pause(key=key)
        run.resume()

    assert run.state.counters.pause_count == 4
    assert len(run.facts("run.paused")) == 4


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (events.Paused, {"reason": "another"}),
        (events.Resumed, {}),
    ],
)
def test_a_key_that_comes_with_something_else_is_refused(
    kind: type[events.Event], other: dict[str, Any]
) -> None:
    run = waiting()
    run.feed(events.Paused, **PAUSE)
    about = {**PAUSE, **other}
    if kind is not events.Paused:
        del about["capabilities"]
    refusal = run.refused(kind, **about)

    assert (refusal.code, "'k1'" in refusal.message) == ("idempotency_conflict", True)
    assert run.status == "paused"


def test_the_key_of_a_refused_call_is_free_again() -> None:
    run = waiting()
    refusal = run.refused(events.Paused, **PAUSE, on_timeout=GoTo(node="nowhere"))
    run.feed(events.Paused, **PAUSE)
    assert (refusal.code, run.status) == ("unknown_node", "paused")

    run = waiting()
    id_ = run.open("ask").id
    stale = {**run.response({id_: 5}, principal=ADA, key="k1"), "digests": {id_: "sha256:0"}}
    refusal = run.refused(events.Responded, **stale)
    assert run.state.keys == {}
    run.respond({id_: 5}, principal=ADA, key="k1")
    assert (refusal.code, len(run.state.keys)) == ("stale", 1)


def test_the_last_thousand_keys_are_remembered() -> None:
    run = waiting()
    for number in range(1001):
        run.resume(key=f"k{number}")
    last = events.Resumed(now=run.now, actor="ada", key="k1000")
    second = events.Resumed(now=run.now, actor="ada", key="k1")
    first = events.Resumed(now=run.now, actor="ada", key="k0")

    assert len(run.state.keys) == 1000
    assert idempotency.earlier(run.state.keys, last)
    assert idempotency.earlier(run.state.keys, second)
    assert idempotency.earlier(run.state.keys, first) is None


def test_the_receipts_of_two_thousand_answers_are_kept() -> None:
    run = Drive(chain("work"))
    for round_ in range(9):
        run.ask("work", *(f"q{round_}.{number}" for number in range(250)))
        answers = dict.fromkeys(run.state.ledger.open)
        run.respond(answers, key=f"k{round_}")

    assert len(run.state.keys) == 8


def test_a_run_that_is_over_takes_no_key_and_is_not_disturbed() -> None:
    run = Drive(chain("work"))
    run.finish("work")
    run.cancel(actor="ada", key="k1")

    assert (run.status, run.state.keys) == ("completed", {})


def test_an_answer_under_a_key_comes_again_also_without_its_id() -> None:
    run = waiting()
    id_ = run.open("ask").id
    answer: dict[str, Any] = {
        "principal": Principal(subject="ada"),
        "answers": {id_: 5},
        "schema_faults": {},
        "key": "k1",
    }
    run.feed(events.Responded, **answer)
    before = run.seen()
    run.feed(events.Responded, **answer)
    called = idempotency.earlier(run.state.keys, events.Responded(now=run.now, **answer))
    refusal = run.refused(events.Responded, **{**answer, "answers": {id_: 6}})

    assert run.seen() == before
    assert called is not None
    # Snapshots and records keep this, so it must not change.
    assert called.receipt == [
        {"interrupt_id": id_, "answered_by": "ada", "accepted_at": rfc3339(run.now)}
    ]
    (receipt,) = idempotency.receipts_again(called)
    assert receipt == ledger.Receipt(
        interrupt_id=id_, answered_by="ada", accepted_at=run.now, replayed=True
    )
    assert idempotency.addressee(run.state.keys, "k1") == id_
    assert idempotency.addressee(run.state.keys, "k2") is None
    assert refusal.code == "idempotency_conflict"


@pytest.mark.parametrize(("by", "answer"), [("bob", 5), ("ada", float("nan"))])
def test_the_key_of_an_answer_fits_only_its_caller_and_its_answer(by: str, answer: float) -> None:
    run = waiting()
    (id_,) = run.state.ledger.open
    run.respond({id_: 5}, principal=ADA, key="k1")

    about = run.response({id_: answer}, principal=replace(ADA, subject=by), key="k1")
    assert run.refused(events.Responded, **about).code == "idempotency_conflict"


def test_a_deadline_that_is_moved_by_so_long_is_the_same_call_at_another_time() -> None:
    run = waiting()
    about: dict[str, Any] = {
        "principal": TEMPORAL,
        "interrupt_id": run.open("ask").id,
        "moves": True,
        "timeout": 60.0,
        "key": "k1",
    }
    run.feed(events.DeadlineEdited, **about, deadline=run.now + timedelta(seconds=60))
    moved = run.open("ask").deadline
    run.wait(5)
    run.feed(events.DeadlineEdited, **about, deadline=run.now + timedelta(seconds=60))

    assert run.open("ask").deadline == moved


def test_the_receipt_of_a_cleared_queue_is_how_many_there_were() -> None:
    run = waiting()
    run.feed(events.MessagesCleared, actor="ada", key="k1")
    called = idempotency.earlier(
        run.state.keys, events.MessagesCleared(now=run.now, actor="ada", key="k1")
    )

    assert called is not None
    assert called.receipt == 0


@pytest.mark.parametrize(
    ("call", "digest"),
    [
        (events.Paused(now=T0, actor="ada", capabilities=CONTROL), "a1968785663192cf"),
        (RESPONDED, "4e645605c2073dd6"),
        (replace(RESPONDED, on_behalf_of="bob"), "25f2a170528d0905"),
        (MOVED, "6038631b826f00df"),
        (replace(MOVED, timeout=60.0), "13781303db249817"),
        (events.Claimed(now=T0, principal=ADA, interrupt_id="i", seconds=60.0), "fb538389d140ca40"),
        (MIGRATED, "5be1615eb5379107"),
    ],
)
def test_a_call_from_before_a_deployment_is_known_again_after_it(
    call: events.Keyed, digest: str
) -> None:
    # Snapshots and records keep this, so it must not change.
    assert idempotency.digest(call) == digest
    again = replace(call, now=T0 + timedelta(seconds=5), key="k")
    assert idempotency.digest(again) == digest


def test_a_long_key_is_cut_in_its_refusal() -> None:
    run = waiting()
    run.resume(key="k" * 300)
    refusal = run.refused(events.Resumed, actor="bob", key="k" * 300)

    assert repr(truncate("k" * 300, 200)) in refusal.message
