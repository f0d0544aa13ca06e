"""Rules assert and retract facts within one evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from abeyance.authoring.routers import RouterError
from abeyance.contrib.clips.engine import Change, ClipsRule, evaluate, faults_of
from abeyance.contrib.clips.source import fact_text
from abeyance.core.spec import Assert, Retract


def rule(id_: str, when: str, *changes: Change) -> ClipsRule:
    return ClipsRule(id=id_, when=when, changes=changes)


def fired(*rules: ClipsRule, **values: Any) -> tuple[str, ...]:
    return evaluate(rules, node="work", values=values)


def test_a_fact_that_is_asserted_lets_others_fire_in_the_same_evaluation() -> None:
    rules = [
        rule("tell", "(alarm (level ?l) (by ?b)) (a (value ?b))"),
        rule("raise", "(a (value ?v))", Assert(fact='(alarm (level "high") (by ?v))')),
    ]

    assert fired(*rules, a="x") == ("raise", "tell")
    assert fired(*rules) == (), "an earlier evaluation leaves nothing behind"


def test_a_fact_that_is_asserted_can_stand_for_a_field() -> None:
    rules = [
        rule("guess", "(not (risk))", Assert(fact='(risk (value "high"))')),
        rule("stop", '(risk (value "high"))'),
    ]

    assert fired(*rules) == ("guess", "stop")
    assert fired(*rules, risk="low") == ()
    assert fired(*rules, risk="high") == ("stop",)


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("?fact", False),
        ("(a)", False),
        ("(a (value ?))", False),
        ('(a (value "x"))', False),
        ("(a (value ?v))", False),
        ('(a (value "y"))', True),
        ("(b)", True),
    ],
)
def test_a_later_rule_does_not_see_a_retracted_fact(pattern: str, left: bool) -> None:
    rules = [
        rule("take", "?fact <- (a (value ?v))", Retract(fact=pattern)),
        rule("see", "(a)"),
    ]

    assert fired(*rules, a="x", b="x") == (("take", "see") if left else ("take",))


def test_the_node_can_be_retracted_and_not_asserted() -> None:
    rules = [
        rule("first", "(node-id (id work))", Retract(fact="(node-id (id work))")),
        rule("second", "(node-id (id work))"),
    ]

    assert fired(*rules) == ("first",)
    (fault,) = faults_of([rule("r1", "(a)", Assert(fact="(node-id (id home))"))])
    assert "the rule 'r1', assert: " in fault
    assert "which a rule cannot assert" in fault


def test_changes_are_made_in_the_order_in_which_they_stand() -> None:
    assert_, retract = Assert(fact='(mark (value "x"))'), Retract(fact="(mark)")
    see = rule("see", "(mark)")

    assert fired(rule("r", "(a)", retract, assert_), see, a=1) == ("r", "see")
    assert fired(rule("r", "(a)", assert_, retract), see, a=1) == ("r",)


def test_rules_that_never_come_to_rest_are_an_error_that_names_them() -> None:
    rules = [
        rule("there", "?f <- (a)", Retract(fact="?f"), Assert(fact="(b)")),
        rule("back", "?f <- (b)", Retract(fact="?f"), Assert(fact="(a)")),
    ]

    assert fired(*rules, c=1) == ()
    with pytest.raises(RouterError, match=r"still fire after 1000 firings, next '(there|back)'"):
        fired(*rules, a=1)


def test_the_limit_may_be_reached_and_not_passed() -> None:
    rules = [rule(str(number), "(a)") for number in range(3)]

    assert evaluate(rules, node="work", values={"a": 1}, limit=3) == ("0", "1", "2")
    with pytest.raises(RouterError, match="still fire after 2 firings, next '2'"):
        evaluate(rules, node="work", values={"a": 1}, limit=2)


def test_values_are_written_into_a_fact_as_values() -> None:
    hostile = '") (b (value "'
    text = fact_text("note", {"text": hostile, "flag": True, "none": None})

    rules = [
        rule("write", "(a)", Assert(fact=text)),
        rule("read", '(note (text ?t) (flag "true")) (a (value ?t))'),
        rule("never", "(b)"),
    ]

    assert faults_of(rules) == []
    assert fired(*rules, a=hostile) == ("write", "read")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (Assert(fact="(b (value ?))"), "Syntax Error"),
        (Assert(fact="(b (value 3))"), "does not match the allowed types for slot 'value'"),
        (Assert(fact="?f"), "only a form such as"),
        (Assert(fact="b"), "only a form such as"),
        (Assert(fact="(b (value ?y))"), "?y"),
        (Assert(fact="(not (b))"), "this is not a valid name of a fact"),
        (Retract(fact="?g"), "?g"),
        (Retract(fact="?f (b)"), "only a form such as"),
        (Retract(fact="(b) (c)"), "write one fact"),
        (Retract(fact="(b (value 3))"), "expected argument #2 to be of type symbol, string"),
        (Retract(fact="(b (value ~?v))"), "Expected a constant, variable, or expression"),
    ],
)
def test_a_change_that_cannot_be_made_is_a_fault(change: Change, fault: str) -> None:
    (told,) = faults_of([rule("r1", "?f <- (a (value ?v))", change)])

    assert told.startswith("the rule 'r1'")
    assert fault in told
