"""The states of a visit, and the one table of what may follow what."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from core_drive import Drive, gate, graph

from abeyance import core
from abeyance.core import events
from abeyance.core.spec import START
from abeyance.core.visit import (
    TRANSITIONS,
    IllegalTransitionError,
    Nested,
    Ready,
    Running,
    Transition,
    Unroutable,
    Visit,
    VisitState,
    Waiting,
    transition,
)

STATES: list[VisitState] = [Ready(), Running(), Waiting(stage="body"), Nested(), Unroutable()]
NAMES: tuple[Transition, ...] = get_args(Transition)


def visit_in(state: VisitState) -> Visit:
    return Visit(address="graph:g;node:a", scope="graph:g", node="a", state=state)


def test_every_state_and_every_transition_is_in_the_table() -> None:
    assert [type(state) for state in STATES] == list(get_args(VisitState))
    assert {name for _, name in TRANSITIONS} == set(NAMES)
    assert {kind for kind, _ in TRANSITIONS} == {type(state) for state in STATES}


@pytest.mark.parametrize(("before", "name", "after"), list(product(STATES, NAMES, STATES)))
def test_a_visit_changes_its_state_as_the_table_says_and_in_no_other_way(
    before: VisitState, name: Transition, after: VisitState
) -> None:
    visit = visit_in(before)
    if TRANSITIONS.get((type(before), name)) is type(after):
        transition(visit, name, after)
        assert visit.state is after
    else:
        with pytest.raises(IllegalTransitionError, match=f"graph:g;node:a cannot '{name}'"):
            transition(visit, name, after)
        assert visit.state is before


def test_a_run_with_a_question_waits_for_people_only_once_nothing_else_can_go_on() -> None:
    run = Drive(graph("a", gate("ask"), ways=[(START, "a"), (START, "ask")]))
    run.retry("a", 5)
    assert (run.ready, run.status) == (["a"], "running")
    run.tick(5)
    run.feed(events.RotationDue, hard=True)
    run.stopped("a")
    assert (run.ready, run.status) == (["a"], "running")
    run.feed(events.Restored)
    run.finish("a")

    assert run.status == "awaiting-input"


def test_no_other_module_of_the_core_sets_the_state_of_a_visit() -> None:
    setters = {
        path.name
        for path in Path(core.__path__[0]).glob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Attribute)
        and each.attr == "state"
        and isinstance(each.ctx, ast.Store)
        and ast.unparse(each.value) != "self"
    }

    assert setters == {"visit.py"}
