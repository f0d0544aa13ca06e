"""Rules: their decisions after a visit, and their questions before the visit leads on."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import Drive, edge, gate
from core_gated import BOSS
from core_graphs import GO, STOP, WORK, after_work, ask, rule, ruled

from abeyance.core.spec import (
    END,
    START,
    Default,
    FunctionNode,
    GoTo,
    Halt,
    HaltRun,
    OnTimeout,
    Parallel,
    Retry,
    Route,
    Rule,
    RuleAction,
)
from abeyance.core.state import Limits

# Conditions


@pytest.mark.parametrize(
    ("fires", "one"),
    [
        (True, rule("r", "work", GO)),
        (True, rule("r", None, GO, x=1)),
        (True, rule("r", "work", GO, x=1, log=["done"])),
        (False, rule("r", "next", GO)),
        (False, rule("r", "work", GO, x=2)),
        (False, rule("r", "work", GO, x=1, log=[])),
        (True, rule("r", "work", GO, x__deep=None)),
    ],
)
def test_a_rule_fires_on_its_node_and_on_the_merged_values(fires: bool, one: Rule) -> None:
    run = Drive(ruled(one))
    run.finish("work", {"x": 1, "log": ["done"]})

    assert after_work(run) == (["other"] if fires else ["next"])


def test_a_visit_that_fails_asks_no_rule() -> None:
    run = Drive(ruled(rule("r", "work", GO)))
    run.fail("work")

    assert run.ending.outcome == "failed"


# Decisions


@pytest.mark.parametrize(
    ("actions", "outcome"),
    [
        ([Parallel(nodes=("next", "other"))], ["next", "other"]),
        ([Parallel(nodes=("next",)), GO], ["other"]),
        ([GO, GoTo(node="next")], ["other"]),
        ([GoTo(node=END)], []),
        ([GO, Retry()], ["work"]),
        ([GO, Retry(), Parallel(nodes=("next",)), STOP, HaltRun(reason="late")], "enough"),
    ],
)
def test_one_decision_of_the_rules_counts_by_rank_and_then_by_order(
    actions: list[RuleAction], outcome: list[str] | str
) -> None:
    of_one_rule = Drive(ruled(rule("r", "work", *actions)))
    of_many = Drive(
        ruled(*(rule(f"r{number}", "work", action) for number, action in enumerate(actions)))
    )
    for run in (of_one_rule, of_many):
        run.finish("work")

        if isinstance(outcome, str):
            assert (run.ending.outcome, run.ending.reason) == ("halted", outcome)
        else:
            assert after_work(run) == outcome


def test_a_retry_is_a_new_visit_that_sees_the_patch_and_is_bounded() -> None:
    spec = ruled(rule("again", "work", Retry(), x="no"))
    run = Drive(spec, limits=Limits(max_visits=3))
    for number in (1, 2, 3):
        assert len(run.orders("work")) == number
        run.finish("work", {"log": [number], "x": "no"})

    assert [order.address for order in run.orders("work")] == [WORK, f"{WORK}:2", f"{WORK}:3"]
    assert run.orders("work")[-1].values["log"] == [1, 2]
    assert (run.ending.outcome, run.ending.error and run.ending.error.code) == (
        "failed",
        "max_visits",
    )


def test_a_retry_after_a_gate_asks_again() -> None:
    run = Drive(
        ruled(
            rule("again", "work", Retry(), x="what?"),
            nodes=(gate("work", answer_to="x"), "next", "other"),
        )
    )
    run.answer("work", "what?")
    first = run.settled("work").id
    second = run.open("work").id
    run.answer("work", "yes")

    assert first != second
    assert after_work(run) == ["next"]


@pytest.mark.parametrize("chosen", [{"goto": "next"}, {"routed": ("next",)}])
def test_a_decision_replaces_what_the_code_chose(chosen: dict[str, Any]) -> None:
    spec = ruled(
        rule("r", "work", GO, x=1),
        nodes=(FunctionNode(id="work", to=("next",)), "next", "other"),
        ways=[(START, "work"), (START, "idle")],
        routes=(Route(source="work", name="r", targets=("next",)),),
    )
    ruling, silent = Drive(spec), Drive(spec)
    ruling.finish("work", {"x": 1}, **chosen)
    silent.finish("work", {"x": 0}, **chosen)

    assert (after_work(ruling), after_work(silent)) == (["other"], ["next"])


def test_a_target_that_was_not_declared_fails_the_visit_whatever_the_rules_say() -> None:
    run = Drive(ruled(rule("r", "work", GO)))
    run.finish("work", goto="next")

    assert run.ending.error is not None
    assert run.ending.error.code == "unknown_node"


def test_a_run_that_ends_asks_no_rule() -> None:
    run = Drive(ruled(rule("r", "work", ask("r"))))
    run.cancel()
    run.finish("work", {"x": 1})

    assert run.facts("interrupt.opened") == []
    assert run.values == {"x": 1}


# Questions


def test_a_rule_that_asks_holds_the_way_out_of_the_visit_that_fired_it() -> None:
    run = Drive(
        ruled(rule("sure", "work", ask("sure", prompt="Pay {x}?", capability="approve"), x=9))
    )
    run.finish("work", {"x": 9})

    asked = run.open("sure")
    assert (asked.kind, asked.name, asked.prompt, asked.address) == ("rule", "sure", "Pay 9?", WORK)
    assert (run.values, run.waiting, run.running) == ({"x": 9}, ["work"], ["idle"])
    refusal = run.refused_response({asked.id: "yes"})
    assert refusal.details["capability"] == "approve"

    run.answer("sure", "yes", principal=BOSS)
    assert after_work(run) == ["next"]
    assert run.orders("next")[0].answers == {"sure": "yes"}
    assert len(run.orders("work")) == 1, "the code of the visit does not run again"


@pytest.mark.parametrize("action", [GO, STOP, Retry(), Parallel(nodes=("other",))])
@pytest.mark.parametrize("is_same_rule", [True, False])
def test_after_the_answer_comes_the_other_decision(action: RuleAction, is_same_rule: bool) -> None:
    asking = ask("sure")
    rules = (
        [rule("sure", "work", asking, action)]
        if is_same_rule
        else [rule("other", "work", action), rule("sure", "work", asking)]
    )
    run = Drive(ruled(*rules))
    run.finish("work")
    assert (after_work(run), run.state.ending) == ([], None)
    run.answer("sure")

    if action == STOP:
        assert run.ending.reason == "enough"
    else:
        assert after_work(run) == (["work"] if action == Retry() else ["other"])


def test_the_way_that_the_code_chose_is_taken_after_the_answer() -> None:
    spec = ruled(
        rule("sure", "work", ask("sure")),
        nodes=(FunctionNode(id="work", to=("next",)), "next", "other"),
        ways=[(START, "work"), (START, "idle")],
        routes=(Route(source="work", name="r", targets=("next", "other")),),
    )
    by_goto, by_route = Drive(spec), Drive(spec)
    by_goto.finish("work", goto="next")
    by_route.finish("work", routed=("other",))
    for run in (by_goto, by_route):
        run.read_again()
        run.answer("sure")

    assert (after_work(by_goto), after_work(by_route)) == (["next"], ["other"])


def test_the_rules_are_not_asked_again_for_the_same_visit() -> None:
    run = Drive(ruled(rule("sure", "work", ask("sure")), rule("late", "work", STOP, x="now")))
    run.finish("work", {"x": "not yet"})
    run.finish("idle", {"x": "now"})
    run.answer("sure")

    assert run.values["x"] == "now"
    assert run.running == ["next"]


def test_the_edges_are_looked_at_when_the_answer_is_there_and_may_look_at_it() -> None:
    spec = ruled(
        rule("sure", "work", ask("sure", answer_to="x")),
        ways=[
            (START, "work"),
            (START, "idle"),
            edge("work", "next", {"x": "yes"}),
            edge("work", "other", "else"),
        ],
    )
    yes, no = Drive(spec), Drive(spec)
    for run, answer in ((yes, "yes"), (no, "no")):
        run.finish("work", {"x": "unknown"})
        run.answer("sure", answer)

    assert (yes.started[-1], no.started[-1]) == ("next", "other")
    assert (yes.values["x"], no.values["x"]) == ("yes", "no")


def test_every_question_of_the_rules_that_fire_is_asked_and_all_answers_are_waited_for() -> None:
    run = Drive(
        ruled(
            rule("legal", "work", ask("legal", answer_to="x")),
            rule("money", "work", ask("money", answer_to="log")),
            rule("silent", "work", ask("silent"), x="no"),
            rule("then", "work", GO),
        )
    )
    run.finish("work")
    assert [entry.name for entry in run.state.ledger.open.values()] == ["legal", "money"]
    run.answer("money", ["ok"])
    assert after_work(run) == []
    run.answer("legal", "fine")

    assert after_work(run) == ["other"]
    assert run.values == {"x": "fine", "log": ["ok"]}


def test_a_rule_on_a_gate_is_asked_after_the_gate_is_answered() -> None:
    run = Drive(
        ruled(
            rule("second", "work", ask("second"), x="much"),
            nodes=(gate("work", answer_to="x"), "next", "other"),
        )
    )
    run.answer("work", "much")
    assert [entry.name for entry in run.state.ledger.open.values()] == ["second"]
    run.answer("second")

    assert after_work(run) == ["next"]


@pytest.mark.parametrize(
    ("on_timeout", "outcome"),
    [
        (Halt(), "interrupt-timeout"),
        (GoTo(node="other"), ["other"]),
        (Default(answer="ok"), ["next"]),
    ],
)
def test_the_deadline_of_a_rules_question_does_what_a_gates_does(
    on_timeout: OnTimeout, outcome: list[str] | str
) -> None:
    run = Drive(ruled(rule("sure", "work", ask("sure", timeout=60, on_timeout=on_timeout))))
    run.finish("work", {"x": 1})
    run.tick(60)

    if isinstance(outcome, str):
        assert run.ending.reason == outcome
    else:
        assert after_work(run) == outcome
    assert run.values == {"x": 1}
