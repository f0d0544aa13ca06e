"""Code that asks people: its open questions, when it goes on, and when a question is superseded."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import Drive, asked, at, chain
from core_gated import APPROVER, BOSS, Gated, forked, refund
from core_graphs import GO, ask, rule, ruled

from abeyance.core.json import Json
from abeyance.core.ledger import interrupt_id
from abeyance.core.outcome import Asked, Finished
from abeyance.core.spec import AskHuman, Default, FunctionNode, GoTo
from abeyance.core.terms import Quorum, Terms

A = "graph:g;node:a"


def asking(*questions: str | Asked, asks: tuple[str, ...] = (), **fields: Any) -> Drive:
    """Return a run whose node `a` has asked these questions; `b` comes after it."""
    run = Drive(chain(FunctionNode(id="a", asks=asks), "b"))
    run.ask("a", *questions, **fields)
    return run


def composite() -> Drive:
    """Return a run in which two processes of `a` have asked."""
    return asking(asked("ok", "p1"), asked("ok", "p2"), composite=True, reason="two checks")


# open questions


def test_all_that_code_asks_at_once_is_listed_each_with_its_own_terms() -> None:
    run = asking(
        asked("plan", prompt="Which {x}?", reason={"of": "{x}"}, payload=[1], timeout=60),
        asked("sum", response_schema={"type": "number"}, requested_capability="pay", at=at(90)),
        asked("why"),
        asks=("pay",),
    )

    assert run.status == "awaiting-input"
    assert run.asking == [("plan", A), ("sum", A), ("why", A)]
    assert run.facts("run.awaiting_input")[-1].data == {"open": 3}
    plan, total, why = run.state.ledger.open.values()
    # Code fills its own text, so the core does not fill what looks like a field in it.
    assert (plan.prompt, plan.reason, plan.payload) == ("Which {x}?", {"of": "{x}"}, [1])
    assert [each.deadline for each in (plan, total, why)] == [at(60), at(90), None]
    # A question without a capability asks for the capability of its node.
    assert [each.requested_capability for each in (plan, total, why)] == ["pay"] * 3
    assert total.response_schema == {"type": "number"}
    assert {each.kind for each in (plan, total, why)} == {"question"}
    assert len({each.id for each in (plan, total, why)}) == 3
    assert plan.parents == ()


def test_the_audit_of_a_question_has_its_content_and_its_default_answer() -> None:
    run = asking(
        asked("plan", prompt="Which?", payload=[1], timeout=60, on_timeout=Default(answer=None)),
        asked("why"),
    )

    plan, why = run.facts("interrupt.opened")
    digests = [entry.digest for entry in run.state.ledger.open.values()]
    assert plan.audit is not None
    assert plan.audit["shown"] == {
        "prompt": "Which?",
        "payload": [1],
        "digest": digests[0],
        "default": None,
    }
    assert why.audit is not None
    assert (why.audit["shown"]["digest"], "default" in why.audit["shown"]) == (digests[1], False)
    assert "Which?" not in str(plan.data)


@pytest.mark.parametrize(
    ("questions", "answered", "fault"),
    [
        (("plan", "plan"), False, "'a' asks 'plan' twice"),
        ((), False, "asks no question"),
        (("plan",), True, "raises the interrupt 'plan' again after its answer"),
    ],
)
def test_a_visit_that_asks_nothing_twice_or_again_fails(
    questions: tuple[str, ...], answered: bool, fault: str
) -> None:
    run = asking(*questions, composite=True)
    if answered:
        run.answer("plan", 1)
        run.ask("a", "plan")

    code, message, address = run.error
    assert (code, address, fault in message) == ("node_failed", A, True)
    assert len(run.facts("interrupt.opened")) == int(answered)


@pytest.mark.parametrize("what", ["reason", "payload", "response_schema", "default", "saved"])
def test_a_question_or_a_state_that_is_not_json_fails_the_visit(what: str) -> None:
    run = Drive(chain("a"))
    bad = float("inf")
    if what == "saved":
        run.ask("a", "plan", user_state=bad)
    elif what == "default":
        run.ask("a", asked("plan", timeout=60, on_timeout=Default(answer=bad)))
    else:
        shown: dict[str, Any] = {what: bad}
        run.ask("a", asked("plan", **shown))

    assert run.error[0] == "node_failed"
    assert "the state of the node 'a' are not JSON" in run.error[1]


# when the code goes on


@pytest.mark.parametrize("value", [None, False])
def test_null_and_false_are_answers_and_re_enters_the_code_with_what_it_kept(value: Any) -> None:
    run = asking("plan", journal={"step": 1}, user_state={"cursor": 7})
    run.answer("plan", value)

    first, again = run.orders("a")
    assert (first.own_answers, first.interrupted, first.user_state, first.journal) == (
        {},
        False,
        None,
        None,
    )
    assert (again.address, again.activation) == (first.address, 2)
    assert (again.own_answers, again.interrupted) == ({"plan": value}, True)
    assert (again.user_state, again.journal) == ({"cursor": 7}, {"step": 1})


# deadlines


@pytest.mark.parametrize("target", ["nowhere", "tidy"])
def test_a_question_that_would_go_nowhere_fails_the_visit(target: str) -> None:
    run = Drive(chain("a", finally_=["tidy"]))
    run.ask("a", asked("plan", timeout=60, on_timeout=GoTo(node=target)))

    assert run.ending.error is not None
    assert (run.ending.error.code, run.ending.error.address) == ("unknown_node", A)
    assert f"'plan' of 'a' would go to {target!r}" in run.ending.error.message


def test_a_goto_of_a_part_stops_the_code_that_runs() -> None:
    run = asking("first", asked("ok", "p2", timeout=60, on_timeout=GoTo(node="b")), composite=True)
    run.answer("first", 1)
    run.tick(60)

    assert run.stops == [(A, "ending", True)]
    assert run.running == ["b"]
    run.end(Finished, visit=A, patch={"x": "late"})
    assert "x" not in run.values


# beside finally nodes, rules and operators


def test_a_finally_node_that_asks_is_a_secondary_error() -> None:
    run = Drive(chain("a", finally_=["tidy"]))
    run.finish("a")
    run.ask("tidy", "plan")

    assert (run.status, run.asking) == ("completed", [])
    (beside,) = run.ending.secondary_errors
    assert "'tidy' may not ask a person" in beside.message


def test_a_question_of_code_may_be_called_like_one_of_a_rule_or_an_operator() -> None:
    run = Drive(chain(FunctionNode(id="a", on_error=AskHuman()), "b"))
    run.ask("a", "error:error", "error")
    run.respond({run.open("error:error").id: "mine", run.open("error").id: "too"})
    run.fail("a")
    run.answer("error", {"action": "retry"})

    assert run.orders("a")[-1].own_answers == {"error:error": "mine", "error": "too"}


# units of several processes


def test_a_unit_of_several_processes_is_the_parent_of_what_is_asked_in_it() -> None:
    run = composite()
    one, two = run.state.ledger.open.values()

    (parent,) = one.parents
    assert two.parents == (parent,)
    assert (parent.address, parent.reason) == (A, "two checks")
    assert parent.id == interrupt_id("r", A, "")
    refusal = run.refused_response({parent.id: 1})
    assert refusal.code == "not_root_cause"
    assert refusal.details == {"interrupt_id": parent.id, "root_causes": [one.id, two.id]}
    assert one.id in refusal.message


def test_every_answer_re_enters_a_unit_of_several_processes_and_the_rest_stays_open() -> None:
    run = composite()
    two = list(run.state.ledger.open)[1]
    run.answer("ok", "yes")
    assert (run.status, run.running) == ("running", ["a"])
    assert run.orders("a")[-1].own_answers == {"p1/ok": "yes"}
    assert list(run.state.ledger.open) == [two]

    run.wait(5)
    run.ask("a", asked("ok", "p2"), composite=True)
    assert list(run.state.ledger.open) == [two]
    assert run.open("ok").created_at == at(0)
    assert run.status == "awaiting-input"
    run.answer("ok", "no")
    assert run.orders("a")[-1].own_answers == {"p1/ok": "yes", "p2/ok": "no"}
    run.finish("a")
    assert run.running == ["b"]


def test_an_answer_that_comes_while_the_code_runs_re_enters_it_afterwards() -> None:
    processes = [asked("ok", f"p{number}") for number in (1, 2, 3)]
    run = asking(*processes, composite=True)
    run.answer("ok", 1)
    run.answer("ok", 2)
    assert len(run.orders("a")) == 2

    run.ask("a", *processes[1:], composite=True)
    assert (run.running, run.asking) == (["a"], [("ok", f"{A};process:p3")])
    assert run.orders("a")[-1].own_answers == {"p1/ok": 1, "p2/ok": 2}
    run.ask("a", processes[2], composite=True)
    assert run.running == []


@pytest.mark.parametrize("finishes", [False, True])
def test_a_question_that_the_code_no_longer_asks_is_superseded(finishes: bool) -> None:
    run = composite()
    run.answer("ok", 1)
    still = run.open("ok")
    if finishes:
        run.finish("a")
    else:
        run.ask("a", asked("else", "p3"), composite=True)

    assert run.asking == ([] if finishes else [("else", f"{A};process:p3")])
    refusal = run.refused_response({still.id: 1})
    assert (refusal.code, refusal.details["status"]) == ("withdrawn", "superseded")
    told = "the visit finished without it" if finishes else "the visit no longer asks this"
    assert f"({told})" in refusal.message


def test_a_part_that_shows_something_else_stays_open_and_is_answered_as_it_is_shown() -> None:
    run = composite()
    run.answer("ok", 1)
    before = run.open("ok")
    run.ask("a", asked("ok", "p2", prompt="Still?"), composite=True)
    shown = run.open("ok")
    assert (shown.id, shown.prompt) == (before.id, "Still?")
    assert run.refused_response({shown.id: 2}, digests={shown.id: before.digest}).details == {
        "interrupt_id": shown.id,
        "digest": shown.digest,
    }
    run.answer("ok", 2)
    run.ask("a", asked("ok", "p2", prompt="Still?"), composite=True)

    assert "raises the interrupt 'ok' again after its answer" in run.error[1]


@pytest.mark.parametrize("since", ["superseded", "cancelled"])
def test_a_withdrawn_question_that_is_asked_again_has_another_id(since: str) -> None:
    run = Drive(chain(FunctionNode(id="a", on_error=AskHuman())))
    run.ask("a", asked("ok", "p1"), asked("ok", "p2"), composite=True)
    run.answer("ok", 1)
    first = run.open("ok").id
    if since == "superseded":
        run.ask("a", asked("else", "p3"), composite=True)
        run.answer("else", 2)
    else:
        run.fail("a")
        assert [name for name, _ in run.asking] == ["error"]
        run.answer("error", {"action": "retry"})
        assert run.orders("a")[-1].own_answers == {"p1/ok": 1}
    run.ask("a", asked("ok", "p2"), composite=True)

    assert (run.open("ok").id == first, run.settled("ok").status) == (False, since)
    assert run.refused_response({first: 1}).code == "withdrawn"
    run.answer("ok", 2)
    assert run.orders("a")[-1].own_answers["p2/ok"] == 2


def test_code_asks_nothing_under_the_name_of_a_rule_that_follows_it() -> None:
    run = Drive(ruled(rule("sure", "work", ask("sure"), GO)))
    run.ask("work", "sure")
    run.stopped("idle")

    code, message, address = run.error
    assert (code, address) == ("node_failed", "graph:g;node:work")
    assert "asks 'sure', which is the name of a rule" in message


# changed values: code gets the hashes of what it showed, and asks again


def code_gate(amount: Json) -> Any:
    return asked("sure", prompt=f"Refund {amount}?", requested_capability="approve")


def asking_code() -> Gated:
    """Start a run whose node `pay` itself asks, with the values that it reads, before it pays."""
    return Gated(forked((FunctionNode(id="pay", asks=("approve",)),), ("other",)))


@pytest.mark.parametrize("changes", ["before it is shown", "after it is shown", "never"])
def test_code_gets_hashes_of_what_it_showed_if_values_have_changed(changes: str) -> None:
    run = asking_code()
    if changes == "before it is shown":
        run.finish("other", {"amount": 999})
    run.ask("pay", code_gate(250))
    if changes == "after it is shown":
        run.finish("other", {"amount": 999})
    first = run.open("sure")
    run.says(APPROVER, "sure")
    order = run.orders("pay")[-1]
    if changes == "never":
        assert (order.shown_hashes, order.own_answers) == ({}, {"sure": True})
        return
    assert (run.ran_with("pay")[-1], [*order.shown_hashes]) == ((999, "A-7"), ["sure"])
    run.ask("pay", code_gate(999))

    old = run.state.ledger.settled[first.id]
    assert (old.status, old.answer, old.settled_reason) == ("answered", True, "asked again")
    assert run.open("sure").id != first.id
    (fact,) = run.facts("interrupt.reopened")
    about = {"node": "pay", "before": "graph:g;node:pay"}
    assert (fact.address, fact.data) == ("graph:g;node:pay", about)
    run.says(APPROVER, "sure")
    assert run.settled("sure").settled_reason is None
    order = run.orders("pay")[-1]
    assert (order.shown_hashes, order.own_answers) == ({}, {"sure": True})


def test_code_stopped_before_it_began_gets_the_shown_hashes_again() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    run.pause(mode="now")
    run.stopped("pay", begun=False)
    run.resume()

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]


@pytest.mark.parametrize("capability", [None, "approve"])
@pytest.mark.parametrize("is_restricted", [False, True])
def test_once_code_has_gone_on_its_answer_is_used_up(
    capability: str | None, *, is_restricted: bool
) -> None:
    terms = Terms(quorum=Quorum(count=1)) if is_restricted else None
    about: dict[str, Any] = {"requested_capability": capability, "terms": terms}
    asks = () if capability is None else (capability,)
    run = Gated(refund(FunctionNode(id="pay", asks=asks), "book"))
    run.ask("pay", asked("sure", prompt="Refund 250?", **about))
    run.says(APPROVER, "sure", {"approved": True})
    run.ask("pay", asked("which"))
    run.edit(BOSS, amount=999)
    run.ask("pay", asked("which"))
    run.says(APPROVER, "which")

    told = {"sure"} if is_restricted else set()
    assert {*run.orders("pay")[-1].shown_hashes} - {"which"} == told
    run.finish("pay")
    assert (run.reopened, run.running) == ([], ["book"])


def test_code_is_run_again_where_the_values_are_edited_while_it_waits() -> None:
    run = asking_code()
    run.finish("other")
    run.ask("pay", code_gate(250))
    first = run.open("sure")
    run.edit(BOSS, amount=999)
    assert run.ran_with("pay") == [(250, "A-7"), (999, "A-7")]
    assert run.open("sure") == first
    run.ask("pay", code_gate(999))

    second = run.open("sure")
    assert (second.id, second.prompt) == (first.id, "Refund 999?")
    assert second.digest != first.digest
    run.says(APPROVER, "sure")
    assert (run.orders("pay")[-1].shown_hashes, run.orders("pay")[-1].own_answers) == (
        {},
        {"sure": True},
    )


def test_an_answer_that_comes_while_the_code_makes_up_its_question_anew() -> None:
    run = asking_code()
    run.finish("other")
    run.ask("pay", code_gate(250))
    first = run.open("sure")
    run.edit(BOSS, amount=999)
    run.says(APPROVER, "sure")
    run.ask("pay", code_gate(999))

    assert run.open("sure").id != first.id
    assert run.running == []


def test_code_that_was_answered_before_an_edit_looks_itself_and_what_follows_is_covered() -> None:
    run = Gated(forked((FunctionNode(id="review", asks=("approve",)), "pay"), ("other",)))
    run.finish("other")
    run.ask("review", code_gate(250))
    run.pause()
    run.says(APPROVER, "sure")
    run.edit(BOSS, amount=999)
    run.resume()
    assert (run.reopened, list(run.orders("review")[-1].shown_hashes)) == ([], ["sure"])
    run.finish("review")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])
