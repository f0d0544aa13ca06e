"""The events that the records keep for audits, and the detection of changes to them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from recorded import Recorded, at, batch, fact, question, run_view
from sqlalchemy import Executable, delete, update

from abeyance.core.policy import Principal
from abeyance.errors import Unavailable
from abeyance.records import audit, audit_chain, removing, runs
from abeyance.records.audit_chain import verify
from abeyance.records.tables import events

ANSWER = {"capability": "pay", "answer": {"approved": True}}


def contents(recorded: Recorded, run_id: str = "a") -> list[dict[str, Any]]:
    return [dict(each) for each in recorded.read(audit.contents, run_id)]


def answered(recorded: Recorded) -> None:
    recorded.write(
        batch(
            run_view("a"),
            question("a", "pay", status="answered", requested_capability="pay", answer="yes"),
            facts=[
                fact(1, "run.started", actor="bea"),
                fact(2, "interrupt.answered", actor="ada", data={"id": "a.pay"}, audit=ANSWER),
            ],
        ),
        batch(run_view("a", status="completed"), number=2, facts=[fact(3, "run.completed")]),
    )


def test_an_audit_has_every_event_with_what_only_it_says_and_the_run_at_last(
    recorded: Recorded,
) -> None:
    answered(recorded)
    first, second, third, last = contents(recorded)

    assert first == {
        "id": "000000000001",
        "time": "2026-03-02T12:01:00Z",
        "type": "run.started",
        "run_id": "a",
        "actor": "bea",
        "data": {},
    }
    assert (second["answer"], second["capability"]) == ({"approved": True}, "pay")
    assert third["type"] == "run.completed"
    assert (last["type"], last["run"]["status"], last["execution"]) == (
        "end",
        "completed",
        "a-first",
    )
    assert [each["id"] for each in last["interrupts"]] == ["a.pay"]
    assert contents(recorded, "none") == []


def test_an_answer_is_only_for_who_could_have_given_it_or_administers(recorded: Recorded) -> None:
    answered(recorded)
    kept = contents(recorded)

    def read_by(*capabilities: str) -> bytes:
        reader = Principal(subject="rita", capabilities=("runs:read", *capabilities))
        return audit_chain.written(kept, reader=reader)

    for redacted in (read_by(), read_by("other")):
        assert verify(redacted).faults == ()
        assert b"approved" not in redacted
        assert b'"redacted":true' in redacted
    for whole in (read_by("pay"), read_by("admin")):
        assert whole == audit_chain.written(kept)
        assert b"approved" in whole


def test_the_chain_goes_on_from_the_last_event_that_stays(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1, "run.started")]))
    # The run does not know of this batch.
    recorded.write(batch(run_view("a"), number=2, facts=[fact(2, "lost"), fact(3, "lost")]))
    after = batch(run_view("a"), number=3, facts=[fact(2, "told")])
    recorded.write(after.model_copy(update={"after": 1}))

    assert [each["type"] for each in contents(recorded)] == ["run.started", "told", "open"]


@pytest.mark.parametrize(
    "change",
    [
        lambda: update(events).where(events.c.number == 1).values(actor="eve"),
        lambda: update(events).where(events.c.number == 2).values(audit=None),
        lambda: delete(events).where(events.c.number == 2),
        lambda: delete(events).where(events.c.number == 3),
    ],
    ids=["an actor", "an answer", "one is taken out", "the last is taken out"],
)
def test_an_event_that_was_changed_in_the_database_is_noticed(
    recorded: Recorded, change: Callable[[], Executable]
) -> None:
    answered(recorded)
    with recorded.database.writing() as connection:
        connection.execute(change())

    with pytest.raises(Unavailable, match="the records of the run 'a' are damaged"):
        contents(recorded)


def test_a_batch_that_comes_after_the_erasure_of_its_run_brings_nothing_back(
    recorded: Recorded,
) -> None:
    answered(recorded)
    erasure = removing.Erasure(run_id="a", at=at(5), is_done=False)
    recorded.change(removing.bury, erasure, str)
    late = batch(run_view("a", status="completed"), number=3, facts=[fact(4, "run.completed")])
    recorded.write(late)

    assert recorded.read(removing.standing, "a") == "erased"
    assert recorded.read(runs.run, "a") is None
    assert contents(recorded) == []
    # Somebody has used the id again while the database was away.
    recorded.write(batch(run_view("a", minute=6), origin="second"))
    assert recorded.read(removing.standing, "a") == "kept"


def test_only_a_run_from_before_the_erasure_of_its_id_is_erased_again(recorded: Recorded) -> None:
    erasure = removing.Erasure(run_id="a", at=at(5), is_done=False)
    recorded.change(removing.bury, erasure, str)
    recorded.change(removing.finish, erasure)

    recorded.change(removing.resume, "a", at(6))
    assert recorded.read(removing.unfinished) == []
    recorded.change(removing.resume, "a", at(4))
    assert recorded.read(removing.unfinished) == [erasure]


def test_a_run_is_erased_by_one_caller_at_a_time_and_written_by_nobody_meanwhile(
    recorded: Recorded,
) -> None:
    erasure = removing.Erasure(run_id="a", at=at(5), is_done=False)
    with ThreadPoolExecutor(2) as beside:
        with recorded.database.writing() as connection:
            removing.bury(recorded.transaction(connection), erasure, str)
            again: Future[Any] = beside.submit(recorded.change, removing.bury, erasure, str)
            late: Future[Any] = beside.submit(recorded.write, batch(run_view("a"), number=1))
            assert len(wait([again, late], timeout=0.3).not_done) == 2
        again.result(30)
        late.result(30)

    assert recorded.read(removing.standing, "a") == "erased"
