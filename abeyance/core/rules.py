"""What a graph's rules decide after a visit: at most one thing, and what people are asked before it.

All rules that look at the node are held against the merged values. Of those that fire, every question
is asked: to ask one and forget the other would open a gate that somebody put there. The rest is one
decision, by rank: halt before retry before goto before parallel, and of equals the one that was declared
first. The order is Stargraph's; that its rules may really ask is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from abeyance.core.json import Json, canonical
from abeyance.core.outcome import key_of
from abeyance.core.spec import (
    Ask,
    Assert,
    Clips,
    Decision,
    GoTo,
    GraphSpec,
    HaltRun,
    InterruptSpec,
    Matches,
    Parallel,
    Retract,
    Retry,
    Rule,
)
from abeyance.core.template import look_up

_RANK: Final = {HaltRun: 0, Retry: 1, GoTo: 2, Parallel: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules say: the questions first, and then the decision; None leaves it to the edges."""

    questions: tuple[InterruptSpec, ...] = ()
    decision: Decision | None = None


def evaluate(
    spec: GraphSpec, node: str, values: Mapping[str, Json], fired: tuple[str, ...] = ()
) -> Verdict:
    """What the rules say after a visit of `node` that left these values.

    `fired` are the rules with CLIPS text that fired, as was found out where code runs.
    """
    questions: list[InterruptSpec] = []
    decisions: list[Decision] = []
    for rule in spec.rules_on(node):
        for action in rule.actions if _fires(rule, values, fired) else ():
            match action:
                case Ask(question=question):
                    questions.append(question)
                case Assert() | Retract():
                    pass
                case _:
                    decisions.append(action)
    decision = min(decisions, key=lambda each: _RANK[type(each)], default=None)
    return Verdict(questions=tuple(questions), decision=decision)


def answers_to(
    spec: GraphSpec, node: str, answers: Mapping[str, Json]
) -> Iterator[dict[str, Json]]:
    """The patches that the answers to the rules' questions after a visit of `node` make."""
    for rule in spec.rules_on(node):
        for action in rule.actions:
            match action:
                case Ask(answer_to=str() as field) if key_of("rule", rule.id) in answers:
                    yield {field: answers[key_of("rule", rule.id)]}
                case _:
                    pass


def hold(equals: Mapping[str, Json], values: Mapping[str, Json]) -> bool:
    """Whether every path (dots walk mappings) of the values has its value; a missing one has null."""
    return all(
        canonical(look_up(values, path)) == canonical(wanted) for path, wanted in equals.items()
    )


def _fires(rule: Rule, values: Mapping[str, Json], fired: tuple[str, ...]) -> bool:
    match rule.condition:
        case Matches(equals=equals):
            return hold(equals, values)
        case Clips():
            return rule.id in fired
        case _:
            assert_never(rule.condition)
