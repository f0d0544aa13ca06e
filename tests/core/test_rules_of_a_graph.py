"""What a graph says of its rules, and what can be wrong with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import Drive, edge, gate, graph
from core_graphs import GO, STOP, after_work, ask, rule, ruled

from abeyance.authoring.validation import faults_of
from abeyance.core.spec import (
    END,
    START,
    Assert,
    Clips,
    Default,
    GoTo,
    GraphSpec,
    HaltRun,
    Parallel,
    Retract,
    Retry,
    Rule,
)

# What a graph says of its rules


def test_a_graph_knows_every_question_that_it_asks() -> None:
    spec = ruled(
        rule("sure", "work", ask("sure"), GO),
        nodes=("work", gate("next"), "other"),
    )

    assert [question.name for question in spec.questions] == ["next", "sure"]


def test_the_targets_of_rules_are_reached() -> None:
    spec = ruled(
        rule("a", "work", ask("a", timeout=1, on_timeout=GoTo(node="late"))),
        rule("b", None, GoTo(node="other"), x=1),
        rule("c", "other", Parallel(nodes=("next", END))),
        rule("d", "next", Retry(), STOP, ask("d")),
        nodes=("work", "next", "other", "late"),
        ways=[(START, "work"), (START, "idle")],
    )

    assert spec.successors("work") == {"late", "other"}
    assert spec.successors("next") == {"next", "other"}
    assert spec.successors(START) == {"work", "idle"}


def test_the_rules_are_part_of_what_a_graph_is() -> None:
    assert ruled().version != ruled(rule("r", "work", GO)).version


FAULTY = {
    "the rule name 'no way' must start with a letter or underscore and have at most 100 letters, "
    "digits, '_', '-' or '.'": [rule("no way", "work", GO)],
    "two rules are named 'r'": [rule("r", "work", GO), rule("r", "next", GO)],
    "the rule 'r' has an empty condition: name a node or a field": [rule("r", None, GO)],
    "the rule 'r' looks at an unknown node 'nowhere'": [rule("r", "nowhere", GO)],
    "the rule 'r' looks at the finally node 'after': rules do not run after the end": [
        rule("r", "after", Retry())
    ],
    "the rule 'r' has no actions: add one to `then`": [rule("r", "work")],
    "the rule 'r', goto, leads to an unknown node 'nowhere'": [
        rule("r", "work", GoTo(node="nowhere"))
    ],
    "the rule 'r', goto, leads to the finally node 'after', which runs only after the end": [
        rule("r", "work", GoTo(node="after"))
    ],
    "the rule 'r', parallel, leads to an unknown node 'nowhere'": [
        rule("r", "work", Parallel(nodes=("next", "nowhere")))
    ],
    "the rule 'r', parallel, names no nodes: add some": [rule("r", "work", Parallel(nodes=()))],
    "the rule 'r', parallel, names a node twice: remove one": [
        rule("r", "work", Parallel(nodes=("next", "next")))
    ],
    "the rule 'r' changes facts, but no rule has CLIPS text: only such rules read facts": [
        rule("r", "work", Assert(fact="(seen)"))
    ],
    "the rule 'r' has 2 interrupts: a rule may have one": [rule("r", "work", ask("r"), ask("r"))],
    "the rule 'asked' has the name of the interrupt node 'asked': rename one": [
        rule("asked", "work", ask("asked"))
    ],
    "the rule 'r' has no prompt: describe the decision": [rule("r", "work", ask("r", prompt=" "))],
    "the rule 'r' has a timeout of 0 s: it must be positive and finite": [
        rule("r", "work", ask("r", timeout=0))
    ],
    "the rule 'r' has on_timeout but no timeout: add a timeout": [
        rule("r", "work", ask("r", on_timeout=Default(answer=1)))
    ],
    "the rule 'r', on_timeout, leads to an unknown node 'nowhere'": [
        rule("r", "work", ask("r", timeout=1, on_timeout=GoTo(node="nowhere")))
    ],
    "the rule 'r' has answer_to='y', which is not a field of the state": [
        rule("r", "work", ask("r", answer_to="y"))
    ],
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_of_a_rule_is_told_and_nothing_else_is(fault: str) -> None:
    spec = graph(
        "work",
        "next",
        "other",
        gate("asked"),
        ways=[(START, "work"), ("work", "next"), ("next", "other"), ("other", "asked")],
        finally_=["after"],
    )

    assert faults_of(replace(spec, rules=tuple(FAULTY[fault]))) == (fault,)


def test_a_gate_that_nobody_gave_a_prompt_is_a_fault() -> None:
    spec = GraphSpec(name="g", nodes={"ask": gate("ask", prompt="")}, edges=(edge(START, "ask"),))

    assert faults_of(spec) == ("the interrupt 'ask' has no prompt: describe the decision",)


def test_a_rule_that_changes_facts_beside_asking_decides_nothing_by_that() -> None:
    facts = rule("facts", "work", Assert(fact="(a)"), Retract(fact="(b)"))
    other = Rule(id="other", condition=Clips(text="(a)"), actions=(HaltRun(reason="a"),))
    run = Drive(ruled(facts, other))
    run.finish("work")

    assert after_work(run) == ["next"]
