"""How far an approval reaches over joins, and how it is where a rule has asked."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import edge, graph
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, forked, remark
from core_rules import ask, rule

from abeyance.core.spec import START, Default, GraphSpec, Node, Route
from abeyance.core.state import Limits

# joins


def joined(*after: str | Node, **about: Any) -> GraphSpec:
    """`pay` needs the gate's answer and `slow`; a third branch, `other`, has nothing to do with it."""
    names = [each if isinstance(each, str) else each.id for each in after]
    more = about.pop("more", ())
    return graph(
        approving(),
        "slow",
        "other",
        "pay",
        *after,
        ways=[
            (START, "ask"),
            (START, "slow"),
            (START, "other"),
            edge(("ask", "slow"), "pay", **about),
            *zip(["pay", *names], names, strict=False),
            *more,
        ],
        fields=FIELDS,
    )


@pytest.mark.parametrize("first", ["ask", "slow"])
def test_at_a_join_the_other_branch_waits_until_the_gate_is_answered_again(first: str) -> None:
    run = Gated(joined())
    run.finish("other", {"amount": 999})
    if first == "ask":
        run.says(APPROVER, "ask")
        run.finish("slow")
    else:
        run.finish("slow")
        run.says(APPROVER, "ask")
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")
    assert (run.started.count("slow"), run.ran_with("pay")) == (1, [(999, "A-7")])
    run.finish("pay")

    assert run.status == "completed"


def test_at_a_join_the_other_branch_keeps_the_order_in_which_it_came() -> None:
    run = Gated(joined(more=[("slow", "slow")]))
    run.finish("slow")
    run.finish("slow", {"amount": 999})
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask"]

    (waiting,) = run.state.root.tokens.values()
    came = [token.visit for token in waiting["slow"]]
    assert came == ["graph:g;node:slow", "graph:g;node:slow:2"]


def test_at_a_join_the_other_branch_may_be_what_changes_what_was_shown() -> None:
    run = Gated(joined())
    run.says(APPROVER, "ask")
    run.finish("slow", {"amount": 999})
    assert (run.reopened, run.running) == (["ask"], ["other"])
    run.says(APPROVER, "ask")
    run.finish("other")
    run.finish("pay")

    assert (run.status, run.ran_with("pay")) == ("completed", [(999, "A-7")])


def test_long_after_a_join_the_other_branch_is_not_lost() -> None:
    run = Gated(joined(remark(), "book"))
    run.finish("other")
    run.says(APPROVER, "ask")
    run.finish("slow")
    run.finish("pay")
    run.says(CLERK, "remark", 999)
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")
    assert run.started.count("slow") == 1
    run.finish("pay")
    run.says(CLERK, "remark", 999)
    run.finish("book")

    assert (run.status, run.ran_with("pay")) == ("completed", [(250, "A-7"), (999, "A-7")])


