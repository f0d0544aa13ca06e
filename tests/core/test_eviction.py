"""Which runs an eviction halts, and what it leaves."""

from __future__ import annotations

from datetime import timedelta

from core_drive import Drive, chain, gate

from abeyance.core import events, lifecycle


def test_an_evicted_run_is_halted_with_its_leftovers_listed() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    run.send("m1")
    run.feed(events.Evicted, actor="janitor")

    assert (run.status, run.ending.outcome, run.ending.reason) == ("halted", "halted", "evicted")
    assert run.ending.actor == "janitor"
    assert not run.state.ledger.open
    (left,) = run.state.mailbox.undelivered
    assert (left.message_id, left.reason) == ("m1", "halted")


def test_a_run_that_was_active_later_or_waits_until_a_deadline_stays() -> None:
    for run in (Drive(chain(gate("ask"))), Drive(chain(gate("ask", timeout=3_600)))):
        run.wait(60)
        before = run.seen()
        has_deadline = before.next_deadline() is not None
        earlier = events.Evicted(
            now=run.now, actor="j", inactive_since=before.last_activity_at - timedelta(seconds=1)
        )
        since = events.Evicted(now=run.now, actor="j", inactive_since=before.last_activity_at)
        assert not lifecycle.may_evict(before, earlier)
        assert lifecycle.may_evict(before, since) is not has_deadline
        run.feed(events.Evicted, actor="j", inactive_since=before.last_activity_at)
        assert run.status == ("awaiting-input" if has_deadline else "halted")


def test_a_run_that_ends_already_is_not_evicted_and_its_finally_nodes_run() -> None:
    run = Drive(chain("a"))
    run.cancel()
    run.feed(events.Evicted, actor="j")
    run.stopped("a")

    assert (run.status, run.ending.reason, run.ending.secondary_errors) == ("cancelled", None, ())
