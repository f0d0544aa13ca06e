"""Retries of approved code: who may retry it unchanged, and when a retry takes all capabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_agents import agent_node, call, turn
from core_drive import chain, edge, gate, graph, nested
from core_gated import APPROVER, BOSS, FIELDS, OPERATOR, SHOWN, Gated, approving, forked, refund
from core_graphs import rule

from abeyance.core import events, machine
from abeyance.core.bounds import RetryPolicy
from abeyance.core.outcome import Failed, Finished, Stopped, VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import START, AskHuman, Fail, FunctionNode, HaltRun, Node
from abeyance.core.state import Limits
from abeyance.errors import Refusal

ON_CALL = Principal(subject="on call", capabilities=("runs:control", "runs:respond"))
"""Somebody who may control and answer runs, and approve nothing."""
ONCE = FunctionNode(id="pay", retry=RetryPolicy(retries=0))
RETRY = {"action": "retry"}


def paying(retries: int | None = 3, **about: Any) -> FunctionNode:
    return FunctionNode(id="pay", retry=RetryPolicy(retries=retries, **about), on_error=AskHuman())


def failed(*nodes: str | Node) -> Gated:
    """Return a run whose gate was answered, and whose approved code has failed."""
    run = Gated(refund(approving(), *nodes, "notify"))
    run.says(APPROVER, "ask")
    run.fail("pay")
    return run


def refused(run: Gated, who: Principal) -> Refusal:
    return run.refused_answer("error", RETRY, principal=who)


def not_again(run: Gated, who: Principal = ON_CALL) -> list[str]:
    """Return the capabilities that somebody lacks to retry the run."""
    with pytest.raises(Refusal) as refusal:
        run.start_again(who)
    missing: list[str] = refusal.value.details["capabilities"]
    return missing


# a question about a failure


@pytest.mark.parametrize(
    "pay", [paying(), paying(None, retry_for=60)], ids=["retries", "retry_for"]
)
def test_a_responder_retries_unchanged_approved_code_without_asking(
    pay: FunctionNode,
) -> None:
    run = failed(pay)
    assert refused(run, OPERATOR).details["capabilities"] == ["runs:respond"]
    run.says(ON_CALL, "error", RETRY)

    assert run.ran_with("pay") == [(250, "A-7")] * 2
    assert (run.reopened, run.asking) == ([], [])


def test_retrying_code_without_retries_requires_its_approvers() -> None:
    run = failed(paying(0))
    refusal = refused(run, ON_CALL)
    assert refusal.details["capabilities"] == ["approve"]
    assert "(retries=0)" in refusal.message
    run.says(BOSS, "error", RETRY)

    assert run.ran_with("pay") == [(250, "A-7")] * 2


def test_retrying_changed_approved_code_requires_its_approvers() -> None:
    run = Gated(forked((approving(), paying()), ("other",)))
    run.says(APPROVER, "ask")
    run.fail("pay")
    run.finish("other", {"amount": 999})
    refusal = refused(run, ON_CALL)

    assert refusal.details["capabilities"] == ["approve"]
    assert "changed since" in refusal.message


def test_code_that_never_began_is_tried_again_whatever_its_retries() -> None:
    large = {**SHOWN, "note": "x" * 300}
    run = Gated(refund(approving(), paying(0)), large, limits=Limits(visit_bytes=200))
    run.says(APPROVER, "ask")
    assert run.open("error").reason["code"] == "visit_too_large"
    assert refused(run, OPERATOR).details["capabilities"] == ["runs:respond"]
    run.says(ON_CALL, "error", RETRY)

    assert run.open("error").reason["code"] == "visit_too_large"
    assert run.orders("pay") == []


def test_a_way_out_that_failed_is_looked_for_again_whatever_the_retries() -> None:
    ways: list[Any] = [(START, "ask"), ("ask", "pay"), edge("pay", "notify", when={"note": "paid"})]
    run = Gated(graph(approving(), paying(0), "notify", ways=ways, fields=FIELDS))
    run.says(APPROVER, "ask")
    run.finish("pay")
    run.says(ON_CALL, "error", RETRY)

    assert run.open("error").reason["code"] == "no_way_out"
    assert len(run.orders("pay")) == 1


@pytest.mark.parametrize(
    ("retries", "missing"), [(3, ["runs:respond"]), (0, ["approve", "runs:control"])]
)
def test_a_nested_graph_is_tried_again_as_the_code_in_it_may_be(
    retries: int, missing: list[str]
) -> None:
    pay = replace(paying(retries), on_error=Fail())
    inner = chain(gate("sure"), nested("deep", chain(pay, name="deep")), name="inner")
    run = Gated(refund(approving(), nested("sub", inner, on_error=AskHuman())))
    run.says(APPROVER, "ask")
    run.answer("sure")
    run.fail("pay")

    who = OPERATOR if retries else Principal(subject="answers", capabilities=("runs:respond",))
    assert refused(run, who).details["capabilities"] == missing


# a retry of the run


def test_a_run_is_retried_by_who_is_on_call_with_what_was_approved() -> None:
    run = Gated(refund(approving(), FunctionNode(id="pay")))
    run.says(APPROVER, "ask")
    run.fail("pay")
    assert not_again(run, OPERATOR) == ["runs:respond"]
    assert not_again(run, Principal(subject="eve")) == ["runs:control"]
    run.start_again(ON_CALL)

    assert run.ran_with("pay") == [(250, "A-7")] * 2
    assert run.asking == []


@pytest.mark.parametrize(
    ("outcome", "missing"),
    [
        (Stopped(), ["approve"]),
        (Failed(code="node_failed", message="no"), ["approve"]),
        (Stopped(begun=False), []),
        (Finished(), []),
    ],
)
def test_a_run_is_retried_without_an_approval_if_its_code_is_known_not_to_have_begun(
    outcome: VisitOutcome, missing: list[str]
) -> None:
    run = Gated(refund(approving(), ONCE))
    run.says(APPROVER, "ask")
    run.cancel()
    run.feed(events.VisitEnded, visit="graph:g;node:pay", outcome=outcome)
    if missing:
        assert not_again(run) == missing
    else:
        run.start_again(ON_CALL)
        assert len(run.orders("pay")) == (1 if outcome == Finished() else 2)


def test_code_that_began_and_was_stopped_before_it_began_again_may_have_happened() -> None:
    run = Gated(refund(approving(), ONCE))
    run.says(APPROVER, "ask")
    run.pause(mode="now")
    run.stopped("pay")
    run.resume()
    run.cancel()
    run.feed(events.VisitEnded, visit="graph:g;node:pay", outcome=Stopped(begun=False))

    assert not_again(run) == ["approve"]


def test_a_run_that_a_rule_has_halted_looks_for_its_way_again() -> None:
    stop = rule("stop", "pay", HaltRun(reason="enough"), amount=250)
    run = Gated(refund(approving(), ONCE, "notify", rules=[stop]))
    run.says(APPROVER, "ask")
    run.finish("pay")
    assert not_again(run, OPERATOR) == ["runs:respond"]
    run.start_again(ON_CALL)

    assert (run.status, len(run.orders("pay"))) == ("halted", 1)


@pytest.mark.parametrize("once", [True, False])
def test_people_are_asked_what_became_of_a_call_that_may_run_only_once(once: bool) -> None:
    tool = FunctionNode(id="charge", retry=RetryPolicy(retries=0))
    run = Gated(refund(approving(), agent_node("review", tool), fields={**FIELDS, "x": "last"}))
    run.says(APPROVER, "ask")
    turn(run, call("c1", "charge", once=once))
    run.cancel(mode="now")
    if once:
        run.start_again(ON_CALL)
        assert run.orders("charge")[-1].journal == {"/begun": 1}
    else:
        assert not_again(run) == ["approve"]


# trying a migration


def test_a_dry_run_of_a_migration_requires_only_read_rights() -> None:
    run = Gated(refund(approving(), "pay"))
    reads = Principal(subject="reads", capabilities=("runs:read",))
    wanted: dict[str, Any] = {"spec": run.state.spec, "dry_run": True}
    machine.check(run.state, events.Migrated(now=run.now, principal=reads, **wanted))
    refusal = run.refused(events.Migrated, principal=OPERATOR, **wanted)

    assert refusal.details["capabilities"] == ["runs:read"]
    assert run.refused(events.Migrated, principal=reads, spec=run.state.spec).details[
        "capabilities"
    ] == ["approve", "runs:control"]
