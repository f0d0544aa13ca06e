"""How far an answer reaches: into the items of fan-outs, and out of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from core_drive import edge
from core_gated import APPROVER, BOSS, CLERK, OPERATOR, SEVERAL, Gated, approving, forked, remark

from abeyance.core.spec import END, FunctionNode, GoTo, GraphSpec, Node
from abeyance.errors import Code, Refusal


def fanned(*nodes: str | Node) -> GraphSpec:
    """Return a graph whose `send` sends items through the nodes to `pay`; `other` is a branch beside."""
    names = [node if isinstance(node, str) else node.id for node in nodes]
    send = FunctionNode(id="send", to=(names[0],))
    ways = [*itertools.pairwise(names), ([names[-1]], "pay")]
    return forked((send,), ("other",), ways=ways, more=(*nodes, "pay"))


def test_a_gate_of_an_item_is_asked_again_in_its_item() -> None:
    run = Gated(fanned(approving(), "book"))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    assert run.running == ["other", "book"]
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")
    assert (run.reopened, run.running) == (["ask"], ["book"])
    assert run.state.root.fans["graph:g;node:send"].items[1].item == 2
    run.says(APPROVER, "ask")

    assert [order.item for order in run.orders("book")] == [1, 2]


@pytest.mark.parametrize("amount", [250, 999])
def test_the_gate_of_an_item_shows_the_items_own_changes(amount: int) -> None:
    run = Gated(fanned("price", approving(), "book"))
    run.finish("send", sends=[("price", 1), ("price", 2)])
    run.finish("price", {"amount": 1})
    run.finish("price:2", {"amount": 2})
    run.finish("other", {"amount": amount})
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")

    assert (run.reopened, run.ran_with("book", "amount")) == ([], [(1,), (2,)])


def test_retrying_code_behind_gates_of_items_requires_their_capability() -> None:
    run = Gated(fanned(approving()))
    run.finish("other")
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")
    run.fail("pay", "it broke")

    with pytest.raises(Refusal) as refused:
        run.start_again(OPERATOR)
    assert refused.value.code is Code.CAPABILITY_REQUIRED
    run.start_again(BOSS)
    assert run.running == ["pay"]


def test_a_change_before_items_are_gathered_reopens_their_gates() -> None:
    run = Gated(fanned(approving()))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask", "ask"]
    run.says(APPROVER, "ask")

    assert run.ran_with("pay") == [(999, "A-7")]
    assert run.orders("pay")[0].results == [
        {"item": 1, "status": "arrived"},
        {"item": 2, "status": "arrived"},
    ]


@pytest.mark.parametrize("prompt", ["Refund {amount}?", "Refund {payments}?"])
def test_the_merged_values_of_items_may_not_change_before_the_next_code(prompt: str) -> None:
    send = FunctionNode(id="send", to=("price",))
    ways: list[Any] = [("price", "ask"), (["ask"], "remark"), ("remark", "pay")]
    field = "amount" if "amount" in prompt else "payments"
    said: Any = 999 if field == "amount" else [999]
    spec = forked(
        (send,), more=("price", approving(prompt=prompt), remark(field=field), "pay"), ways=ways
    )
    run = Gated(spec)
    run.finish("send", sends=[("price", 1), ("price", 2)])
    run.finish("price", {"amount": 1, "payments": [1]})
    run.finish("price:2", {"amount": 2, "payments": [2]})
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")
    assert run.reopened == []
    run.says(CLERK, "remark", said)

    assert (run.reopened, run.running) == (["send"], ["send"])


@pytest.mark.parametrize(("first", "again"), [("ask", []), ("last", ["send"])])
def test_answers_in_items_are_used_up_once_code_has_begun_in_all_of_them(
    first: str, again: list[str]
) -> None:
    spec = forked(
        (FunctionNode(id="send", to=("ask", "last")),),
        ("other",),
        ways=[("ask", "book"), (["book"], "met"), (["last"], "met"), ("met", "pay")],
        more=(approving(), approving("last"), "book", remark("met", field=None), "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[(first, 1), ("ask", 2)])
    run.says(APPROVER, first)
    run.says(APPROVER, "ask")
    for node in [node for node in run.running if node == "book"]:
        run.finish(node)
    run.finish("other", {"amount": 999})
    while ("met", "graph:g;node:met") in run.asking:
        run.says(CLERK, "met")

    assert run.reopened == again


@pytest.mark.parametrize("terms", [[SEVERAL, {}], [{}, SEVERAL]])
def test_one_restricted_gate_among_several_items_is_enough_to_reopen(
    terms: list[dict[str, Any]],
) -> None:
    gates = [
        approving(f"ask{number}", **{"schema": {"type": "boolean"}, **each})
        for number, each in enumerate(terms)
    ]
    send = FunctionNode(id="send", to=("ask0", "ask1"))
    ways: list[Any] = [(["ask0", "ask1"], "pay"), ("pay", "notify")]
    run = Gated(forked((send,), more=(*gates, "pay", "notify"), ways=ways))
    run.finish("send", sends=[("ask0", 1), ("ask1", 2)])
    for number in (0, 1):
        run.says(APPROVER, f"ask{number}")
    run.pause(mode="now")
    run.stopped("pay")
    run.edit(BOSS, amount=999)
    run.resume()

    assert run.reopened == ["send"]


def left_by_a_deadline() -> Gated:
    """Start a run of two items. A deadline after the first one's gate takes it out in a minute."""
    late = remark("leave", field=None, timeout=60, on_timeout=GoTo(node="later"))
    spec = forked(
        (FunctionNode(id="send", to=("ask",)),),
        ("other",),
        ways=[("ask", "leave"), (["leave"], "pay")],
        more=(approving(), late, "pay", "later"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    return run


@pytest.mark.parametrize("answered", [False, True])
def test_out_of_an_item_the_sender_is_asked_again_and_the_other_gates_are_forgotten(
    *, answered: bool
) -> None:
    run = left_by_a_deadline()
    run.tick(30)
    if answered:
        run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.tick(30)

    assert (run.reopened, run.running, run.asking) == (["send"], ["send"], [])
    assert (run.state.gates, run.orders("later")) == ({}, [])
    if not answered:
        assert str(run.settled("ask").settled_reason).startswith("'send' is asked again")


def test_an_answer_of_an_item_that_comes_to_nothing_leads_to_nothing() -> None:
    spec = forked(
        (FunctionNode(id="send", to=("ask", "book")),),
        ("other",),
        ways=[(["book"], "pay")],
        more=(approving(), "book", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("book", 2)])
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.finish("book")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_a_gate_in_an_inner_item_counts_after_all_of_them() -> None:
    inner = FunctionNode(id="inner", to=("ask",))
    spec = forked(
        (FunctionNode(id="send", to=("one",)),),
        ("other",),
        ways=[("one", "inner"), (["ask"], "there"), (["there"], "last"), ("last", "pay")],
        more=("one", inner, approving(), remark("there", field=None), remark("last"), "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("one", 1)])
    run.finish("one")
    run.finish("inner", sends=[("ask", 2)])
    run.says(APPROVER, "ask")
    run.says(CLERK, "there")
    run.says(CLERK, "last", 999)

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_an_item_has_not_arrived_by_what_a_gate_led_to_that_now_leads_elsewhere() -> None:
    several = approving(answer_to="note", **SEVERAL)
    spec = forked(
        (FunctionNode(id="send", to=("ask",)),),
        ways=[
            *(edge("ask", "book", {"note": True}), edge("ask", "wait", {"note": True})),
            *(edge("ask", END, "else"), ("wait", "check"), (["book"], "pay")),
        ],
        more=(several, "book", remark("wait", field=None), "check", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 2)])
    run.says(APPROVER, "ask", True)
    run.finish("book")
    run.edit(BOSS, amount=999)
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask", False)

    assert run.orders("pay")[0].results == [{"item": 2, "status": "ended"}]
