"""Which runs of a conversation are active, and who may start another."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from core_drive import Drive, chain, gate
from hypothesis import given
from hypothesis import strategies as st

from abeyance.core import events, lifecycle
from abeyance.core.conversation import MAX_CLAIMS, Claim, Conversation
from abeyance.errors import Code, Refusal

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
TALK = Conversation(conversation_id="talk")


def claim(run_id: str, token: str = "", **fields: object) -> Claim:
    base = Claim(run_id=run_id, session_type="agent", token=token or f"token of {run_id}")
    return replace(base, **fields)  # type: ignore[arg-type]


def runs(talk: Conversation) -> list[str]:
    return [held.run_id for held in talk.claims]


def test_a_claim_is_held_with_its_time_until_it_is_released() -> None:
    held = TALK.claimed(claim("one"), NOW)

    assert [c.claimed_at for c in held.claims] == [NOW]
    assert held.released(["token of one"]) == TALK
    assert held.released(["another"]) is held


def test_a_second_agent_is_refused_and_nothing_has_changed() -> None:
    held = TALK.claimed(claim("one"), NOW)
    with pytest.raises(Refusal) as refused:
        held.claimed(claim("two"), NOW)

    assert refused.value.code is Code.CONVERSATION_BUSY
    assert refused.value.details == {"conversation_id": "talk", "run_id": "one", "runs": ["one"]}
    assert "has an active run 'one'" in refused.value.message
    assert runs(held) == ["one"]


def test_others_than_agents_and_those_who_ask_for_it_start_beside() -> None:
    held = TALK.claimed(claim("one"), NOW)
    held = held.claimed(claim("helper", session_type="helper"), NOW)
    held = held.claimed(claim("two", allow_concurrent=True), NOW)
    with pytest.raises(Refusal) as refused:
        held.check(claim("three"))

    assert runs(held) == ["one", "helper", "two"]
    assert refused.value.details["runs"] == ["one", "two"]


def test_a_refused_agent_is_told_of_twenty_active_ones_each_once() -> None:
    names = [f"r{number}" for number in range(21)]
    many = tuple(claim(name, token) for name in names for token in (f"{name}a", f"{name}b"))
    with pytest.raises(Refusal) as refused:
        replace(TALK, claims=many).check(claim("one more"))

    assert refused.value.details["runs"] == names[:20]


def test_an_agent_may_start_beside_others_than_agents() -> None:
    held = TALK.claimed(claim("helper", session_type="helper"), NOW)
    assert runs(held.claimed(claim("one"), NOW)) == ["helper", "one"]


def test_the_same_claim_again_changes_nothing() -> None:
    held = TALK.claimed(claim("one"), NOW)
    assert held.claimed(claim("one"), NOW + timedelta(hours=1)) is held


def test_an_id_that_is_used_again_does_not_stand_in_its_own_way_and_keeps_its_place() -> None:
    held = TALK.claimed(claim("one", "first"), NOW)
    held = held.claimed(claim("one", "second"), NOW)
    # What the first one says late does not take the place of the second.
    held = held.released(["first"])

    assert runs(held) == ["one"]
    with pytest.raises(Refusal):
        held.check(claim("two"))


def test_a_conversation_is_bounded() -> None:
    full = replace(
        TALK,
        claims=tuple(claim(f"r{n}", session_type="helper") for n in range(MAX_CLAIMS)),
    )
    with pytest.raises(Refusal) as refused:
        full.claimed(claim("one more"), NOW)

    assert refused.value.code is Code.TOO_MANY_RUNS
    assert refused.value.details == {"conversation_id": "talk", "limit": 1_000, "actual": 1_000}
    assert "has 1000 active runs" in refused.value.message
    assert full.claimed(full.claims[0], NOW) is full


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans()), max_size=40))
def test_without_asking_for_it_no_two_agents_are_ever_active(
    steps: list[tuple[str, bool, bool]],
) -> None:
    talk = TALK
    for number, (run_id, is_agent, releases) in enumerate(steps):
        if releases:
            talk = talk.released([c.token for c in talk.claims if c.run_id == run_id])
            assert run_id not in runs(talk)
            continue
        wanted = claim(run_id, str(number), session_type="agent" if is_agent else "helper")
        before = talk
        try:
            talk = talk.claimed(wanted, NOW)
        except Refusal as refusal:
            assert refusal.details["run_id"] in runs(before)
        agents = {c.run_id for c in talk.claims if c.session_type == "agent"}
        assert len(agents) <= 1


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
