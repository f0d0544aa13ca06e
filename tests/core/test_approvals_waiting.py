"""Nothing is applied between an answer and what it allows: not by what waits, and not by going back."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import agent_node
from core_drive import Drive, asked, chain, gate, graph, nested
from core_gated import APPROVER, BOSS, CLERK, SHOWN, Gated, approving, forked, refund, remark
from core_rules import ask, rule

from abeyance.core import events, machine
from abeyance.core.json import Json
from abeyance.core.spec import START, FunctionNode, GraphSpec
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal

# directives that would wait behind a question


def update(target: str) -> events.Message:
    return events.Message(
        message_id="m",
        text="",
        sender="boss",
        capabilities=("*",),
        action="update_state",
        params={"patch": {"x": 1}},
        target=target,
    )


def waiting_for(spec: GraphSpec, target: str) -> str:
    """Why a directive for a target is refused in a run that has just begun, or that it is not."""
    run = Drive(spec)
    try:
        machine.check(run.state, events.MessageSent(now=run.now, message=update(target)))
    except Refusal as refusal:
        return str(refusal.code)
    return "accepted"


def test_nothing_waits_behind_a_question() -> None:
    inner = chain("deep", name="inner")
    spec = chain("assess", "price", gate("ask"), "pay", nested("sub", inner), gate("last"))

    assert waiting_for(spec, "assess") == "accepted"
    assert waiting_for(spec, "price") == "accepted"
    assert waiting_for(spec, "ask") == "accepted"
    assert waiting_for(spec, "pay") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "deep") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "last") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "graph:g;node:pay") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "graph:g;node:sub;graph:inner;node:deep:2") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "graph:g;node:sub;graph:inner") == Code.ACTION_NOT_ALLOWED


@pytest.mark.parametrize(
    "asks",
    [
        FunctionNode(id="ask", asks=("approve",)),
        nested("ask", chain(gate("inside"), name="inner")),
        nested("ask", chain(FunctionNode(id="inside", asks=("approve",)), name="inner")),
        nested("ask", chain("inside", name="inner"), asks=("approve",)),
    ],
)
def test_whatever_asks_is_a_question_that_nothing_waits_behind(asks: Any) -> None:
    assert waiting_for(chain("assess", asks, "pay"), "pay") == Code.ACTION_NOT_ALLOWED


def test_what_comes_after_a_question_inside_a_nested_graph_lies_behind_it() -> None:
    spec = chain("assess", nested("sub", chain("first", gate("ask"), "then", name="inner")))

    assert waiting_for(spec, "first") == "accepted"
    for target in ("then", "graph:g;node:sub;graph:inner;node:then"):
        assert waiting_for(spec, target) == Code.ACTION_NOT_ALLOWED


def test_what_is_nested_twice_lies_behind_a_question_too() -> None:
    inner = chain("first", nested("sub", chain("deep", name="innermost")), name="inner")

    assert waiting_for(chain("assess", gate("ask"), nested("n", inner)), "deep") == (
        Code.ACTION_NOT_ALLOWED
    )
    assert waiting_for(chain("assess", nested("n", inner)), "deep") == "accepted"


def test_a_rule_that_asks_is_a_question_too() -> None:
    spec = chain("assess", "work", "pay", rules=[rule("sure", "work", ask("sure"))])

    assert waiting_for(spec, "work") == "accepted"
    assert waiting_for(spec, "pay") == Code.ACTION_NOT_ALLOWED


@pytest.mark.parametrize("target", ["inside", "pay"])
def test_a_question_that_code_has_open_is_one_too(target: str) -> None:
    run = Drive(chain("work", nested("sub", chain("inside", name="inner")), "pay"))
    run.ask("work", asked("sure"))

    sent = {"message": update(target)}
    assert run.refused(events.MessageSent, **sent).code == Code.ACTION_NOT_ALLOWED


def test_nothing_that_a_run_asks_by_itself_is_a_question_that_something_lies_behind() -> None:
    run = Drive(chain("work", "pay", before=["work"]))
    run.feed(events.MessageSent, message=update("pay"))

    assert run.rejected() == []


def test_an_agent_is_found_by_its_own_name_behind_a_question() -> None:
    spec = chain("assess", gate("ask"), agent_node("review"))

    assert waiting_for(spec, "review") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "model") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(spec, "clerk") == Code.ACTION_NOT_ALLOWED
    assert waiting_for(chain("assess", agent_node("review")), "clerk") == "accepted"


def test_what_is_there_now_is_not_waited_for() -> None:
    run = Drive(chain(gate("ask"), "pay", "book"))
    run.answer("ask")
    for target in ("pay", "graph:g;node:pay", "graph:g"):
        machine.check(run.state, events.MessageSent(now=run.now, message=update(target)))
    refusal = run.refused(events.MessageSent, message=update("book"))

    assert (refusal.code, refusal.details) == (Code.ACTION_NOT_ALLOWED, {"message_id": "m"})
    assert "'book'" in refusal.message


def test_a_node_that_was_just_left_is_not_waited_for_either() -> None:
    run = Drive(chain(gate("ask"), "pay", "book", "file"))
    run.answer("ask")
    run.finish("pay")

    machine.check(run.state, events.MessageSent(now=run.now, message=update("pay")))
    run.finish("book")
    assert run.refused(events.MessageSent, message=update("pay")).code == Code.ACTION_NOT_ALLOWED


def boss(run: Gated, action: str, text: str = "", **about: Any) -> None:
    run.send("m", text, action=action, sender="boss", capabilities=BOSS.capabilities, **about)


def test_what_waits_is_not_applied_between_an_answer_and_what_it_allows() -> None:
    run = Gated(refund(approving(), "pay", "notify"))
    run.pause()
    run.says(APPROVER, "ask")
    boss(run, "update_state", params={"patch": {"amount": 999}})
    run.resume()
    assert (run.ran_with("pay"), run.values["amount"]) == ([(250, "A-7")], 250)
    run.finish("pay")

    assert (run.reopened, run.ran_with("notify")) == ([], [(999, "A-7")])


def test_what_comes_while_somebody_is_asked_about_something_else_is_asked_about() -> None:
    run = Gated(refund(approving(), remark(field="note"), "pay"))
    run.says(APPROVER, "ask")
    boss(run, "update_state", params={"patch": {"amount": 999}})
    assert run.values["amount"] == 999
    run.says(CLERK, "remark", "fine")

    assert (run.reopened, run.open("ask").prompt) == (["ask"], "Refund 999 for A-7?")


# going back


def test_what_was_approved_is_run_again_only_together_with_its_gate() -> None:
    run = Gated(refund(approving(), "pay", remark(field=None), "notify"))
    first = run.open("ask")
    run.says(APPROVER, "ask")
    run.finish("pay", {"note": "paid"})
    boss(run, "rerun", "once more")

    assert run.open("ask").id != first.id
    assert (run.asking, run.values) == ([("ask", "graph:g;node:ask:2")], SHOWN)
    run.says(APPROVER, "ask")
    assert run.started.count("pay") == 2


@pytest.mark.parametrize("steps", [1, 2])
def test_going_back_goes_as_far_as_the_gate_at_least(steps: int) -> None:
    run = Gated(refund("assess", approving(), "pay", "book", remark(field=None)))
    run.finish("assess")
    run.says(APPROVER, "ask")
    run.finish("pay")
    run.finish("book")
    boss(run, "go_back", params={"steps": steps})

    assert (run.asking, run.started.count("assess")) == ([("ask", "graph:g;node:ask:2")], 1)


def test_one_may_go_back_farther_than_the_gate() -> None:
    run = Gated(refund("assess", approving(), "pay", remark(field=None)))
    run.finish("assess", {"amount": 300})
    run.says(APPROVER, "ask")
    run.finish("pay")
    boss(run, "go_back", params={"steps": 2})

    assert (run.running, run.values) == (["assess"], SHOWN)


def test_of_two_gates_the_later_one_is_gone_back_to() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    run = Gated(refund(audit, approving(), "pay", remark(field=None)))
    run.says(BOSS, "audit")
    run.says(APPROVER, "ask")
    run.finish("pay")
    boss(run, "rerun")
    assert run.asking == [("ask", "graph:g;node:ask:2")]
    run.says(APPROVER, "ask")

    assert run.ran_with("pay") == [(250, "A-7")] * 2


def test_a_gate_covers_a_question_behind_it_that_is_asked_again() -> None:
    run = Gated(refund(approving(), remark(), "pay", remark("last", field=None)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 250)
    run.finish("pay")
    boss(run, "go_back", params={"steps": 1})
    assert run.asking == [("remark", "graph:g;node:remark:2")]
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.started) == (["ask"], ["pay"])


def test_what_was_approved_leads_back_to_its_gate_while_somebody_looks_at_what_it_did() -> None:
    run = Gated(refund("assess", approving(), "pay", after=["pay"]))
    run.finish("assess")
    run.says(APPROVER, "ask")
    run.finish("pay")
    boss(run, "rerun")

    assert run.asking == [("ask", "graph:g;node:ask:2")]


def test_a_rule_that_asked_after_approved_code_leads_back_to_what_approved_that() -> None:
    sure = rule("sure", "work", ask("sure", capability="audit"))
    run = Gated(refund(approving(), "work", "pay", remark(field=None), rules=[sure]))
    run.says(APPROVER, "ask")
    run.finish("work")
    run.says(BOSS, "sure")
    run.finish("pay")
    boss(run, "rerun")

    assert run.asking == [("ask", "graph:g;node:ask:2")]


def test_approved_code_that_asks_itself_leads_back_to_what_approved_it() -> None:
    work = FunctionNode(id="work", asks=("audit",))
    run = Gated(refund(approving(), work, remark(field=None)))
    run.says(APPROVER, "ask")
    run.ask("work", "sure")
    run.says(BOSS, "sure")
    run.finish("work")
    boss(run, "rerun")

    assert run.asking == [("ask", "graph:g;node:ask:2")]


def test_approved_code_that_asks_anew_under_the_name_of_its_gate_leads_back_to_the_gate() -> None:
    run = Gated(refund(approving(), FunctionNode(id="work"), remark(field=None)))
    run.says(APPROVER, "ask")
    for prompt in ("This one?", "That one?"):
        run.ask("work", asked("ask", prompt=prompt))
        run.says(BOSS, "ask")
    run.finish("work")
    boss(run, "rerun")

    assert run.asking == [("ask", "graph:g;node:ask:2")]


def test_code_that_asks_itself_is_run_again_and_asks_again() -> None:
    run = Gated(refund(FunctionNode(id="work", asks=("audit",)), remark(field=None)))
    run.ask("work", "sure")
    run.says(BOSS, "sure")
    run.finish("work")
    boss(run, "rerun")

    assert (run.running, run.orders("work")[-1].own_answers) == (["work"], {})


def test_behind_a_gate_in_a_nested_graph_all_of_that_is_gone_back_to() -> None:
    sub = nested("sub", refund(approving(), name="inner"))
    run = Gated(refund(sub, "pay", remark(field=None)))
    run.says(APPROVER, "ask")
    run.finish("pay")
    boss(run, "rerun")

    assert run.asking == [("ask", "graph:g;node:sub:2;graph:inner;node:ask")]


def test_what_a_gate_around_a_nested_graph_allowed_is_not_run_again_from_in_there() -> None:
    sub = nested("sub", refund("pay", remark(field=None), name="inner"))
    run = Gated(refund(approving(), sub))
    run.says(APPROVER, "ask")
    run.finish("pay")
    boss(run, "rerun")

    assert run.rejected() == [("m", "behind_gate")]
    (fact,) = run.facts("message.rejected")
    assert str(fact.data["reason"]).startswith("'pay' lies behind the question of 'ask'")
    assert run.started.count("pay") == 1


def test_a_gate_that_the_trail_does_not_have_any_more_cannot_be_gone_back_to() -> None:
    spec = forked((approving(), "pay", remark(field=None)), ("other",))
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("other")
    run.finish("pay")
    boss(run, "rerun")

    assert run.rejected() == [("m", "behind_gate")]


# a look at the values behind a gate


def looked_at(**about: Any) -> Gated:
    run = Gated(refund(approving(), "pay", "notify", **about))
    run.says(APPROVER, "ask")
    return run


def look(run: Gated, name: str, **fields: Json) -> None:
    version = run.open(name).payload["version"]
    run.says(BOSS, name, {"values": fields, "version": version})


@pytest.mark.parametrize("where", [{"before": ["pay"]}, {"after": ["ask"]}])
@pytest.mark.parametrize("fields", [{"amount": 999}, {"note": "other"}])
def test_an_edit_behind_a_gate_has_it_asked_again(
    where: dict[str, Any], fields: dict[str, Json]
) -> None:
    run = looked_at(**where)
    (name,) = [name for name, _ in run.asking]
    look(run, name, **fields)
    assert (run.reopened, run.asking) == (["ask"], [("ask", "graph:g;node:ask:2")])
    run.says(APPROVER, "ask")
    run.says(CLERK, name, None)

    amount = fields.get("amount", 250)
    assert run.ran_with("pay") == [(amount, "A-7")]


@pytest.mark.parametrize("fields", [{}, {"amount": 250}])
def test_an_edit_that_changes_nothing_behind_a_gate_is_none(fields: dict[str, Json]) -> None:
    run = looked_at(before=["pay"])
    look(run, "interrupt_before", **fields)

    assert (run.reopened, run.ran_with("pay")) == ([], [(250, "A-7")])


def test_an_edit_after_what_the_gate_allowed_has_run_is_for_what_follows() -> None:
    run = looked_at(after=["pay"])
    run.finish("pay")
    look(run, "interrupt_after", amount=245)

    assert (run.reopened, run.ran_with("notify")) == ([], [(245, "A-7")])


def test_an_edit_in_a_nested_graph_behind_a_gate() -> None:
    sub = nested("sub", refund("pay", name="inner", before=["pay"]))
    run = Gated(refund(approving(), sub))
    run.says(APPROVER, "ask")
    look(run, "interrupt_before", amount=999)

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_a_run_that_fails_while_a_gate_is_to_be_asked_again_comes_to_its_end() -> None:
    # The token that the gate's answer had taken makes another visit, which is one too many.
    run = Drive(
        graph(
            "one",
            "two",
            "side",
            "busy",
            gate("ask", prompt="{x}", capability="approve"),
            "work",
            ways=[
                *((START, "one"), (START, "two"), (START, "side"), (START, "busy")),
                *(("one", "ask"), ("two", "ask")),
                *(("side", "work"), (("ask", "side"), "work")),
            ],
        ),
        values={"x": 1},
        limits=Limits(max_visits=2, max_parallel_visits=2),
    )
    run.finish("one")
    run.finish("two")
    run.answer("ask", principal=BOSS)
    run.answer("ask", principal=BOSS)
    run.finish("side")
    run.finish("busy", {"x": 2})

    run.stopped("work")

    assert run.error[0] == "max_visits"
