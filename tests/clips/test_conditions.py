"""Conditions in CLIPS text, and the values for which they hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abeyance.authoring.routers import RouterError
from abeyance.contrib.clips.engine import ClipsRule, evaluate, faults_of
from abeyance.contrib.clips.source import fact_text


def holds(when: str, *, node: str = "work", **values: Any) -> bool:
    return evaluate([ClipsRule(id="r1", when=when)], node=node, values=values) == ("r1",)


def test_the_rule_of_the_source_document_fires_at_its_gate_only() -> None:
    seed = "?n <- (node-id (id human_gate))"

    assert holds(seed, node="human_gate")
    assert not holds(seed, node="human_gate_2")


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ('(a (value "x"))', True),
        ('(a (value "y"))', False),
        ('(a (value "x")) (b (value "x"))', True),
        ('(and (a (value "x")) (b (value "x")))', True),
        ('(or (a (value "y")) (b (value "x")))', True),
        ('(not (a (value "y")))', True),
        ('(not (and (a (value "x")) (b (value "y"))))', True),
        ('(exists (a (value "x")))', True),
        ("(forall (a (value ?v)) (b (value ?v)))", True),
        ("(a (value ?v)) (b (value ?v))", True),
        ("(a (value ?v)) (n (value ~?v))", True),
        ('(a (value "w" | "x"))', True),
        ('(a (value ~"w" & ~"x"))', False),
        ('(a (value ?v &:(eq ?v "x")))', True),
        ('(a (value =(lowcase "X")))', True),
        ("(n (value ?n)) (test (> (string-to-field ?n) 6))", True),
        ('(a (value ?v)) (test (member$ ?v (create$ "w" "x")))', True),
        (
            "(a (value ?v)) (test (and (numberp (string-to-field ?v)) (> (string-to-field ?v) 1)))",
            False,
        ),
        ('(a) ; a comment "with (signs\n(b)', True),
        ("(a) (node-id (id work))", True),
        ("(node-id (id ?at)) (test (neq ?at home))", True),
        ("(node-id (id home | work))", True),
        ("(or (node-id (id home)) (a))", True),
    ],
)
def test_a_condition_holds_as_clips_means_it(when: str, expected: bool) -> None:
    assert holds(when, a="x", b="x", n=7) is expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("high", "high"),
        ("", ""),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (3.0, "3"),
        (0.5, "0.5"),
        ([1, "x"], '[1,\\"x\\"]'),
        ({"b": None, "a": "é"}, '{\\"a\\":\\"é\\",\\"b\\":null}'),
    ],
)
def test_a_value_is_a_text_in_its_slot(value: Any, text: str) -> None:
    assert holds(f'(a (value "{text}"))', a=value)


@pytest.mark.parametrize("values", [{}, {"a": None}, {"b": "x"}])
def test_a_missing_field_and_a_null_match_no_pattern(values: dict[str, Any]) -> None:
    assert not holds("(a)", **values)
    assert holds("(not (a))", **values)


def test_dots_walk_into_mappings() -> None:
    when = '(decision.by.name (value "Ann"))'

    assert holds(when, decision={"by": {"name": "Ann"}})
    assert not holds(when, decision={"by": "Ann"})


def test_rules_fire_in_order_of_declaration_and_each_is_named_once() -> None:
    rules = [
        ClipsRule(id="an id of (any) kind", when="(or (a) (b) (a))"),
        ClipsRule(id="never", when="(c)"),
        ClipsRule(id="2", when="(b)"),
        ClipsRule(id="elsewhere", when="(a) (node-id (id home))"),
        ClipsRule(id="1", when="(a)"),
    ]

    fired = evaluate(rules, node="work", values={"a": 1, "b": 2})

    assert fired == ("an id of (any) kind", "2", "1")


def test_an_evaluation_without_rules_fires_nothing() -> None:
    assert evaluate([], node="work", values={"a": 1}) == ()
    assert faults_of([]) == []


def test_a_function_that_cannot_take_a_value_is_an_error_that_names_the_rule(
    capfd: pytest.CaptureFixture[str],
) -> None:
    rules = [
        ClipsRule(id="fine", when="(a)"),
        ClipsRule(id="large", when="(a (value ?v)) (test (> (string-to-field ?v) 3))"),
    ]

    assert evaluate(rules, node="work", values={"a": "4"}) == ("fine", "large")
    with pytest.raises(RouterError, match="the rule 'large' cannot be evaluated") as raised:
        evaluate(rules, node="work", values={"a": "much"})

    assert "expected argument #1 to be of type integer or float" in str(raised.value)
    assert "much" not in str(raised.value), "values may be secret"
    assert capfd.readouterr() == ("", "")


# Values are never read as CLIPS

HOSTILE = [
    'x")) (b (value "y',
    '(system "exit")',
    '"',
    "\\",
    '\\"',
    ") => (exit)",
    "?x",
    "; comment",
    "=(exit)",
    "nil",
    "{}[]$?*",
    "line\nline\ttab\r",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_only_ever_a_value(value: str) -> None:
    rules = [
        ClipsRule(id="same", when="(a (value ?v)) (b (value ?v))"),
        ClipsRule(id="other", when="(a (value ?v)) (c (value ?v))"),
        ClipsRule(id="third", when="(y)"),
    ]

    assert evaluate(rules, node="work", values={"a": value, "b": value, "c": "c"}) == ("same",)


@pytest.mark.parametrize(
    "name", [*HOSTILE, "two words", "12", "not", "test", "", "MAIN::a", "!fired"]
)
def test_a_field_may_have_any_name(name: str) -> None:
    assert holds('(a (value "x"))', a="x", **{name: "x"})


def test_a_text_does_not_end_where_clips_would_end_it() -> None:
    assert not holds('(a (value "yes"))', a="yes\0no")
    assert holds('(a (value "yes\N{REPLACEMENT CHARACTER}no"))', a="yes\0no")


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\t\r\n")))
def test_a_text_matches_itself_and_nothing_longer(text: str) -> None:
    when = fact_text("a", {"value": text})

    assert holds(when, a=text)
    assert not holds(when, a=f"{text} ")
