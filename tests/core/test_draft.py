"""Behaviour of `core.draft`: a copy of a run is changed, and the run before stays as it was."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import FrozenInstanceError

import pytest
from core_drive import Drive, at, chain, gate, graph
from core_fans import fan, sent

from abeyance.core.copying import is_working
from abeyance.core.spec import START
from abeyance.core.state import Limits
from abeyance.core.visit import FanOutBranch
from abeyance.core.working_state import WorkingState


def test_a_draft_in_which_nothing_is_changed_is_the_run_before() -> None:
    state = Drive(chain("a")).state
    draft = WorkingState(state, at(1))
    draft.visit("graph:g;node:a")

    assert draft.frozen() is state


def test_what_is_changed_is_changed_in_a_copy_and_the_rest_is_shared() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), (START, "b")]))
    before = deepcopy(run.state)
    first, second = run.state.visits
    draft = WorkingState(run.state, at(1))
    draft.visit(first).activations = 7
    draft.counters.visits += 1
    draft.state.rotation = "soft"
    after = draft.frozen()

    assert run.state == before
    assert (after.visits[first].activations, after.rotation) == (7, "soft")
    assert after.counters.visits == before.counters.visits + 1
    assert after.visits[second] is run.state.visits[second]
    assert after.scopes is run.state.scopes


def test_a_visit_is_copied_once_and_everybody_has_the_same_copy() -> None:
    run = Drive(chain("a"))
    (address,) = run.state.visits
    draft = WorkingState(run.state, at(1))
    visit = draft.visit(address)
    draft.drop_visit(address)
    draft.put_back(visit)

    assert draft.visit(address) is visit is draft.state.visits[address]


def test_nobody_changes_a_run_outside_of_a_draft() -> None:
    run = Drive(chain("a"))
    (address,) = run.state.visits
    draft = WorkingState(run.state, at(1))
    draft.visit(address).activations = 7
    after = draft.frozen()

    for state in (run.state, after):
        with pytest.raises(FrozenInstanceError):
            state.finished = True
        with pytest.raises(FrozenInstanceError):
            state.visits[address].activations = 8


def test_of_a_run_with_many_visits_nothing_can_be_changed_either() -> None:
    names = [f"n{number}" for number in range(100)]
    ways = [(START, name) for name in names]
    state = Drive(graph(*names, ways=ways), limits=Limits(max_parallel_visits=100)).state

    assert len(state.visits) == 100
    parts = (state, state.counters, *state.scopes.values(), *state.visits.values())
    assert not any(map(is_working, parts))


def test_a_snapshot_of_a_draft_stays_as_it_was_while_the_draft_goes_on() -> None:
    run = sent(fan(gate("one")), [1, 2])
    (scope,), (first, second) = run.state.scopes.values(), run.state.ledger.open.values()
    (sender,) = scope.fans
    members = [FanOutBranch(fan=sender, index=index) for index in (0, 1)]
    draft = WorkingState(run.state, at(1))
    draft.item(scope.address, members[1]).skipped = True
    draft.counters.visits = 7
    draft.open.pop(first.id)
    draft.settled[first.id] = first
    kept = draft.snapshot()
    draft.item(scope.address, members[0]).skipped = True
    draft.item(scope.address, members[1]).skipped = False
    draft.counters.visits = 8
    draft.open.pop(second.id)
    draft.settled[second.id] = second
    draft.frozen()

    items = kept.scopes[scope.address].fans[sender].items
    assert [item.skipped for item in items] == [False, True]
    assert (kept.counters.visits, kept.ledger.open, kept.ledger.settled) == (
        7,
        {second.id: second},
        {first.id: first},
    )
    with pytest.raises(FrozenInstanceError):
        items[1].skipped = False


def test_one_item_of_a_fan_out_is_copied_and_the_others_are_not() -> None:
    run = sent(fan(), [1, 2, 3])
    (scope,) = run.state.scopes.values()
    (sender,) = scope.fans
    draft = WorkingState(run.state, at(1))
    draft.item(scope.address, FanOutBranch(fan=sender, index=1)).left_fan_out = True
    items = draft.frozen().scopes[scope.address].fans[sender].items

    assert [item.left_fan_out for item in items] == [False, True, False]
    assert [item.left_fan_out for item in scope.fans[sender].items] == [False, False, False]
    assert items[0] is scope.fans[sender].items[0]


def test_a_refusal_leaves_nothing_behind() -> None:
    run = Drive(chain(gate("ask")))
    draft = WorkingState(run.state, at(1))
    draft.open.clear()

    assert [entry.name for entry in run.state.ledger.open.values()] == ["ask"]


def test_a_visit_that_waits_for_its_place_is_looked_at_and_stays_as_it_was() -> None:
    run = Drive(
        graph("a", "b", ways=[(START, "a"), (START, "b")]), limits=Limits(max_parallel_visits=1)
    )
    before = run.state
    run.tick(1)

    assert (run.ready, run.state is before) == (["b"], True)
