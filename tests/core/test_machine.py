"""The first state of a run, events that no person causes, and runs that were rewound."""

from __future__ import annotations

import pytest
from core_askers import ADA, asking, refusal_of
from core_drive import ROOT, T0, Drive, asked, at, chain, gate, graph, nested, restored
from core_graphs import sending, sent

from abeyance.core import events, machine, policy, run_retry
from abeyance.core.effects import Publish, RunNode
from abeyance.core.json import size
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.run_retry import retried
from abeyance.core.spec import START, GoTo, Route
from abeyance.core.state import Limits, RunState, Scope, ScopeTable
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code, Refusal


def test_a_new_run_knows_when_and_by_whom_it_was_started() -> None:
    spec, values = chain("a"), {"x": 1}
    run = machine.new_run(
        run_id="r", spec=spec, limits=Limits(), values=values, now=T0, salt="s", started_by="ada"
    )
    assert run == RunState(
        run_id="r",
        spec=spec,
        limits=Limits(),
        created_at=T0,
        updated_at=T0,
        last_activity_at=T0,
        scopes=ScopeTable({"graph:g": Scope(address="graph:g", values=values, size=size(values))}),
        salt="s",
        starters=("ada",),
    )
    (order,) = machine.advance(run, events.Started(now=T0))
    assert isinstance(order, RunNode)
    assert (order.input.salt, order.input.values) == ("s", values)


def test_a_refused_signal_and_a_lost_notification_are_published_with_the_reason() -> None:
    run = Drive(chain(gate("ask")))
    refused = {"signal": "pause", "code": "invalid_body", "reason": "no actor"}
    run.feed(events.SignalRefused, **refused)
    lost = {"receiver": "mail to ada", "reason": "no route", "attempts": 3}
    run.feed(events.NotificationFailed, about="interrupt.opened", interrupt="r.1", **lost)

    assert [(fact.time, fact.data) for fact in run.facts("signal.refused")] == [(T0, refused)]
    assert [fact.data for fact in run.facts("notification.failed")] == [
        {"event": "interrupt.opened", **lost, "id": "r.1"}
    ]


def test_a_retried_run_publishes_the_retry_before_what_was_due_by_then() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    run.cancel()
    run.state = retried(
        run.state, now=run.now, principal=ROOT, versions=("v1", "v1"), patch={}, renames={}
    )
    run.wait(60)
    run.feed(events.Restored)

    facts = [effect for effect in run.last if isinstance(effect, Publish)]
    assert [fact.type for fact in facts] == ["run.retried", "interrupt.opened", "interrupt.expired"]
    assert [fact.number for fact in facts] == sorted(fact.number for fact in facts)


def test_code_that_ended_with_the_run_is_activity_of_the_retried_run() -> None:
    run = Drive(graph("one", "two", ways=[(START, "one"), (START, "two")]))
    run.fail("one")
    run.finish("two", {"log": ["two"]})
    run.wait(5)
    run.state = retried(
        run.state, now=run.now, principal=ROOT, versions=("v1", "v1"), patch={}, renames={}
    )
    assert run.state.updated_at == run.now
    run.wait(5)
    run.feed(events.Restored)

    assert restored(run.state).last_activity_at == run.now


def test_the_result_of_a_nested_graph_is_kept_while_its_routes_are_asked() -> None:
    spec = sending(
        nested("one", chain("in", name="inner"), result="x"),
        "c",
        ways=[(["one"], "c")],
        routes=[Route(source="one", name="r", targets=("END",))],
    )
    run = sent(spec, ["item"])
    run.finish("in", {"x": 7})
    run.finish("one", routed=("END",))

    assert run.orders("c")[0].results == [
        {"item": "item", "status": "arrived", "result": {"content": 7}}
    ]


def test_repeated_answers_do_not_refuse_a_new_one_beside_them() -> None:
    approval = {"properties": {"approved": {"type": "boolean"}}}
    votes = gate("one", schema=approval, terms=Terms(quorum=Quorum(count=2)))
    names = ("done", "one", "two")
    run = Drive(graph(gate("done"), votes, gate("two"), ways=[(START, each) for each in names]))
    ids = {name: run.open(name).id for name in names}
    run.answer("done", "yes")
    run.answer("one", {"approved": True})
    given = {"done": "yes", "one": {"approved": True}, "two": "yes"}
    response = run.response({ids[name]: value for name, value in given.items()})
    run.feed(events.Responded, **response)

    assert [name for name, _ in run.asking] == ["one"]


def test_a_deadline_that_leads_elsewhere_withdraws_what_else_its_visit_asks() -> None:
    run = Drive(chain("a", "late"))
    run.ask("a", asked("q", timeout=10, on_timeout=GoTo(node="late")), "other")
    run.tick(10)

    (fact,) = run.facts("interrupt.cancelled")
    assert (fact.actor, fact.data["name"]) == ("timeout", "other")
    assert fact.data["reason"] == "the deadline of 'q' left this visit"


# a run that was rewound


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


def test_a_rewound_question_is_published_as_changed_only_if_it_has_changed() -> None:
    run = asking()
    run_retry.begin_era(run.state, "1", at(0))
    digest = run.open("ask").digest

    machine.advance(run.state, events.Ticked(now=at(1)))

    assert run.open("ask").digest == digest
    assert run.facts("interrupt.changed") == []


def test_a_rewound_question_keeps_the_time_that_it_had_left() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    machine.advance(run.state, events.Paused(now=at(20), actor="ada"))

    run_retry.begin_era(run.state, "1", at(1_000))
    machine.advance(run.state, events.Ticked(now=at(1_000)))

    assert run.open("ask").deadline == at(1_040)


def test_a_question_asked_after_a_rewind_has_its_own_id() -> None:
    ids = set()
    for salt in ("", "1", "2"):
        run = Drive(chain(gate("ask"), gate("then")))
        run_retry.take_salt(run.state, salt)
        run.answer("ask", "yes")
        ids.add(run.open("then").id)
    assert len(ids) == 3


def test_a_run_that_is_rewound_to_its_start_begins_with_the_values_that_are_set_then() -> None:
    run = machine.new_run(
        run_id="r", spec=chain(gate("ask")), limits=Limits(), values={"x": 1, "y": 1}, now=at(0)
    )
    edit = events.ValuesEdited(now=at(0), principal=ADA, patch={"x": 2}, version=0)

    effects = machine.advance(run, events.Started(now=at(0), edit=edit))

    told = [(each.type, each.actor) for each in effects if isinstance(each, Publish)]
    assert told[0] == ("run.values_edited", "ada")
    assert run.root.values == {"x": 2, "y": 1}
    (question,) = run.ledger.open.values()
    assert question.name == "ask"


def test_a_rewind_requires_the_capabilities_that_the_run_can_ask_for() -> None:
    controller = Principal(subject="carl", capabilities=("runs:control",))
    with pytest.raises(Refusal) as refused:
        policy.demand_by(controller, ["pay"], [], "rewind the run")
    assert refused.value.details["capabilities"] == ["pay"]
    with pytest.raises(Refusal):
        # A caller through Temporal itself is trusted, but not with an open question.
        policy.demand_by(TEMPORAL, ["pay"], ["pay"], "rewind the run")

    policy.demand_by(TEMPORAL, ["pay"], [], "rewind the run")
    approver = Principal(subject="olga", capabilities=("runs:control", "pay"))
    policy.demand_by(approver, ["pay"], ["pay"], "rewind the run")
