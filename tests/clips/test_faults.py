"""Faults in the CLIPS text of a rule are told before a run meets them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abeyance.authoring.routers import RouterError
from abeyance.contrib.clips.engine import ClipsRule, evaluate, faults_of, library
from abeyance.contrib.clips.source import FUNCTIONS, TextError, condition
from abeyance.core.spec import Assert, Retract


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
        (
            '(a (value "x)',
            'line 1, column 11: `"`: a control character, or a string without an end',
        ),
        ("a", "`a`: only a form such as"),
        ("(a) => (b)", "line 1, column 5: `=>`"),
        ('(a "x")', '`"x"`: only a form such as'),
        ("(a ((b)))", "`(`: this is not a valid name of a slot"),
        ("(a (value x))", "does not match the allowed types for slot 'value'. (values are strings"),
        ("(a (value 3))", "does not match the allowed types for slot 'value'. (values are strings"),
        ('(node-id (id "work"))', "does not match the allowed types for slot 'id'"),
        ('(node-id (value "work"))', "Invalid slot 'value'"),
        ("(a (value $?x))", "can only contain a single field value. (at `(a (value $?x)`)"),
        ("(a (value ?*x*))", "Check appropriate syntax for defrule. (at `(a (value ?*x*`)"),
        ("(a (value ?v)) (test (> ?v 1))", "caused the type restrictions for argument #1"),
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
        ("(and (a) => (b))", "`=>`: only a form such as"),
        ("(test (eq 1", "column 7: `(`: it has no closing parenthesis"),
        ("(test TRUE)", "Check appropriate syntax for function calls. (at `(test TRUE`)"),
        ("(a (value ?v)) (test (eq ?w ?v))", "Variable ?w found in the expression (eq ?w ?v)"),
        ("(test (eq 1))", "Function 'eq' expected at least 2 arguments"),
        ('(a (level "x"))', "Invalid slot 'level'"),
        ("(not " * 50 + "(a)" + ")" * 50, "is nested deeper than 40 levels"),
        ("(test " + "(not " * 5000 + ")" * 5001, "it has 30007 characters, and the limit is 10000"),
        ("(or (a) (b))" * 7, "its `or`s make 128 combinations, and the limit is 64"),
        ('(a (value "x\0"))', 'column 11: `"`: a control character, or a string without an end'),
        ('(a (value "xy\b"))', 'column 11: `"`: a control character, or a string without an end'),
        ("(a\b)", "column 3: `\b`: a control character, or a string without an end"),
    ],
)
def test_a_text_that_cannot_be_used_is_a_fault(
    when: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert told in fault(when)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "when",
    [
        "(test ({} ?v))",
        "(b (value =({} ?v)))",
        "(b (value ?w &: ({} ?v)))",
        "(not (b (value ~={}))) (test (eq 1 (str-cat ({} ?v))))",
        "(test (({} ?v)))",
        "(test(\n{};\n?v))",
        "(test (eq 1 (;)\r{} ?v)))",
        '(test (eq "(" ({} ?v)))',
        '(b (value "\\\\")) => ({} ?v)',
        "(b =({} ?v))",
        "=({} ?v)",
        "(exists ={} ({} ?v))",
        "(declare (salience ({} ?v)))",
        "(logical ({} ?v))",
        "(or (b) (test ({} ?v)))",
    ],
)
def test_a_text_cannot_call_functions_with_side_effects(when: str) -> None:
    every = library("r1").Environment().eval("(get-function-list)")
    others = {str(name) for name in every} - FUNCTIONS
    assert others > {"system", "open", "load", "batch*", "eval", "build", "funcall", "while", "div"}

    for name in sorted(others):
        text = f"(a (value ?v)) {when.replace('{}', name)}"
        with pytest.raises(TextError):
            condition(text)


def test_a_field_may_have_the_name_of_a_function() -> None:
    rules = [ClipsRule(id="r1", when='(open (value "x")) (system (value "y"))')]

    assert evaluate(rules, node="work", values={"open": "x", "system": "y"}) == ("r1",)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_on_the_list_is_there(name: str) -> None:
    listed = ['"a"', '"a" "b"', "1", "1 2", '1 2 "a"', "(create$ 1)", "1 (create$ 1)"]
    listed.append("(create$ 1) (create$ 1)")
    calls = [f"({name} {arguments})" for arguments in listed]

    assert [] in [faults_of([ClipsRule(id="r1", when=f"(test {call})")]) for call in calls]


HARMFUL = '(system "touch {}")'


@pytest.mark.parametrize(
    "when",
    [
        f"(a)) => {HARMFUL}) (defrule z (b",
        f"(a)) (deffunction eq (?x ?y) {HARMFUL}",
        f"(a) => {HARMFUL}",
        f"(test {HARMFUL})",
        f"(a (value ~={HARMFUL}))",
        f"(a ={HARMFUL})",
        f'(a (value "\\")) => {HARMFUL} (defrule z (b (value \\""))',
        f"(a) ; \r=> {HARMFUL}",
        '(test (eval "(system \\"touch {}\\")"))',
        '(test (str-index "(" (batch* "{}")))',
    ],
)
def test_a_condition_has_no_side_effects(when: str, tmp_path: Path) -> None:
    refused(ClipsRule(id="r1", when=when.replace("{}", str(tmp_path / "touched"))))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [Assert, Retract])
@pytest.mark.parametrize(
    "fact",
    [
        HARMFUL,
        f"(b) {HARMFUL}",
        f"(b)) {HARMFUL} (assert (c)",
        f"(b (value {HARMFUL}))",
        f"(b (value ={HARMFUL}))",
        f"(b ={HARMFUL})",
        f"?f) {HARMFUL} (retract ?f",
        "?f)) (defrule z (b) => (retract ?f)",
    ],
)
def test_an_assert_or_retract_has_no_other_side_effects(
    change: type[Assert | Retract], fact: str, tmp_path: Path
) -> None:
    text = fact.replace("{}", str(tmp_path / "touched"))
    refused(ClipsRule(id="r1", when="?f <- (a)", changes=(change(fact=text),)))
    assert list(tmp_path.iterdir()) == []


def refused(rule: ClipsRule) -> None:
    assert faults_of([rule])
    with pytest.raises(RouterError):
        evaluate([rule], node="work", values={"a": "x", "b": "x"})


def test_the_faults_of_all_rules_are_listed() -> None:
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
    with pytest.raises(RouterError) as raised:
        evaluate(rules, node="work", values={})
    assert str(raised.value) == "; ".join(told)


def test_the_slots_that_one_rule_asserts_another_may_name() -> None:
    asks = ClipsRule(id="asks", when='(alarm (level "high"))')
    tells = ClipsRule(id="tells", when="(a)", changes=(Assert(fact='(alarm (level "high"))'),))

    assert "Invalid slot 'level'" in faults_of([asks])[0]
    assert faults_of([asks, tells]) == []


def test_a_graph_has_at_most_a_thousand_rules() -> None:
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


HARM = "(system touch)"
# fmt: off
SYMBOLS = [
    "(", "(", "(", ")", ")", ")", "(", "(a", "(a)", "(a", "(value", "=(", "&:(", "~=(", "?v",
    "$?v", "?f", "&", ":", "=", "~", "|", "<-", "=>", '"x"', '"("', '"', "\\", ";", ";)",
    "test", "(test", "and", "(not", "(or", "(eq", "eq", "1", "declare", "(declare", "(logical",
    "[x]", "<", "MAIN::a", "(defrule", "(b)",
]
# fmt: on


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from([*SYMBOLS, HARM, HARM, " ", "\n", "\r", "\u2028"]), max_size=12))
def test_every_text_is_read_or_refused_and_does_nothing(symbols: list[str]) -> None:
    with TemporaryDirectory() as folder:
        text = "".join(symbols).replace("touch", f'"touch {folder}/touched"')
        rules = [ClipsRule(id="r1", when=f"(a (value ?v)) {text}")]
        if faults_of(rules) == []:
            assert evaluate(rules, node="work", values={"a": "x"}) in {(), ("r1",)}
        assert list(Path(folder).iterdir()) == []
