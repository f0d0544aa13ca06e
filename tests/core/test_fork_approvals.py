"""In a fork nothing counts as approved that nobody has confirmed."""

from __future__ import annotations

import pytest
from core_drive import ADA, Drive, asked, chain, edge, gate, graph, nested
from core_forks import ROOT, fork

from abeyance.core import events
from abeyance.core.spec import (
    END,
    START,
    Edge,
    FunctionNode,
    InterruptNode,
    Route,
)
from abeyance.core.terms import Terms

ASKS = FunctionNode(id="code", asks=("approve",))


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
    assert asking.prompt == (
        "'ask' was approved in the run that this one was forked from. Approve 'ship' in this run too: "
        "let the run go on (null), or edit its values first?"
    )
    assert (
        copy.refused(events.Responded, **copy.response({asking.id: None}, principal=ADA)).code
        == "capability_required"
    )
    copy.answer("approve_fork", principal=ROOT)
    copy.finish("ship")
    copy.finish("tell")
    assert (copy.status, copy.started, copy.values) == ("completed", ["ship", "tell"], {"x": 1})


def test_a_look_behind_a_gate_is_no_confirmation() -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay", "ship", before=["ship"]))
    run.answer("ask", principal=ROOT)
    run.feed(events.Paused, actor="ada")
    run.finish("pay")
    copy = fork(run)
    look = copy.open("interrupt_before")
    assert (look.requested_capability, look.prompt[:13]) == (None, "Before 'ship'")
    copy.answer("interrupt_before", principal=ADA)

    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])


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


@pytest.mark.parametrize(
    ("after", "targets", "asking"),
    [
        ([edge("next", "pay")], (), "ask"),
        ([edge("next", "ask", {"x": 2}), edge("next", "pay", "else")], (), "ask"),
        ([], ("pay",), "ask"),
        ([], ("pay", "also"), "approve_fork"),
        ([edge("next", "pay"), edge("next", "also")], (), "approve_fork"),
    ],
)
def test_a_gate_is_asked_again_if_only_another_branch_has_done_something_since(
    after: list[Edge], targets: tuple[str, ...], asking: str
) -> None:
    """Unless a branch behind it may be over."""
    ways = [edge(START, "beside"), edge(START, "ask"), edge("ask", "next"), *after]
    ways.append(edge("pay", "also"))
    routes = [Route(source="next", name="r", targets=targets)] * bool(targets)
    ask, next_ = gate("ask", capability="approve"), gate("next")
    run = Drive(graph(ask, next_, "pay", "also", "beside", ways=ways, routes=routes))
    run.answer("ask", principal=ROOT)
    run.finish("beside")
    copy = fork(run)
    copy.answer("next", principal=ROOT)
    if routes:
        copy.finish("next", routed=("pay",))

    assert ({name for name, _ in copy.asking}, copy.started) == ({asking}, [])


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


def test_a_fork_asks_whether_an_approval_that_took_no_capability_counts_in_it() -> None:
    ask = gate("ask", terms=Terms(assignees=("ada",), assignees_only=True))
    run = Drive(chain(ask, "pay", "notify"))
    run.answer("ask")
    run.finish("pay")
    copy = fork(run)

    assert copy.open("approve_fork").requested_capability is None
    copy.answer("approve_fork")
    assert copy.running == ["notify"]
