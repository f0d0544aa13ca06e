"""Restricted gates: those that not everybody with the capability may approve, or not alone.

After a change of course such a gate is asked again, even if its answer is used up. Any other gate could
have been approved by the editor, who has every capability, so the editor may change what it showed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from core_gated import APPROVER, BOSS, CLERK, OPERATOR, Gated, approving, refund, remark
from core_renamed import migrate

from abeyance import projections
from abeyance.core.json import Json
from abeyance.core.spec import AskHuman, FunctionNode
from abeyance.core.terms import Quorum, Terms

ONE = Quorum(count=1)
RESTRICTED = [
    Terms(quorum=ONE),
    Terms(not_by=("@starter",)),
    Terms(assignees=("approver",), assignees_only=True),
]
OPEN_TO_ALL = [None, Terms(assignees=("approver",), priority="high")]
LARGE: dict[str, Json] = {"amount": 999}


def allowed(terms: Terms | None, *, on_error: Any = None) -> Gated:
    """Start a run whose payment has begun after an approval by these terms."""
    about = {} if on_error is None else {"on_error": on_error}
    pay = FunctionNode(id="pay", **about)
    run = Gated(
        refund(approving(terms=terms, schema={"type": "boolean"}), pay, "notify", after=["pay"])
    )
    run.says(APPROVER, "ask")
    return run


def edited_in_a_pause(terms: Terms | None, **patch: Json) -> Gated:
    run = allowed(terms)
    run.pause(mode="now")
    run.stopped("pay")
    run.edit(BOSS, **patch)
    run.resume()
    return run


def edited_after_it_failed(terms: Terms | None, **patch: Json) -> Gated:
    run = allowed(terms, on_error=AskHuman())
    run.fail("pay")
    run.edit(BOSS, **patch)
    run.says(BOSS, "error", {"action": "retry"})
    return run


def skipped_with_a_patch(terms: Terms | None, **patch: Json) -> Gated:
    run = allowed(terms, on_error=AskHuman())
    run.fail("pay")
    run.says(BOSS, "error", {"action": "skip", "patch": patch})
    run.says(CLERK, "interrupt_after", None)
    return run


def retried_with_a_patch(terms: Terms | None, **patch: Json) -> Gated:
    run = allowed(terms)
    run.fail("pay")
    run.start_again(BOSS, patch=patch)
    return run


def edited_while_looking(terms: Terms | None, **patch: Json) -> Gated:
    run = allowed(terms)
    run.finish("pay")
    version = run.open("interrupt_after").payload["version"]
    run.says(BOSS, "interrupt_after", {"values": patch, "version": version})
    return run


DOORS = [
    edited_in_a_pause,
    edited_after_it_failed,
    skipped_with_a_patch,
    retried_with_a_patch,
    edited_while_looking,
]


@pytest.mark.parametrize("edited", DOORS)
@pytest.mark.parametrize("terms", RESTRICTED)
def test_a_changed_value_behind_a_restricted_gate_is_shown_again(
    edited: Callable[..., Gated], terms: Terms
) -> None:
    run = edited(terms, **LARGE)

    assert (run.reopened, run.running) == (["ask"], [])
    assert run.open("ask").prompt == "Refund 999 for A-7?"
    (warning,) = projections.question(run.state, run.open("ask")).warnings
    assert "after a new answer it begins once more" in warning


@pytest.mark.parametrize("edited", ["edit", "migrate"])
@pytest.mark.parametrize(
    ("terms", "between"), [(None, ()), *((each, ("pay",)) for each in RESTRICTED)]
)
def test_a_question_that_an_answer_led_to_gives_way_when_that_is_asked_again(
    edited: str, terms: Terms | None, between: tuple[str, ...]
) -> None:
    gate = approving(terms=terms, schema={"type": "boolean"})
    run = Gated(refund(gate, *between, remark(field=None)))
    run.says(APPROVER, "ask")
    for node in between:
        run.finish(node)
    if edited == "edit":
        run.edit(BOSS, **LARGE)
    else:
        migrate(run, run.state.spec, patch=LARGE, principal=BOSS)

    assert run.reopened == ["ask"]
    assert [each.prompt for each in run.state.ledger.open.values()] == ["Refund 999 for A-7?"]
    run.says(APPROVER, "ask")
    for node in between:
        run.finish(node)
    run.says(CLERK, "remark")
    assert run.status == "completed"


def test_a_gate_reopened_before_code_began_has_no_warning() -> None:
    run = Gated(refund(approving(terms=RESTRICTED[0], schema={"type": "boolean"}), "pay"))
    run.pause()
    run.says(APPROVER, "ask")
    run.edit(BOSS, **LARGE)
    run.resume()

    assert (run.reopened, run.open("ask").repeats) == (["ask"], False)


def test_a_second_change_before_the_code_begins_again_is_warned_of_too() -> None:
    run = edited_in_a_pause(RESTRICTED[0], **LARGE)
    run.edit(BOSS, amount=700)

    assert run.open("ask").repeats
    run.says(APPROVER, "ask")
    assert run.ran_with("pay", "amount")[-1] == (700,)


@pytest.mark.parametrize("edited", DOORS)
@pytest.mark.parametrize("terms", OPEN_TO_ALL)
def test_an_edit_behind_an_unrestricted_used_up_gate_asks_nobody(
    edited: Callable[..., Gated], terms: Terms | None
) -> None:
    assert edited(terms, **LARGE).reopened == []


@pytest.mark.parametrize("edited", DOORS)
@pytest.mark.parametrize("patch", [{"note": "other"}, {"note": "other", "order_id": "A-7"}])
def test_edits_of_unshown_or_unchanged_values_reopen_no_restricted_gate(
    edited: Callable[..., Gated], patch: dict[str, Json]
) -> None:
    assert edited(RESTRICTED[0], **patch).reopened == []


@pytest.mark.parametrize("terms", RESTRICTED)
@pytest.mark.parametrize("begun", [False, True])
def test_a_restricted_gate_without_a_capability_is_reopened_too(
    terms: Terms, *, begun: bool
) -> None:
    ask = approving(terms=terms, capability=None, schema={"type": "boolean"})
    run = Gated(refund(ask, "pay"))
    if begun:
        run.says(APPROVER, "ask")
    run.pause(mode="now")
    if begun:
        run.stopped("pay")
    else:
        run.says(APPROVER, "ask")
    run.edit(OPERATOR, amount=999)
    run.resume()
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")

    assert run.ran_with("pay", "amount")[-1] == (999,)
