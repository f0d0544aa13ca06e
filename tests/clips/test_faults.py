"""What is wrong with the CLIPS text of a rule is told before a run meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abeyance.clips.engine import ClipsError, ClipsRule, evaluate, faults_of
from abeyance.clips.source import FUNCTIONS, TextError, condition
from abeyance.core.spec import Assert


def fault(when: str) -> str:
    (told,) = faults_of([ClipsRule(id="r1", when=when)])
    assert told.startswith("the rule 'r1'")
    return told


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("", "it is empty"),
        (" ; only a comment", "it is empty"),
        ("(a", "line 1, column 1: `(`: it has no closing parenthesis"),
        ("(a\n  (value", "line 2, column 3: `(`: it has no closing parenthesis"),
        ("(a))", "line 1, column 4: `)`"),
        ('(a (value "x)', 'line 1, column 11: `"`: this string has no end'),
        ("a", "a pattern such as"),
        ("(a) => (b)", "line 1, column 5: `=>`"),
        ('(a "x")', "a slot such as"),
        ("(a (value x))", 'write "x"'),
        ("(a (value 3))", 'write "3"'),
        ('(node-id (id "work"))', "remove the quotes"),
        ('(node-id (value "work"))', "node-id has only the slot id"),
        ("(a (value $?x))", "CLIPS text cannot contain this character"),
        ("(a (value ?*x*))", "line 1, column 12: `*x*`"),
        ('(a (value "x" &))', "CLIPS says: Syntax Error: Check appropriate syntax for defrule"),
        ("(declare (salience 10)) (a)", "`declare`: this is not a valid name of a fact"),
        ("(logical (a))", "`logical`: this is not a valid name of a fact"),
        ("(object (is-a USER))", "`object`: this is not a valid name of a fact"),
        ("(MAIN::a)", "`MAIN::a`: this is not a valid name of a fact"),
        ("(not (a) (b))", "Check appropriate syntax for the not conditional element"),
        ("(forall (a))", "Check appropriate syntax for the forall conditional element"),
        ("(and)", "Check appropriate syntax for the and conditional element"),
        ("?x (a)", "Check appropriate syntax for binding patterns"),
        ("?x <- (test (eq 1 1))", "Check appropriate syntax for defrule"),
        ("(and (a) => (b))", "`=>`: a pattern such as"),
        ("(test (eq 1 [a]))", "`[a]`: an argument or `)` is expected here"),
        ("(test (eq 1", "column 7: `(`: it has no closing parenthesis"),
        ("(test TRUE)", "a call such as"),
        ("(a (value ?v)) (test (eq ?w ?v))", "Variable ?w found in the expression (eq ?w ?v)"),
        ("(test (eq 1))", "Function 'eq' expected at least 2 arguments"),
        ('(a (level "x"))', "Invalid slot 'level'"),
        ("(not " * 50 + "(a)" + ")" * 50, "is nested deeper than 40 levels"),
        ("(test " + "(not " * 5000 + ")" * 5001, "it has 30007 characters, and the limit is 10000"),
        ("(or (a) (b))" * 7, "its `or`s make 128 combinations, and the limit is 64"),
        ('(a (value "x\0"))', "this string has no end, or contains a control character"),
        ('(a (value "xy\b"))', "this string has no end, or contains a control character"),
        ("(a\b)", "CLIPS text cannot contain this character"),
    ],
)
def test_a_text_that_cannot_be_used_is_a_fault(
    when: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert told in fault(when)
    assert capfd.readouterr() == ("", "")


FORBIDDEN = """
system open close read readline remove rename load load* bload batch batch* save bsave exit clear reset
run halt eval build assert assert-string retract modify printout bind gensym random seed time
do-for-all-facts fact-slot-value python-function funcall div mod
"""


@pytest.mark.parametrize("name", FORBIDDEN.split())
@pytest.mark.parametrize(
    "when",
    [
        "(test ({} ?v))",
        "(b (value =({} ?v)))",
        "(b (value ?w &: ({} ?v)))",
        "(not (b (value ~={}))) (test (eq 1 (str-cat ({} ?v))))",
        "(test (({} ?v)))",
        "(test(\n{};\n?v))",
    ],
)
def test_a_condition_calls_only_what_looks_at_values(name: str, when: str) -> None:
    text = f"(a (value ?v)) {when.replace('{}', name)}"

    with pytest.raises(TextError, match=r"line \d+, column \d+"):
        condition(text)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_on_the_list_is_there(name: str) -> None:
    listed = ['"a"', '"a" "b"', "1", "1 2", '1 2 "a"', "(create$ 1)", "1 (create$ 1)"]
    listed.append("(create$ 1) (create$ 1)")
    calls = [f"({name} {arguments})" for arguments in listed]

    assert [] in [faults_of([ClipsRule(id="r1", when=f"(test {call})")]) for call in calls]


@pytest.mark.parametrize(
    "when",
    [
        '(a)) => (system "touch {}")) (defrule z (b',
        '(a) => (system "touch {}")',
        '(test (system "touch {}"))',
        '(a (value ~=(system "touch {}")))',
        '(a (value "\\")) => (system \\"touch {}\\") (defrule z (b (value \\""))',
        '(a) ; \r=> (system "touch {}")',
    ],
)
def test_no_text_does_anything(when: str, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    rules = [ClipsRule(id="r1", when=when.format(touched))]

    if faults_of(rules):
        with pytest.raises(ClipsError):
            evaluate(rules, node="work", values={"a": "x"})
    else:
        assert evaluate(rules, node="work", values={"a": "x"}) == ()
    assert not touched.exists()


def test_the_faults_of_all_rules_are_told_at_once() -> None:
    rules = [
        ClipsRule(id="one", when="(a", changes=(Assert(fact="b"),)),
        ClipsRule(id="two", when="(a)"),
        ClipsRule(id="three", when="(test (exit))"),
    ]

    told = faults_of(rules)

    assert [each.split(":")[0] for each in told] == [
        "the rule 'one', when=",
        "the rule 'one', assert",
        "the rule 'three', when=",
    ]
    with pytest.raises(ClipsError) as raised:
        evaluate(rules, node="work", values={})
    assert str(raised.value) == "; ".join(told)


def test_the_slots_that_one_rule_asserts_another_may_name() -> None:
    asks = ClipsRule(id="asks", when='(alarm (level "high"))')
    tells = ClipsRule(id="tells", when="(a)", changes=(Assert(fact='(alarm (level "high"))'),))

    assert "Invalid slot 'level'" in faults_of([asks])[0]
    assert faults_of([asks, tells]) == []


def test_there_are_not_too_many_rules() -> None:
    rules = [ClipsRule(id=str(number), when="(a)") for number in range(1001)]

    assert "the graph has 1001 rules with CLIPS text: the limit is 1000" in faults_of(rules)


@pytest.mark.parametrize(
    ("when", "node"),
    [
        ("(node-id (id work))", "work"),
        ("?n <- (node-id (id human_gate))", "human_gate"),
        ("(a) ( node-id ( id two.b-c ) )", "two.b-c"),
        ("(a)", None),
        ("(node-id)", None),
        ("(node-id (id ?n))", None),
        ("(node-id (id ~work))", None),
        ("(node-id (id work | home))", None),
        ("(not (node-id (id work)))", None),
        ("(or (node-id (id work)) (a))", None),
    ],
)
def test_the_node_of_a_condition_is_known_without_evaluating_it(
    when: str, node: str | None
) -> None:
    assert condition(when).node == node


@settings(deadline=None, max_examples=200)
@given(st.text('()&|~?:=<-"\\;$[] \nanodei1', max_size=40))
def test_every_text_is_read_or_refused(text: str) -> None:
    rules = [ClipsRule(id="r1", when=text)]

    if faults_of(rules) == []:
        assert evaluate(rules, node="work", values={"a": "x"}) in {(), ("r1",)}