def test_all_branches_that_were_taken_on_the_way_of_one_answer_are_not_lost() -> None:
    spec = graph(
        approving(),
        *("one", "two", "left", "right", remark(), "pay"),
        ways=[
            *((START, "ask"), (START, "one"), (START, "two")),
            edge(("ask", "one"), "left"),
            edge(("ask", "two"), "right"),
            edge(("left", "right"), "remark"),
            ("remark", "pay"),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    for node in ("one", "two", "left", "right"):
        run.finish(node)
    run.says(CLERK, "remark", 999)
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")

    assert run.running == ["left", "right"]


def test_a_branch_that_waits_for_a_gate_again_is_approved_as_it_is_by_now() -> None:
    spec = graph(
        approving(),
        approving("audit", capability="audit"),
        *("slow", "pay", remark(), "book"),
        ways=[
            *((START, "ask"), (START, "audit"), ("audit", "slow")),
            edge(("ask", "slow"), "pay"),
            *(("pay", "remark"), ("remark", "book")),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.says(BOSS, "audit")
    run.finish("slow")
    run.finish("pay")
    run.says(CLERK, "remark", 999)
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == (["ask", "audit"], [])
    run.says(BOSS, "audit")
    run.finish("slow")
    run.finish("pay")
    run.says(CLERK, "remark", 999)
    run.finish("book")
    assert (run.status, run.ran_with("pay")) == ("completed", [(250, "A-7"), (999, "A-7")])


def test_two_gates_that_meet_are_asked_again_each_for_its_own() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    spec = graph(
        approving(prompt="Refund {amount}?"),
        audit,
        "other",
        "pay",
        ways=[(START, "ask"), (START, "audit"), (START, "other"), edge(("ask", "audit"), "pay")],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.pause()
    run.says(BOSS, "audit")
    run.finish("other", {"order_id": "B-8"})
    run.resume()
    assert (run.reopened, [each.name for each in run.state.ledger.open.values()]) == (
        ["audit"],
        ["audit"],
    )
    run.says(BOSS, "audit")

    assert run.ran_with("pay") == [(250, "B-8")]


def test_the_branches_of_one_answer_that_meet_again_count_as_one() -> None:
    spec = graph(
        approving(),
        "left",
        remark("right", field="note"),
        "pay",
        ways=[
            (START, "ask"),
            ("ask", "left"),
            ("ask", "right"),
            edge(("left", "right"), "pay"),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("left", {"amount": 245})
    run.says(CLERK, "right", "fine")

    assert (run.reopened, run.ran_with("pay")) == ([], [(245, "A-7")])


def split() -> Gated:
    """The gate allows `left` and `right`, which meet at `pay`; `other` is beside them."""
    spec = graph(
        approving(),
        "left",
        remark("wait", field=None),
        "right",
        "pay",
        "other",
        ways=[
            (START, "ask"),
            (START, "other"),
            ("ask", "left"),
            ("ask", "wait"),
            ("wait", "right"),
            edge(("left", "right"), "pay"),
        ],
        fields=FIELDS,
    )
    return Gated(spec)


@pytest.mark.parametrize("is_left_done", [False, True])
def test_all_that_an_answer_led_to_is_left_when_the_gate_is_asked_again(
    is_left_done: bool,
) -> None:
    run = split()
    run.says(APPROVER, "ask")
    if is_left_done:
        run.finish("left")
    run.finish("other", {"amount": 999})
    run.says(CLERK, "wait")
    assert (run.reopened, run.running) == (["ask"], [])
    assert run.state.root.tokens == {}
    run.says(APPROVER, "ask")
    run.finish("left")
    run.says(CLERK, "wait")
    run.finish("right")
    run.finish("pay")

    assert (run.status, run.ran_with("pay")) == ("completed", [(999, "A-7")])


def test_a_join_that_takes_what_arrived_waits_for_the_gate_too() -> None:
    run = Gated(joined(join="arrived"))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")
    run.finish("slow")
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask")

    assert run.ran_with("pay") == [(999, "A-7")]


def test_tokens_that_wait_are_looked_at_where_people_say_something() -> None:
    spec = graph(
        approving(),
        "check",
        remark(),
        "slow",
        "pay",
        ways=[
            (START, "ask"),
            ("ask", "check"),
            (START, "remark"),
            ("remark", "slow"),
            edge(("check", "slow"), "pay"),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", 999)
    run.finish("slow")

    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")
    run.finish("check")
    assert run.ran_with("pay") == [(999, "A-7")]


# rules that ask


def ruled() -> Gated:
    asks = ask("sure", prompt="Refund {amount}?", capability="approve")
    rules = [rule("sure", "assess", asks)]
    return Gated(forked(("assess", "pay"), ("other",), rules=rules))


def test_the_question_of_a_rule_is_a_gate_and_asking_it_again_runs_no_code_again() -> None:
    run = ruled()
    run.finish("assess")
    assert run.open("sure").prompt == "Refund 250?"
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    assert (run.reopened, run.running) == (["assess"], [])
    assert run.open("sure").prompt == "Refund 999?"
    run.says(APPROVER, "sure")

    assert (run.ran_with("assess"), run.ran_with("pay")) == ([(250, "A-7")], [(999, "A-7")])


def test_the_question_of_a_rule_is_asked_anew_where_it_is_edited() -> None:
    run = ruled()
    run.finish("other")
    run.finish("assess")
    first = run.open("sure")
    run.edit(BOSS, amount=999)

    assert (run.open("sure").id, run.open("sure").prompt) == (first.id, "Refund 999?")
    run.says(APPROVER, "sure")
    assert run.ran_with("pay") == [(999, "A-7")]


def test_the_way_that_a_route_found_is_sought_again_with_the_gate() -> None:
    asks = ask("sure", prompt="Refund {amount}?", capability="approve")
    spec = graph(
        "assess",
        "pay",
        "other",
        ways=[(START, "assess"), (START, "other")],
        routes=[Route(source="assess", name="r", targets=("pay",))],
        rules=[rule("sure", "assess", asks)],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.finish("assess", routed=("pay",))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    assert run.reopened == ["assess"]
    assert run.decided == ["assess"]
    run.finish("assess", routed=("pay",))
    run.says(APPROVER, "sure")

    assert (len(run.orders("assess")), run.ran_with("pay")) == (1, [(999, "A-7")])


def test_two_rules_that_asked_about_one_visit_are_both_asked_again() -> None:
    asks = [
        ask("one", prompt="Refund {amount}?", capability="approve"),
        ask("two", prompt="Is {order_id} known?", capability="audit"),
    ]
    rules = [rule(each.question.name, "assess", each) for each in asks]
    run = Gated(forked(("assess", "pay"), ("other",), rules=rules))
    run.finish("assess")
    run.finish("other", {"amount": 999})
    run.says(BOSS, "two")
    run.says(APPROVER, "one")
    assert (run.reopened, run.running) == (["assess"], [])
    run.says(BOSS, "two")
    run.says(APPROVER, "one")

    assert run.ran_with("pay") == [(999, "A-7")]


def test_a_rule_that_is_asked_again_too_often_fails_the_run() -> None:
    asks = ask(
        "sure",
        prompt="Refund {amount}?",
        capability="approve",
        timeout=60,
        on_timeout=Default(answer=True),
    )
    spec = forked(("assess", "pay"), ("other",), rules=[rule("sure", "assess", asks)])
    run = Gated(spec, limits=Limits(max_visits=1))
    run.finish("assess")
    run.finish("other", {"amount": 999})
    run.tick(60)

    assert run.error[0] == "max_visits"
