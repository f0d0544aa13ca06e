"""What becomes of an open question when what it shows changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from core_agents import address_of, asks, call, question, reviewing, turn
from core_drive import ADA, ROOT, Drive, Ways, asked, chain, edge, gate, graph, nested
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, remark
from core_renamed import migrate

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.ledger import Parent, interrupt_id
from abeyance.core.policy import Principal
from abeyance.core.spec import START, GoTo, GraphSpec
from abeyance.core.terms import Quorum, Terms


def shown(**about: Any) -> GraphSpec:
    return chain(gate("ask", prompt="Pay {x}?", **about))


@pytest.mark.parametrize("terms", [None, Terms(priority="high")])
def test_who_was_asked_in_place_of_others_is_asked_about_a_change_too(terms: Terms | None) -> None:
    run = Drive(shown(terms=terms), values={"x": 1})
    run.feed(events.Reassigned, principal=ROOT, interrupt_id=run.open("ask").id, to=("bob",))
    run.edit(ROOT, x=2)

    assert run.open("ask").terms == replace(terms or Terms(), assignees=("bob",))


def test_a_question_that_changes_after_a_migration_is_for_whom_the_new_graph_says() -> None:
    run = Drive(shown(terms=Terms(assignees=("ann",))), values={"x": 1})
    migrate(run, shown(terms=Terms(assignees=("bob",))), patch={}, renames={})
    run.edit(ROOT, x=2)

    assert run.open("ask").terms == Terms(assignees=("bob",))


def test_an_answer_to_what_was_edited_covers_what_it_showed_then() -> None:
    ways: Ways = [(START, "ask"), (START, "wait"), ("wait", "other"), edge(("ask", "other"), "pay")]
    nodes = (approving(), remark("wait", field=None), "other", "pay")
    run = Gated(graph(*nodes, ways=ways, fields=FIELDS))
    run.edit(BOSS, amount=300)
    run.says(APPROVER, "ask")
    run.says(CLERK, "wait")
    run.finish("other", {"amount": 999})

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_an_edit_changes_every_question_that_shows_it_and_keeps_what_they_ask_for() -> None:
    inner = chain(gate("inner", prompt="Pay {x}?"), name="inner")
    spec = graph(
        *(nested("sub", inner), "code", gate("ask", prompt="Pay {x}?", capability="pay:{x}")),
        ways=[(START, "sub"), (START, "code"), (START, "ask")],
        before=["code"],
    )
    run = Drive(spec, values={"x": 1})
    run.edit(ROOT, x=2)

    assert [(each.name, each.prompt[:6]) for each in run.state.ledger.open.values()] == [
        ("interrupt_before", "Before"),
        ("ask", "Pay 2?"),
        ("inner", "Pay 1?"),
    ]
    assert run.open("ask").requested_capability == "pay:1"


def test_a_long_question_of_code_is_cut_also_when_it_is_asked_otherwise() -> None:
    run = Drive(chain("a"))
    run.ask("a", asked("one", "p"), asked("two", "p", prompt="x" * 20_000), composite=True)
    assert run.open("two").prompt == "x" * 10_000
    run.answer("one")
    run.ask("a", asked("two", "p", prompt="y" * 20_000), composite=True)

    assert run.open("two").prompt == "y" * 10_000


def test_ids_follow_from_the_run_its_salt_and_what_is_asked_where() -> None:
    run = reviewing()
    run.state = replace(run.state, salt="s")
    turn(run, call("c1", "pay", question("ok")))

    entry = run.open("ok")
    assert entry.id == interrupt_id("r", entry.address, "ok", 1, "approval", salt="s")
    around = "graph:g;node:review"
    assert entry.parents == (Parent(id=interrupt_id("r", around, ""), address=around),)


def test_votes_that_had_changed_a_call_do_not_change_another_that_is_asked_about_in_its_place() -> (
    None
):
    def approval(amount: int) -> dict[str, Json]:
        return {"reason": {"tool": "pay", "arguments": {"amount": amount}}}

    terms = Terms(quorum=Quorum(count=2))
    run = reviewing()
    turn(run, call("c1"))
    asks(
        run,
        "c1",
        question("ok", process="p", terms=terms, **approval(1)),
        question("also", "question", process="q"),
        composite=True,
    )
    run.answer("ok", {"approved": True, "arguments": {"amount": 2}})
    run.answer("also", "yes")
    asks(run, "c1", question("ok", process="p", terms=terms, **approval(3)), composite=True)
    assert run.open("ok").votes == ()
    for principal in (ADA, Principal(subject="bob")):
        run.answer("ok", {"approved": True}, principal=principal)

    answers = run.state.visits[address_of(run, "c1")].questions.answers
    assert answers["/approval/p/ok"] == {"approved": True}


def test_the_deadline_of_what_an_agent_asks_leads_to_no_node_of_it() -> None:
    run = reviewing()
    turn(run, call("c1", "pay", question("ok")))
    about = {"principal": ROOT, "interrupt_id": run.open("ok").id, "moves": True}
    later = {"deadline": run.now + timedelta(days=1), "on_timeout": GoTo(node="delete")}
    refusal = run.refused(events.DeadlineEdited, **about, **later)

    assert refusal.code == "unknown_node"


def test_a_question_whose_answer_could_not_be_read_says_why_as_text() -> None:
    run = Drive(chain("work"))
    why = "'x' is no number"
    run.ask("work", replace(asked("amount", prompt="How much?"), misfit=why))

    entry = run.open("amount")
    assert entry.prompt == f"How much? (Asked again, because the answer does not fit: {why})"
    ((start, end),) = entry.prompt_values
    assert entry.prompt[start:end] == entry.prompt.removeprefix("How much?")
