"""What tells a run that was rewound from the time that was discarded."""

from __future__ import annotations

import pytest
from core_askers import ADA, asking, refusal_of
from core_drive import Drive, at, chain, gate

from abeyance.core import events, machine, policy, run_retry
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.errors import Code, Refusal


def test_an_answer_to_what_was_shown_before_a_rewind_is_stale() -> None:
    run = asking()
    before = run.open("ask")

    run_retry.begin_era(run.state, "1", at(0))

    after = run.open("ask")
    assert (after.id, after.prompt) == (before.id, before.prompt)
    assert after.digest != before.digest
    refusal = refusal_of(run, ADA, digests={before.id: before.digest})
    assert refusal.code is Code.STALE
    run.answer("ask", "yes", principal=ADA)


def test_what_is_shown_anew_is_told_only_if_it_has_changed() -> None:
    run = asking()
    run_retry.begin_era(run.state, "1", at(0))
    digest = run.open("ask").digest

    machine.advance(run.state, events.Ticked(now=at(1)))

    assert run.open("ask").digest == digest
    assert run.facts("interrupt.changed") == []


def test_a_question_beside_has_the_time_left_that_it_had_at_that_moment() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    machine.advance(run.state, events.Paused(now=at(20), actor="ada"))

    run_retry.begin_era(run.state, "1", at(1_000))
    machine.advance(run.state, events.Ticked(now=at(1_000)))

    assert run.open("ask").deadline == at(1_040)


def test_what_is_asked_after_a_rewind_has_an_id_of_its_own() -> None:
    ids = set()
    for salt in ("", "1", "2"):
        run = Drive(chain(gate("ask"), gate("then")))
        run_retry.take_salt(run.state, salt)
        run.answer("ask", "yes")
        ids.add(run.open("then").id)
    assert len(ids) == 3


def test_who_may_rewind_a_run_is_known_by_what_it_can_ask_for() -> None:
    controller = Principal(subject="carl", capabilities=("runs:control",))
    with pytest.raises(Refusal) as refused:
        policy.demand_by(controller, ["pay"], [], "rewind the run")
    assert refused.value.details["capabilities"] == ["pay"]
    with pytest.raises(Refusal):
        # Who comes by Temporal itself is trusted, but not with an open question.
        policy.demand_by(TEMPORAL, ["pay"], ["pay"], "rewind the run")

    policy.demand_by(TEMPORAL, ["pay"], [], "rewind the run")
    approver = Principal(subject="olga", capabilities=("runs:control", "pay"))
    policy.demand_by(approver, ["pay"], ["pay"], "rewind the run")
