"""Units of several processes: each of them asks, and every answer re-enters the unit."""

from __future__ import annotations

from typing import Any

from core_drive import Drive, asked, at, chain
from core_rules import GO, ask, rule, ruled

from abeyance.core.ledger import interrupt_id
from abeyance.core.outcome import Asked
from abeyance.core.spec import AskHuman, FunctionNode

A = "graph:g;node:a"


def asking(*questions: str | Asked, **fields: Any) -> Drive:
    """`a` has asked; `b` comes after it."""
    run = Drive(chain("a", "b"))
    run.ask("a", *questions, **fields)
    return run


# units of several processes


def composite() -> Drive:
    return asking(asked("ok", "p1"), asked("ok", "p2"), composite=True, reason="two checks")


def test_a_unit_of_several_processes_is_the_parent_of_what_is_asked_in_it() -> None:
    run = composite()
    one, two = run.state.ledger.open.values()

    (parent,) = one.parents
    assert two.parents == (parent,)
    assert (parent.address, parent.reason) == (A, "two checks")
    assert parent.id == interrupt_id("r", A, "")
    refusal = run.refused_response({parent.id: 1})
    assert refusal.code == "not_root_cause"
    assert refusal.details == {"interrupt_id": parent.id, "root_causes": [one.id, two.id]}
    assert one.id in refusal.message


def test_every_answer_re_enters_a_unit_of_several_processes_and_the_rest_stays_open() -> None:
    run = composite()
    two = list(run.state.ledger.open)[1]
    run.answer("ok", "yes")
    assert (run.status, run.running) == ("running", ["a"])
    assert run.orders("a")[-1].own_answers == {"p1/ok": "yes"}
    assert list(run.state.ledger.open) == [two]

    run.wait(5)
    run.ask("a", asked("ok", "p2"), composite=True)
    assert list(run.state.ledger.open) == [two]
    assert run.open("ok").created_at == at(0)
    assert run.status == "awaiting-input"
    run.answer("ok", "no")
    assert run.orders("a")[-1].own_answers == {"p1/ok": "yes", "p2/ok": "no"}
    run.finish("a")
    assert run.running == ["b"]


def test_an_answer_that_comes_while_the_code_runs_re_enters_it_afterwards() -> None:
    processes = [asked("ok", f"p{number}") for number in (1, 2, 3)]
    run = asking(*processes, composite=True)
    run.answer("ok", 1)
    run.answer("ok", 2)
    assert len(run.orders("a")) == 2

    run.ask("a", *processes[1:], composite=True)
    assert (run.running, run.asking) == (["a"], [("ok", f"{A};process:p3")])
    assert run.orders("a")[-1].own_answers == {"p1/ok": 1, "p2/ok": 2}
    run.ask("a", processes[2], composite=True)
    assert run.running == []


def test_what_the_code_asks_no_more_is_superseded() -> None:
    run = composite()
    run.answer("ok", 1)
    still = run.open("ok")
    run.ask("a", asked("else", "p3"), composite=True)

    assert run.asking == [("else", f"{A};process:p3")]
    assert run.settled("ok").status == "superseded"
    refusal = run.refused_response({still.id: 1})
    assert (refusal.code, refusal.details["status"]) == ("withdrawn", "superseded")
    assert "(the visit asks this no more)" in refusal.message


def test_a_part_that_shows_something_else_stays_open_and_is_answered_as_it_is_shown() -> None:
    run = composite()
    run.answer("ok", 1)
    before = run.open("ok")
    run.ask("a", asked("ok", "p2", prompt="Still?"), composite=True)
    shown = run.open("ok")
    assert (shown.id, shown.prompt) == (before.id, "Still?")
    assert run.refused_response({shown.id: 2}, digests={shown.id: before.digest}).details == {
        "interrupt_id": shown.id,
        "digest": shown.digest,
    }
    run.answer("ok", 2)
    run.ask("a", asked("ok", "p2", prompt="Still?"), composite=True)

    assert "raises the interrupt 'ok' again after its answer" in run.error[1]


def test_what_was_superseded_and_is_asked_again_has_another_id() -> None:
    run = composite()
    run.answer("ok", 1)
    first = run.open("ok").id
    run.ask("a", asked("else", "p3"), composite=True)
    run.answer("else", 2)
    run.ask("a", asked("ok", "p2"), composite=True)

    assert run.open("ok").id != first
    assert run.settled("ok").status == "superseded"


def test_a_visit_that_finishes_leaves_no_question_open() -> None:
    run = composite()
    run.answer("ok", 1)
    open_ = run.open("ok").id
    run.finish("a")

    assert (run.running, run.asking) == (["b"], [])
    assert run.settled("ok").status == "superseded"
    assert run.refused_response({open_: 1}).code == "withdrawn"


def test_a_failing_visit_takes_its_questions_with_it() -> None:
    run = composite()
    run.answer("ok", 1)
    run.fail("a")

    assert run.status == "failed"
    assert [entry.status for entry in run.state.ledger.settled.values()] == [
        "answered",
        "cancelled",
    ]


def test_a_question_that_is_asked_again_after_a_retry_has_an_id_of_its_own() -> None:
    run = Drive(chain(FunctionNode(id="a", on_error=AskHuman())))
    run.ask("a", asked("ok", "p1"), asked("ok", "p2"), composite=True)
    run.answer("ok", 1)
    first = run.open("ok").id
    run.fail("a")
    assert [name for name, _ in run.asking] == ["error"]
    run.answer("error", {"action": "retry"})
    assert run.orders("a")[-1].own_answers == {"p1/ok": 1}
    run.ask("a", asked("ok", "p2"), composite=True)

    assert run.open("ok").id != first
    assert run.refused_response({first: 1}).code == "withdrawn"
    run.answer("ok", 2)
    assert run.orders("a")[-1].own_answers == {"p1/ok": 1, "p2/ok": 2}


def test_code_asks_nothing_under_the_name_of_a_rule_that_follows_it() -> None:
    run = Drive(ruled(rule("sure", "work", ask("sure"), GO)))
    run.ask("work", "sure")
    run.stopped("idle")

    code, message, address = run.error
    assert (code, address) == ("node_failed", "graph:g;node:work")
    assert "asks 'sure', which is the name of a rule" in message
