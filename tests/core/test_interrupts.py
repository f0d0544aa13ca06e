"""Questions: their content and ids, their change with the values that they show, and their records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_agents import address_of, asks, call, question, reviewing, turn
from core_drive import ADA, ROOT, Drive, Ways, asked, at, chain, edge, gate, graph, nested
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, remark
from core_renamed import migrate

from abeyance.core import events
from abeyance.core.events import Responded
from abeyance.core.json import Json, rfc3339, sha256
from abeyance.core.ledger import Parent, content_digest, digest_of, interrupt_id
from abeyance.core.policy import Principal
from abeyance.core.replies import check_answers
from abeyance.core.spec import START, Default, GraphSpec, InterruptSpec
from abeyance.core.state import Limits
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code


def shown(**about: Any) -> GraphSpec:
    return chain(gate("ask", prompt="Pay {x}?", **about))


@pytest.mark.parametrize("terms", [None, Terms(priority="high")])
def test_a_changed_question_keeps_its_reassigned_assignees(terms: Terms | None) -> None:
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


def test_a_question_whose_answer_could_not_be_read_says_why_as_text() -> None:
    run = Drive(chain("work"))
    why = "'x' is not a number"
    run.ask("work", replace(asked("amount", prompt="How much?"), misfit=why))

    entry = run.open("amount")
    assert entry.prompt == f"How much? (Asked again, because the answer does not fit: {why})"
    ((start, end),) = entry.prompt_values
    assert entry.prompt[start:end] == entry.prompt.removeprefix("How much?")


def asking_for(**options: Any) -> Drive:
    """Start a run that waits for the answer to `ask`, and then for nothing."""
    return Drive(chain(gate("ask", **options)))


def test_a_question_is_filled_once_when_it_opens() -> None:
    run = Drive(
        graph(
            gate("ask", prompt="Pay {x}?", reason={"why": "{x} and {y}"}),
            "work",
            ways=[(START, "ask"), (START, "work")],
        ),
        values={"x": 100},
    )
    shown = run.open("ask")
    run.finish("work", {"x": 200})

    assert run.open("ask") == shown
    assert (shown.prompt, shown.reason) == ("Pay 100?", {"why": "100 and {y}"})
    question = InterruptSpec(name="ask", prompt="Pay 100?", reason=shown.reason)
    assert shown.digest == digest_of(shown.address, question)


def test_the_event_of_an_opened_question_has_its_capability_and_deadline() -> None:
    run = asking_for(capability="boss", timeout=60, on_timeout=Default(answer="no"))
    opened = run.open("ask")

    (fact,) = run.facts("interrupt.opened")
    assert fact.address == opened.address == opened.visit == "graph:g;node:ask"
    assert fact.data == {
        "id": opened.id,
        "name": "ask",
        "kind": "question",
        "capability": "boss",
        "deadline": rfc3339(at(60)),
    }
    assert (opened.created_at, opened.deadline, opened.number) == (at(0), at(60), fact.number)
    assert (opened.kind, opened.scope) == ("question", "graph:g")
    assert fact.audit is not None
    assert (fact.audit["shown"]["digest"], fact.audit["shown"]["default"]) == (opened.digest, "no")


@pytest.mark.parametrize(
    ("about", "digits"),
    [
        ({}, "69200b8792390e72"),
        ({"ordinal": 1, "kind": "rule"}, "69200b8792390e72"),
        ({"ordinal": 2}, "07cce0fa84ccfa35"),
        ({"kind": "approval"}, "3f45d169dc488e4d"),
        ({"salt": "s"}, "80e1a05cb9dced03"),
    ],
)
def test_an_id_is_the_same_in_every_version(about: dict[str, Any], digits: str) -> None:
    assert interrupt_id("r", "graph:g;node:ask", "ask", **about) == f"r.{digits}"


@pytest.mark.parametrize(
    ("more", "digest", "content"),
    [
        ({}, "39f7031e0cf9f046", "5c194004b647a51e"),
        (
            {
                "preview": "p",
                "requested_capability": "pay",
                "terms": Terms(quorum=Quorum(count=2), not_by=("@starter",), remind=(60.0,)),
            },
            "258e944cde63ec73",
            "c4561a027681703b",
        ),
    ],
)
def test_the_digests_of_questions_stay_the_same_between_releases(
    more: dict[str, Any], digest: str, content: str
) -> None:
    question = InterruptSpec(name="ask", prompt="Go on?", **more)
    assert digest_of("graph:g;node:ask", question).startswith(f"sha256:{digest}")
    assert content_digest(question).startswith(f"sha256:{content}")


def test_a_prompt_that_shows_a_document_is_cut() -> None:
    run = Drive(chain(gate("ask", prompt="{x}")), values={"x": "y" * 20_000})
    assert len(run.open("ask").prompt) == 10_000

    run.answer("ask")
    assert run.settled("ask").prompt == "y" * 200


@pytest.mark.parametrize(("length", "kept"), [(510, "y" * 510), (511, None)])
def test_a_long_answer_is_kept_as_its_hash_only(length: int, kept: Json) -> None:
    run = asking_for()
    id_ = run.open("ask").id
    run.answer("ask", "y" * length)

    assert run.settled("ask").answer == kept
    assert run.settled("ask").answer_sha256 == sha256("y" * length)
    (receipt,) = check_answers(
        run.state.ledger, Responded(now=run.now, **run.response({id_: "y" * length}))
    ).values()
    assert receipt.replayed


def test_only_the_latest_settled_interrupts_are_remembered() -> None:
    run = Drive(chain(gate("one"), gate("two"), gate("three")), limits=Limits(settled_kept=2))
    ids = []
    for name in ("one", "two", "three"):
        ids.append(run.open(name).id)
        run.answer(name)

    assert list(run.state.ledger.settled) == ids[1:]
    refusal = run.refused_response({ids[0]: None})
    assert refusal.code is Code.UNKNOWN_INTERRUPT
