"""A new run with the past of another: nothing is done twice, and nothing counts as approved."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import call, done, gated, reviewing, said, turn
from core_drive import ADA, Drive, asked, at, chain, edge, gate, graph, nested, reader, restored

from abeyance.core import events
from abeyance.core.policy import Principal
from abeyance.core.snapshots import forked
from abeyance.core.spec import (
    END,
    START,
    Ask,
    FunctionNode,
    GraphSpec,
    InterruptNode,
    InterruptSpec,
    Matches,
    Rule,
)
from abeyance.core.terms import Terms
from abeyance.errors import Refusal

ROOT = Principal(subject="root", capabilities=("*",))
ASKS = FunctionNode(id="code", asks=("approve",))


def fork(run: Drive, back: int = 0, *, principal: Principal = ROOT) -> Drive:
    """The fork of a run, which has started from what was written down; the run is as it was."""
    written = run.state
    copy = Drive(run.state.spec)
    copy.now, copy.effects = run.now, []
    made = forked(run.state, run_id="f", salt="", back=back, now=run.now, principal=principal)
    assert restored(made) == made
    copy.state = made
    copy.feed(events.Restored)
    assert run.state is written
    return copy


def refusal(run: Drive, back: int = 0, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        fork(run, back, **fields)
    return refused.value


def test_a_fork_goes_on_from_now_and_repeats_nothing() -> None:
    run = Drive(chain("a", "b"))
    run.finish("a", {"log": ["a"]})
    copy = fork(run)

    assert (copy.state.run_id, copy.values, copy.started) == ("f", {"log": ["a"]}, ["b"])
    (fact,) = copy.facts("run.forked")
    assert (fact.number, fact.actor, fact.data) == (1, "root", {"origin": "r", "back": 0})
    copy.finish("b")
    assert (copy.status, run.status) == ("completed", "running")


def test_an_open_question_is_asked_under_another_id_with_its_whole_time() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    before = run.open("ask")
    run.wait(50)
    copy = fork(run)

    after = copy.open("ask")
    assert (after.id == before.id, after.digest) == (False, before.digest)
    assert after.id.startswith("f.")
    assert (after.created_at, after.deadline) == (at(50), at(110))
    assert [fact.data["id"] for fact in copy.facts("interrupt.opened")] == [after.id]
    copy.answer("ask")
    assert (copy.status, run.status) == ("completed", "awaiting-input")


def test_the_parents_of_a_question_are_visits_of_the_fork() -> None:
    run = Drive(chain(nested("sub", chain(gate("ask"), name="inner"))))
    copy = fork(run)

    (parent,) = copy.open("ask").parents
    assert (parent.address, parent.id.startswith("f.")) == ("graph:g;node:sub", True)


def test_a_fork_goes_back_over_visits_which_are_undone_and_run_again() -> None:
    run = Drive(chain("a", "b", "c"))
    run.finish("a", {"log": ["a"]})
    run.finish("b", {"log": ["b"]})
    copy = fork(run, 1)

    assert (copy.values, copy.started) == ({"log": ["a"]}, ["b"])
    assert copy.orders("b")[0].guidance is None
    assert fork(run, 2).started == ["a"]
    assert run.values == {"log": ["a", "b"]}
    assert copy.facts("run.went_back") == []


@pytest.mark.parametrize(("back", "most"), [(2, 1), (-1, 1)])
def test_further_than_there_is_a_past_is_refused(back: int, most: int) -> None:
    run = Drive(chain("a", "b"))
    run.finish("a")

    refused = refusal(run, back)
    assert (refused.code, refused.details) == ("no_such_past", {"most": most})


def test_the_order_of_parallel_branches_is_no_past() -> None:
    run = Drive(graph("a", "b", "c", ways=[(START, "a"), (START, "b"), ("a", "c")]))
    run.finish("a")

    assert refusal(run, 1).details == {"most": 0}
    assert sorted(fork(run).started) == ["b", "c"]


def test_a_finished_visit_whose_rules_ask_can_be_run_again() -> None:
    run = Drive(ruled())
    run.finish("a", {"log": ["a"]})
    copy = fork(run, 1)

    assert (copy.values, copy.started, copy.asking) == ({}, ["a"], [])


@pytest.mark.parametrize("before", [0, 25])
def test_a_fork_goes_back_behind_a_gate_and_does_not_repeat_what_that_led_to(before: int) -> None:
    names = [f"n{i}" for i in range(before)]
    run = Drive(chain(gate("ask", capability="approve"), "pay", *names, "ship", "tell"))
    run.answer("ask", principal=ROOT)
    for name in ("pay", *names, "ship"):
        run.finish(name)
    copy = fork(run, 1)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["ship"]


def test_a_fork_goes_back_to_the_first_visit_behind_a_gate_by_asking_that() -> None:
    run = Drive(chain("a", gate("ask", capability="approve"), "pay", "ship"))
    run.finish("a")
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    copy = fork(run, 1)
    assert ([name for name, _ in copy.asking], copy.started) == (["ask"], [])
    copy.answer("ask", principal=ROOT)

    assert copy.started == ["pay"]


def test_a_completed_run_can_be_forked_back() -> None:
    run = Drive(chain("a", "b", finally_=["clean"]))
    run.finish("a")
    run.finish("b", {"x": 1})
    assert refusal(run).code == "not_finished"
    run.finish("clean", {"x": 2})
    copy = fork(run, 1)

    assert (run.status, copy.values, copy.started) == ("completed", {}, ["b"])
    assert fork(run).status == "ending"


def test_a_failed_run_can_be_forked_with_what_failed() -> None:
    run = Drive(chain("a"))
    run.fail("a")

    assert fork(run).running == ["a"]


def test_an_answered_gate_is_asked_again_before_what_it_allowed() -> None:
    run = Drive(chain("a", gate("ask", capability="approve"), "pay"))
    run.finish("a")
    run.answer("ask", principal=ROOT)
    assert run.running == ["pay"]
    copy = fork(run)

    assert ([name for name, _ in copy.asking], copy.started) == (["ask"], [])
    copy.answer("ask", principal=ROOT)
    assert copy.started == ["pay"]


def test_what_was_done_behind_a_gate_is_not_done_again_but_the_rest_is_confirmed() -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay", "ship", "tell"))
    run.answer("ask", principal=ROOT)
    run.finish("pay", {"x": 1})
    copy = fork(run)

    asking = copy.open("approve_fork")
    assert (asking.requested_capability, asking.kind, copy.started) == ("approve", "static", [])
    assert "'ask' was approved in the run" in asking.prompt
    assert (
        copy.refused(events.Responded, **copy.response({asking.id: None}, principal=ADA)).code
        == "capability_required"
    )
    copy.answer("approve_fork", principal=ROOT)
    copy.finish("ship")
    copy.finish("tell")
    assert (copy.status, copy.started, copy.values) == ("completed", ["ship", "tell"], {"x": 1})


def test_steps_that_were_done_behind_a_gate_are_confirmed_too() -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay"))
    run.answer("ask", principal=ROOT)
    run.ask("pay", "which", journal={"charged": True})
    copy = fork(run)
    copy.answer("which", "that", principal=ROOT)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    (order,) = copy.orders("pay")
    assert (order.journal, order.own_answers) == ({"charged": True}, {"which": "that"})


def test_what_was_done_in_a_nested_graph_behind_a_gate_is_confirmed_too() -> None:
    inner = chain("pay", "ship", name="inner")
    run = Drive(chain(gate("ask", capability="approve"), nested("sub", inner)))
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    copy = fork(run)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["ship"]


def test_code_that_asked_and_finished_is_not_run_again_and_the_rest_is_confirmed() -> None:
    run = Drive(chain(ASKS, "ship"))
    run.ask("code", asked("ok", requested_capability="approve"))
    run.answer("ok", principal=ROOT)
    run.finish("code", {"x": 1})
    copy = fork(run)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["ship"]


def of_items(each: FunctionNode | InterruptNode) -> Drive:
    """A run with three items, of which the first was approved and is over."""
    split = FunctionNode(id="split", to=(each.id,))
    run = Drive(
        graph(
            split,
            each,
            "collect",
            ways=[(START, "split"), edge([each.id], "collect"), ("collect", END)],
        )
    )
    run.finish("split", sends=[(each.id, number) for number in range(3)])
    return run


def test_items_that_are_over_are_not_done_again_and_what_follows_them_is_confirmed() -> None:
    run = of_items(ASKS)
    for _ in range(3):
        run.ask("code", asked("ok", requested_capability="approve"))
    run.answer("ok", principal=ROOT)
    run.finish("code")
    copy = fork(run)
    for _ in range(2):
        copy.answer("ok", principal=ROOT)
        copy.finish("code")
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], ["code", "code"])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["code", "code", "collect"]


def test_gates_of_items_that_are_over_are_confirmed_and_of_others_asked_again() -> None:
    run = of_items(gate("ask", capability="approve"))
    run.answer("ask", principal=ROOT)
    copy = fork(run)
    for _ in range(2):
        copy.answer("ask", principal=ROOT)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["collect"]


def test_an_item_in_which_no_code_follows_is_not_entered_again() -> None:
    one, two = gate("one", capability="approve"), gate("two", capability="approve")
    split = FunctionNode(id="split", to=("one",))
    ways = [edge(START, "split"), edge("one", "two"), edge(["two"], "collect")]
    run = Drive(graph(split, one, two, "collect", ways=ways))
    run.finish("split", sends=[("one", 1)])
    run.answer("one", principal=ROOT)
    copy = fork(run)
    copy.answer("two", principal=ROOT)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["collect"]


def test_what_was_done_on_one_branch_behind_a_gate_counts_on_the_others() -> None:
    inner = graph(
        "code",
        gate("ask"),
        gate("other"),
        "both",
        ways=[(START, "code"), ("code", "ask"), (START, "other"), edge(("ask", "other"), "both")],
        name="inner",
    )
    run = Drive(chain(gate("first", capability="approve"), nested("sub", inner)))
    run.answer("first", principal=ROOT)
    run.answer("other", principal=ROOT)
    run.finish("code")
    copy = fork(run)
    copy.answer("ask", principal=ROOT)
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["both"]


def test_a_branch_behind_a_gate_that_is_over_is_not_done_again() -> None:
    ways = [(START, "ask"), ("ask", "done"), ("ask", "other"), ("other", "rest")]
    run = Drive(graph(gate("ask", capability="approve"), "done", gate("other"), "rest", ways=ways))
    run.answer("ask", principal=ROOT)
    run.finish("done")
    copy = fork(run)
    copy.answer("other", principal=ROOT)
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["rest"]


def test_a_gate_beside_another_branch_is_asked_again_if_nothing_was_done() -> None:
    ways = [
        edge(START, "beside"),
        edge(START, "ask"),
        edge("ask", "pay", {"x": 1}),
        edge("ask", "no", "else"),
    ]
    asking = (gate("ask", capability="approve"), gate("no"))
    run = Drive(graph(*asking, "pay", "beside", ways=ways), values={"x": 1})
    run.feed(events.Paused, actor="ada")
    run.answer("ask", principal=ROOT)
    copy = fork(run)
    assert ([name for name, _ in copy.asking], copy.started) == (["ask"], ["beside"])
    copy.answer("ask", principal=ROOT)

    assert copy.started == ["beside", "pay"]


def test_a_gate_is_asked_again_if_only_another_branch_has_done_something_since() -> None:
    ways = [(START, "beside"), (START, "ask"), ("ask", "next"), ("next", "pay")]
    ask, next_ = gate("ask", capability="approve"), gate("next")
    run = Drive(graph(ask, next_, "pay", "beside", ways=ways))
    run.answer("ask", principal=ROOT)
    run.finish("beside")
    copy = fork(run)
    copy.answer("next", principal=ROOT)

    assert ([name for name, _ in copy.asking], copy.started) == (["ask"], [])


def test_an_edit_updates_the_question_whether_an_approval_counts_in_a_fork() -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay", "ship"))
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    copy = fork(run)
    before = copy.open("approve_fork")
    copy.feed(events.ValuesEdited, principal=ROOT, patch={"x": 1}, version=copy.state.root.version)

    after = copy.open("approve_fork")
    assert (after.payload["values"], after.requested_capability) == ({"x": 1}, "approve")
    assert (after.id, after.digest == before.digest) == (before.id, False)


def test_one_confirmation_counts_for_every_branch_behind_a_gate() -> None:
    run = Drive(
        graph(
            gate("ask", capability="approve"),
            "pay",
            "ship",
            "tell",
            ways=[(START, "ask"), ("ask", "pay"), ("pay", "ship"), ("pay", "tell")],
        )
    )
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    copy = fork(run)

    assert [name for name, _ in copy.asking] == ["approve_fork"] * 2
    ids = {entry.id: None for entry in copy.state.ledger.open.values()}
    copy.feed(events.Responded, **copy.response(ids, principal=ROOT))
    assert sorted(copy.started) == ["ship", "tell"]


def test_one_confirmation_counts_in_every_item_behind_a_gate() -> None:
    send = FunctionNode(id="send", to=("pay",))
    asking = gate("ask", capability="approve")
    run = Drive(graph(asking, send, "pay", ways=[(START, "ask"), ("ask", "send")]))
    run.answer("ask", principal=ROOT)
    run.finish("send", sends=[("pay", 1), ("pay", 2)])
    copy = fork(run)
    assert [name for name, _ in copy.asking] == ["approve_fork"] * 2
    ids = {entry.id: None for entry in copy.state.ledger.open.values()}
    copy.feed(events.Responded, **copy.response(ids, principal=ROOT))

    assert copy.started == ["pay", "pay"]


def test_who_confirms_approves_nothing_else() -> None:
    asking = gate("ask", prompt="{x}", capability="approve")
    run = Drive(chain(asking, "pay", "ship", "tell"))
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    copy = fork(run)
    copy.answer("approve_fork", principal=ROOT)
    copy.feed(events.Paused, actor="ops")
    copy.finish("ship")
    copy.feed(events.ValuesEdited, principal=ROOT, patch={"log": []}, version=1)
    copy.feed(events.Resumed, actor="ops")

    assert copy.started == ["ship", "tell"]


def test_two_gates_are_confirmed_one_after_the_other() -> None:
    run = Drive(
        chain(gate("one", capability="approve"), gate("two", capability="audit"), "pay", "ship")
    )
    run.answer("one", principal=ROOT)
    run.answer("two", principal=ROOT)
    run.finish("pay")
    copy = fork(run)
    capabilities = []
    while copy.asking:
        capabilities.append(copy.open("approve_fork").requested_capability)
        copy.answer("approve_fork", principal=ROOT)

    assert (capabilities, copy.started) == (["approve", "audit"], ["ship"])


def test_code_that_asked_and_was_answered_asks_again_with_its_journal() -> None:
    run = Drive(chain(ASKS))
    run.ask("code", asked("ok", requested_capability="approve"), asked("name"), journal={"s": 1})
    run.answer("name", "ada", principal=ROOT)
    run.answer("ok", True, principal=ROOT)
    copy = fork(run)

    (order,) = copy.orders("code")
    assert (order.own_answers, order.journal) == ({}, {"s": 1})


def ruled() -> GraphSpec:
    def ask(name: str) -> Rule:
        question = InterruptSpec(name=name, prompt="?", requested_capability="approve")
        return Rule(id=name, condition=Matches(node="a"), actions=(Ask(question=question),))

    return chain("a", "b", rules=[ask("one"), ask("two")])


@pytest.mark.parametrize("paused", [False, True])
def test_the_rules_of_a_visit_ask_all_their_questions_again(paused: bool) -> None:
    run = Drive(ruled())
    run.finish("a", {"log": ["a"]})
    if paused:
        run.feed(events.Paused, actor="ada")
        run.answer("two", principal=ROOT)
    run.answer("one", principal=ROOT)
    copy = fork(run)

    assert sorted(name for name, _ in copy.asking) == ["one", "two"]
    assert (copy.started, copy.values) == ([], {"log": ["a"]})
    copy.answer("one", principal=ROOT)
    assert copy.started == []
    copy.answer("two", principal=ROOT)
    assert copy.started == ["b"]


def test_an_approved_call_is_not_approved_in_the_fork_and_its_outcome_is_asked() -> None:
    run = reviewing()
    turn(run, call("c1"), gated("c2"))
    done(run, "c1", {"content": 1})
    said(run, "c2", {"approved": True})
    copy = fork(run)

    (order,) = copy.orders("pay")
    assert (order.own_answers, order.journal) == ({}, {"/begun": 1})


def test_messages_stay_with_the_original() -> None:
    run = Drive(graph(reader(), "b", ways=[(START, "work"), (START, "b")]))
    run.send("m1")
    assert run.take("b") == ["m1"]
    run.send("m2")
    run.direct("defer")
    copy = fork(run)

    assert copy.state.mailbox.queue == ()
    assert (copy.state.todos, copy.state.keys) == ((), {})
    assert copy.state.counters.messages_queued == 0
    copy.finish("b")
    assert copy.state.mailbox.queue == ()


def test_a_fork_takes_every_capability_of_the_run() -> None:
    run = Drive(chain(gate("ask", capability="approve")))

    assert refusal(run, principal=ADA).details["capabilities"] == ["approve"]


def test_a_paused_run_has_a_fork_that_runs() -> None:
    run = Drive(chain("a"))
    run.feed(events.Paused, actor="ada")

    assert fork(run).status == "running"


def test_a_fork_asks_whether_an_approval_that_took_no_capability_counts_in_it() -> None:
    ask = gate("ask", terms=Terms(assignees=("ada",), assignees_only=True))
    run = Drive(chain(ask, "pay", "notify"))
    run.answer("ask")
    run.finish("pay")
    copy = fork(run)

    assert copy.open("approve_fork").requested_capability is None
    copy.answer("approve_fork")
    assert copy.running == ["notify"]
