"""Each approval stays what it is, whatever it meets on its way, and wherever that leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from core_drive import edge, graph, nested
from core_gated import APPROVER, CLERK, FIELDS, Gated, approving, forked, refund, remark
from core_rules import ask, rule

from abeyance.core import events
from abeyance.core.policy import Principal
from abeyance.core.spec import START, AskHuman, FunctionNode, Node, Reducer, SubgraphNode

CAPABILITIES = ("may:approve", "may:audit")
ROOT = Principal(subject="root", capabilities=("*",))


def sure(capability: str, id_: str = "sure") -> Node:
    return approving(id_, prompt="Refund {amount}?", capability=capability)


def two_nodes() -> SubgraphNode:
    one, other = CAPABILITIES
    return nested("first", refund(sure(one, "one"), sure(other, "two"), name="inner"))


def two_rules_of_one_node() -> SubgraphNode:
    asks = [
        rule(name, "assess", ask(name, prompt="Refund {amount}?", capability=capability))
        for name, capability in zip(("one", "two"), CAPABILITIES, strict=True)
    ]
    return nested("first", refund("assess", name="inner", rules=asks))


def two_graphs_that_ask_the_same() -> SubgraphNode:
    graphs = [
        nested(name, refund(sure(capability), name=f"{name}_graph"))
        for name, capability in zip(("one", "two"), CAPABILITIES, strict=True)
    ]
    return nested("first", refund(*graphs, name="middle"))


def nodes_answered(run: Gated) -> None:
    for name in ("one", "two"):
        run.says(ROOT, name)


def rules_answered(run: Gated) -> None:
    run.finish("assess")
    nodes_answered(run)


def graphs_answered(run: Gated) -> None:
    for _ in CAPABILITIES:
        run.says(ROOT, "sure")


@pytest.mark.parametrize("capability", [None, *CAPABILITIES])
@pytest.mark.parametrize(
    ("first", "answered"),
    [
        (two_nodes(), nodes_answered),
        (two_rules_of_one_node(), rules_answered),
        (two_graphs_that_ask_the_same(), graphs_answered),
    ],
)
def test_two_gates_that_leave_a_nested_graph_and_meet_another_branch_both_count(
    first: Node, answered: Callable[[Gated], None], capability: str | None
) -> None:
    spec = graph(
        *(first, "slow", "meet", remark(capability=capability), "pay"),
        ways=[
            *((START, "first"), (START, "slow"), edge(("first", "slow"), "meet")),
            *(("meet", "remark"), ("remark", "pay")),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    answered(run)
    run.finish("slow")
    run.finish("meet")
    run.says(ROOT, "remark", 999)
    assert (run.reopened, run.orders("pay")) == (["first"], [])
    answered(run)
    run.finish("meet")
    run.says(ROOT, "remark", 999)

    assert (run.reopened, run.ran_with("pay", "amount")) == (["first"], [(999,)])
    assert run.started.count("slow") == 1


@pytest.mark.parametrize("capability", [None, *CAPABILITIES])
def test_two_gates_of_different_items_that_meet_another_branch_both_count(
    capability: str | None,
) -> None:
    spec = graph(
        *(FunctionNode(id="first", to=("price",)), "price", sure("may:{note}")),
        *("gathered", "slow", "meet", remark(capability=capability), "pay"),
        ways=[
            *((START, "first"), ("price", "sure"), (["sure"], "gathered")),
            *((START, "slow"), edge(("gathered", "slow"), "meet")),
            *(("meet", "remark"), ("remark", "pay")),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.finish("first", sends=[("price", 1), ("price", 2)])
    for node, note in (("price", "approve"), ("price:2", "audit")):
        run.finish(node, {"note": note})
        run.says(ROOT, "sure")
    for node in ("gathered", "slow", "meet"):
        run.finish(node)
    run.says(ROOT, "remark", 999)

    assert (run.reopened, run.running, run.orders("pay")) == (["first"], ["first"], [])


def test_what_was_shown_in_items_and_is_as_shown_again_after_them_is_as_approved() -> None:
    spec = forked(
        (FunctionNode(id="send", to=("ask",)),),
        ("other",),
        ways=[(["ask"], "remark"), ("remark", "pay")],
        more=(approving(), remark(field=None), "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1)])
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")
    run.edit(ROOT, amount=250)
    run.says(CLERK, "remark")

    assert (run.reopened, run.ran_with("pay")) == ([], [(250, "A-7")])


# nested graphs


def inside(*nodes: str | Node, output: Mapping[str, str]) -> SubgraphNode:
    """A nested graph that calls the amount a sum."""
    fields: dict[str, Reducer] = {"sum": "last", "note": "last"}
    spec = refund(*nodes, fields=fields, name="inner")
    return nested("sub", spec, input={"sum": "amount"}, output=output)


def test_words_in_a_nested_graph_leave_a_part_that_was_shown_and_is_as_it_was() -> None:
    fields: dict[str, Reducer] = {"order": "merge"}
    asking = approving(prompt="Refund {order.amount}?")
    sub = nested("sub", refund(asking, "fee", remark(field=None), name="inner", fields=fields))
    run = Gated(refund(sub, "pay", fields=fields), {"order": {"amount": 250}})
    run.says(APPROVER, "ask")
    run.finish("fee", {"order": {"fee": 5}})
    run.says(CLERK, "remark")

    assert (run.reopened, run.ran_with("pay", "order")) == ([], [({"amount": 250, "fee": 5},)])


def test_an_answer_in_one_item_is_no_matter_to_a_gate_in_a_nested_graph_of_another() -> None:
    sub = inside(approving(prompt="Refund {sum}?"), "check", output={})
    spec = forked(
        (FunctionNode(id="send", to=("sub", "remark")),),
        ("other",),
        ways=[("sub", "book"), (["book"], "pay"), (["remark"], "pay")],
        more=(sub, remark(), "book", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("sub", 1), ("remark", 2)])
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    run.finish("other", {"amount": 5})
    run.finish("check")

    assert (run.reopened, run.running) == ([], ["book"])


@pytest.mark.parametrize("first", [CLERK, APPROVER])
def test_of_several_who_change_what_a_gated_graph_was_given_one_stranger_is_enough(
    first: Principal,
) -> None:
    sub = inside(approving(prompt="Refund {sum}?"), "check", output={})
    run = Gated(forked((sub, "pay"), (remark(),), (remark("rather", capability="approve"),)))
    run.says(APPROVER, "ask")
    for name in ("remark", "rather") if first == CLERK else ("rather", "remark"):
        run.says(APPROVER, name, 999 if name == "remark" else 998)
    run.finish("check")

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_what_somebody_says_in_a_nested_graph_stays_there_for_the_gate_before_it() -> None:
    sub = inside("check", remark(field="sum"), output={})
    run = Gated(forked((approving(), sub, "pay"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("check")
    run.pause()
    run.says(CLERK, "remark", 999)
    run.finish("other", {"amount": 5})
    run.resume()

    assert (run.reopened, run.ran_with("pay")) == ([], [(5, "A-7")])


def test_what_approvers_say_one_after_another_in_a_nested_graph_counts_as_said_last() -> None:
    sub = inside(
        approving(prompt="Refund {sum}?", answer_to="sum"),
        remark("rather", field="sum", capability="approve"),
        output={"note": "sum"},
    )
    run = Gated(refund(sub, "pay"))
    run.says(APPROVER, "ask", 90)
    run.says(APPROVER, "rather", 80)

    assert (run.reopened, run.ran_with("pay", "note")) == ([], [(80,)])


# joins


def test_a_branch_of_a_gate_that_was_asked_anew_since_waits_as_it_was_taken() -> None:
    spec = graph(
        *(approving(), approving("audit", prompt="Is {order_id} known?", capability="audit")),
        *(FunctionNode(id="check", to=("audit",)), "book", remark()),
        ways=[
            *((START, "ask"), (START, "audit"), (START, "remark")),
            *(edge(("ask", "audit"), "check"), ("audit", "book")),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.says(ROOT, "audit")
    run.finish("book")
    run.finish("check", goto="audit")
    run.pause()
    run.says(ROOT, "audit")
    run.says(CLERK, "remark", 999)
    run.resume()
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")

    assert run.running == ["check"]


# words that change nothing, and questions that are no gates


@pytest.mark.parametrize("prompt", ["Go on?", "Is it {note}?"])
def test_an_answer_that_is_what_was_there_leaves_a_gate_beside_it(prompt: str) -> None:
    branch = (approving(prompt=prompt), "check", "pay")
    run = Gated(forked(branch, (remark(field="note"),), ("other",)), {"note": ["quick"]})
    run.pause()
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", ["quick"])
    run.resume()
    assert (run.reopened, run.running) == ([], ["other", "check"])


def test_an_answer_that_is_what_was_there_leaves_what_has_begun_as_it_was() -> None:
    branch = (approving(prompt="Is it {note}?"), "check", "pay")
    run = Gated(forked(branch, (remark(field="note"),), ("other",)), {"note": ["quick"]})
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", ["quick"])
    run.finish("other", {"note": ["slow"]})
    run.finish("check")

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_a_rule_asks_again_about_a_visit_takes_the_place_of_its_first_answer() -> None:
    sure = rule("sure", "assess", ask("sure", prompt="Refund {amount}?", capability="approve"))
    spec = graph(
        *(FunctionNode(id="assess", on_error=AskHuman()), "pay"),
        ways=[(START, "assess"), edge("assess", "pay", {"note": "go"})],
        fields=FIELDS,
        rules=[sure],
    )
    run = Gated(spec)
    run.finish("assess")
    run.says(APPROVER, "sure")
    run.edit(ROOT, amount=999, note="go")
    run.says(ROOT, "error", {"action": "retry"})
    run.says(APPROVER, "sure")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_words_beside_items_that_are_over_count_before_those_are_gathered() -> None:
    spec = forked(
        (approving(), FunctionNode(id="send", to=("rather",))),
        ("slow", remark()),
        ways=[(["rather"], "pay")],
        more=(remark("rather", field=None), "pay"),
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("rather", 1)])
    run.finish("slow")
    answers = {run.open("rather").id: None, run.open("remark").id: 999}
    run.feed(events.Responded, **run.response(answers, principal=CLERK))

    assert (run.reopened, run.orders("pay")) == (["ask"], [])
