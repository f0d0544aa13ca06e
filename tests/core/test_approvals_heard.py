"""What people say who may not approve counts as nobody's word: the gate is asked again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from core_agents import agent_node, call, done
from core_drive import edge, graph, nested, reader
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, forked, refund, remark
from core_rules import ask, rule

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import (
    START,
    AskHuman,
    Default,
    FunctionNode,
    GoTo,
    GraphSpec,
    Node,
    Reducer,
)


def is_asked_about_again(run: Gated, node: str = "pay") -> bool:
    """Whether the gate is open again for what somebody else has said, and what is behind it waits."""
    return (run.reopened, run.running, run.open("ask").prompt) == (
        ["ask"],
        [],
        "Refund 999 for A-7?",
    )


# where somebody is asked who may not approve


def test_an_answer_between_the_gate_and_what_it_allows() -> None:
    run = Gated(refund(approving(), remark(), "pay"))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)

    assert is_asked_about_again(run)
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    assert run.ran_with("pay") == [(999, "A-7")]


def test_an_answer_after_what_it_allowed_has_begun() -> None:
    run = Gated(refund(approving(), "check", remark(), "pay"))
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", 999)

    assert is_asked_about_again(run)
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", 999)
    assert run.ran_with("pay") == [(999, "A-7")]


def test_an_answer_that_changes_nothing_that_was_shown() -> None:
    run = Gated(refund(approving(), remark(field="note"), "pay"))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "quickly, please")

    assert run.ran_with("pay", "amount", "note") == [(250, "quickly, please")]


@pytest.mark.parametrize(("field", "value"), [("amount", 250), ("order_id", "A-7")])
def test_an_answer_that_says_what_was_shown_anyway(field: str, value: Json) -> None:
    run = Gated(refund(approving(), remark(field=field), "pay"))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", value)

    assert (run.reopened, run.running) == ([], ["pay"])


@pytest.mark.parametrize(("part", "again"), [("amount", ["ask"]), ("note", [])])
@pytest.mark.parametrize("is_nested", [False, True])
def test_an_answer_about_a_part_of_what_the_gate_shows_a_part_of(
    part: str, again: list[str], *, is_nested: bool
) -> None:
    name = "inner_order" if is_nested else "order"
    fields: dict[str, Reducer] = {name: "merge"}
    after: list[str | Node] = ["check", remark(field=name), "pay"]
    if is_nested:
        inner = refund(*after, name="inner", fields=fields)
        after = [nested("sub", inner, input={name: "order"}, output={})]
    asking = approving(prompt="Refund {order.sums.amount}?")
    spec = refund(asking, *after, fields={"order": "merge"})
    run = Gated(spec, {"order": {"sums": {"amount": 250, "note": 1}}})
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", {"sums": {"amount": 250, "note": 1, part: 999}})

    assert (run.reopened, len(run.orders("pay"))) == (again, 1 - len(again))


@pytest.mark.parametrize(
    ("before", "value"),
    # As it comes from a request: not the text that stands in the code.
    [({}, None), ({}, json.loads('"absent"')), ({"note": 1}, None), ({"note": None}, 1)],
)
@pytest.mark.parametrize("between", [(), ("check",)])
def test_an_answer_that_sets_or_unsets_what_the_gate_shows(
    before: dict[str, Json], value: Json, between: tuple[str, ...]
) -> None:
    asking = approving(prompt="Refund {amount}? {note}")
    run = Gated(refund(asking, *between, remark(field="note"), "pay"), {"amount": 250, **before})
    run.says(APPROVER, "ask")
    for node in between:
        run.finish(node)
    run.says(CLERK, "remark", value)

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_an_answer_under_the_gates_own_capability_stands_approved() -> None:
    run = Gated(refund(approving(), remark(capability="approve"), "pay"))
    run.says(APPROVER, "ask")
    run.says(APPROVER, "remark", 999)

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_the_answer_to_the_gate_itself_stands_approved() -> None:
    run = Gated(refund(approving(answer_to="amount"), "pay"))
    run.says(APPROVER, "ask", 200)

    assert (run.reopened, run.ran_with("pay")) == ([], [(200, "A-7")])


def test_an_answer_under_the_capability_of_another_gate_stands_approved_for_that_alone() -> None:
    audit = approving("audit", capability="audit", answer_to="amount")
    run = Gated(refund(approving(), audit, "pay"))
    run.says(APPROVER, "ask")
    run.says(BOSS, "audit", 999)

    assert is_asked_about_again(run)
    run.says(APPROVER, "ask")
    run.says(BOSS, "audit", 999)
    assert run.ran_with("pay") == [(999, "A-7")]


def test_a_default_answer_is_the_authors_own_word() -> None:
    quiet = remark(timeout=60, on_timeout=Default(answer=5))
    run = Gated(refund(approving(), quiet, "pay"))
    run.says(APPROVER, "ask")
    run.tick(60)

    assert (run.reopened, run.ran_with("pay")) == ([], [(5, "A-7")])


def test_an_answer_on_a_branch_beside_it() -> None:
    run = Gated(forked((approving(), "check", "pay"), (remark(),)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    run.finish("check")

    assert is_asked_about_again(run)


def test_an_answer_to_a_rule() -> None:
    spec = refund(
        approving(),
        "check",
        "pay",
        rules=[rule("why", "check", ask("why", answer_to="amount"))],
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "why", 999)

    assert is_asked_about_again(run)


def test_an_answer_to_code_that_then_changes_what_was_shown() -> None:
    run = Gated(refund(approving(), "check", "pay"))
    run.says(APPROVER, "ask")
    run.ask("check", "how much")
    run.says(CLERK, "how much", 999)
    run.finish("check", {"amount": 999})

    assert is_asked_about_again(run)


def test_an_answer_where_a_failure_has_led_to() -> None:
    pay = FunctionNode(id="check", on_error=GoTo(node="remark"))
    run = Gated(forked((approving(), pay), (remark(), "pay")))
    run.says(CLERK, "remark", 250)
    run.says(APPROVER, "ask")
    run.finish("pay")
    run.fail("check")
    run.says(CLERK, "remark", 999)

    assert is_asked_about_again(run)


# code that runs again


def test_an_answer_while_approved_code_waits_for_another() -> None:
    run = Gated(forked((approving(), "pay"), (remark(),)))
    run.says(APPROVER, "ask")
    run.ask("pay", "which account")
    run.says(CLERK, "remark", 999)
    run.says(CLERK, "which account", "main")

    assert is_asked_about_again(run)
    assert run.ran_with("pay") == [(250, "A-7")]


@pytest.mark.parametrize("stop", ["pause", "rotation"])
def test_an_answer_while_approved_code_is_stopped(stop: str) -> None:
    run = Gated(forked((approving(), "pay"), (remark(),)))
    run.says(APPROVER, "ask")
    if stop == "pause":
        run.pause(mode="now")
    else:
        run.feed(events.RotationDue, hard=True)
    run.stopped("pay")
    run.says(CLERK, "remark", 999)
    run.feed(events.Restored)
    run.resume()
    run.feed(events.Ticked)

    assert is_asked_about_again(run)
    assert run.ran_with("pay") == [(250, "A-7")]


def test_an_answer_while_approved_code_has_failed() -> None:
    pay = FunctionNode(id="pay", on_error=AskHuman())
    run = Gated(forked((approving(), pay), (remark(),)))
    run.says(APPROVER, "ask")
    run.fail("pay")
    run.says(CLERK, "remark", 999)
    run.says(BOSS, "error", {"action": "retry"})

    assert is_asked_about_again(run)


def test_code_that_asked_goes_on_where_what_was_shown_is_the_same() -> None:
    run = Gated(forked((approving(), "pay"), (remark(field="note"),)))
    run.says(APPROVER, "ask")
    run.ask("pay", "which account")
    run.says(CLERK, "remark", "quickly")
    run.says(CLERK, "which account", "main")

    assert (run.reopened, len(run.orders("pay"))) == ([], 2)


# in a nested graph, and in the items of a fan-out


def test_an_answer_in_a_nested_graph_behind_the_gate() -> None:
    inner = refund("check", remark(), "pay", name="inner")
    run = Gated(refund(approving(), nested("sub", inner)))
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", 999)
    assert (run.reopened, run.running) == (["ask"], [])
    # What was changed in there is gone with it.
    assert run.open("ask").prompt == "Refund 250 for A-7?"

    run.says(APPROVER, "ask")
    run.finish("check")
    assert run.open("remark").address == "graph:g;node:sub:2;graph:inner;node:remark"


def test_an_answer_in_a_nested_graph_before_what_the_gate_allows() -> None:
    inner = refund(remark(), "check", name="inner")
    run = Gated(refund(approving(), nested("sub", inner), "pay"))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("check")) == (["ask"], [])


def test_an_answer_in_a_nested_graph_that_changes_what_is_around_it() -> None:
    inner = refund("check", remark(), name="inner")
    run = Gated(refund(approving(), nested("sub", inner), "pay"))
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", 999)

    assert is_asked_about_again(run)


def fanned(first: str | Node, *then: str) -> GraphSpec:
    """Behind the gate `send` sends items to `first`; the last of the nodes gathers them."""
    name = first if isinstance(first, str) else first.id
    *inside, last = then
    inner = [name, *inside]
    return graph(
        approving(),
        FunctionNode(id="send", to=(name,)),
        first,
        *then,
        ways=[
            (START, "ask"),
            ("ask", "send"),
            *zip(inner, inside, strict=False),
            ([inner[-1]], last),
        ],
        fields=FIELDS,
    )


def test_an_answer_in_an_item_behind_the_gate() -> None:
    run = Gated(fanned(remark(), "check", "pay"))
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("remark", 1), ("remark", 2)])
    run.says(CLERK, "remark", 250)
    assert run.ran_with("check") == [(250, "A-7")]
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.running, run.state.root.fans) == (["ask"], [], {})
    assert [stop[::2] for stop in run.stops] == [("graph:g;node:check", True)]


def test_an_answer_in_an_item_before_what_comes_after_all_of_them() -> None:
    run = Gated(fanned("check", "wait", "pay"))
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("check", 1), ("check", 2)])
    run.ask("check", "how much")
    run.says(CLERK, "how much", 999)
    run.finish("check", {"amount": 999})
    assert run.reopened == ["ask"]


def test_an_answer_in_an_item_that_is_only_gathered_with_it() -> None:
    run = Gated(fanned("check", "pay"))
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("check", 1), ("check", 2)])
    run.ask("check", "how much")
    run.says(CLERK, "how much", 999)
    run.finish("check:2", {"note": "fine"})
    run.finish("check", {"amount": 999})

    assert is_asked_about_again(run)


def test_an_answer_on_a_branch_beside_a_fan_out() -> None:
    spec = fanned("check", "pay")
    ways = (*spec.edges, edge(START, "remark"))
    spec = replace(spec, nodes={**spec.nodes, "remark": remark()}, edges=ways)
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("check", 1), ("check", 2)])
    run.says(CLERK, "remark", 999)
    run.finish("check")
    run.finish("check:2")

    assert is_asked_about_again(run)


def items(*firsts: str, ways: Iterable[Any], more: Iterable[str] = ()) -> Gated:
    """`send` sends an item to each of `firsts`, `pay` gathers them, and `other` is beside."""
    spec = forked(
        (FunctionNode(id="send", to=firsts),),
        ("other",),
        ways=ways,
        more=(*more, approving(), "book", remark(), "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[(first, None) for first in firsts])
    return run


def test_an_answer_in_one_item_is_no_matter_to_what_has_begun_in_another() -> None:
    ways: list[Any] = [("ask", "book"), ("book", "check"), (["check"], "pay"), (["remark"], "pay")]
    run = items("remark", "ask", ways=ways, more=["check"])
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.says(CLERK, "remark", 5)
    run.finish("book")

    assert (run.reopened, run.running) == ([], ["check"])


def test_an_answer_in_an_item_that_comes_to_nothing() -> None:
    sender = FunctionNode(id="send", to=("remark", "check"))
    spec = forked(
        (approving(), sender),
        ("other",),
        ways=[("check", "work"), (["work"], "pay")],
        more=(remark(), "check", "work", "pay"),
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("remark", 1), ("check", 2)])
    run.finish("other", {"amount": 999})
    run.says(CLERK, "remark", 5)
    run.finish("check")
    run.finish("work")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_an_answer_on_a_branch_of_an_item_beside_one_that_is_over() -> None:
    ways: list[Any] = [("fork", "ask"), ("ask", "book"), ("fork", "remark")]
    ways += [(["book"], "pay"), (["remark"], "pay")]
    run = items("fork", ways=ways, more=["fork"])
    run.finish("fork")
    run.says(APPROVER, "ask")
    run.finish("book")
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("pay")) == (["send"], [])


# messages


def written_to(who: Principal, **about: Any) -> Gated:
    """Behind the gate `listen` reads what somebody has written, and changes the amount."""
    run = Gated(refund(approving(), reader("listen"), "pay"))
    run.send("m1", sender=who.subject, capabilities=who.capabilities, **about)
    run.says(APPROVER, "ask")
    run.finish("listen", {"amount": 999})
    return run


def test_a_message_to_a_node_that_then_changes_what_was_shown() -> None:
    assert is_asked_about_again(written_to(CLERK))


@pytest.mark.parametrize("who", [BOSS, TEMPORAL])
def test_a_message_of_somebody_who_may_change_the_course_of_the_run(who: Principal) -> None:
    run = written_to(who)

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_a_message_that_was_not_read_says_nothing() -> None:
    run = written_to(CLERK, target="pay")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_a_message_that_is_asked_for_while_code_runs() -> None:
    run = Gated(refund(approving(), "listen", "pay"))
    run.says(APPROVER, "ask")
    run.send("m1", sender="clerk")
    assert run.take("listen") == ["m1"]
    run.finish("listen", {"amount": 999})

    assert is_asked_about_again(run)


def helped(*after: str) -> Gated:
    """Behind the gate works an agent, whose output is the amount."""
    node = agent_node("review", input={}, output={"amount": "output"})
    return Gated(refund(approving(), node, *after))


def test_an_agent_that_somebody_talked_to() -> None:
    run = helped("pay")
    run.says(APPROVER, "ask")
    run.send("m1", "rather 999", sender="clerk")
    run.finish("model", {"output": 999})
    run.finish("model", {"output": 999})

    assert is_asked_about_again(run)


def test_an_agent_that_nobody_talked_to_is_the_authors_code() -> None:
    run = helped("pay")
    run.says(APPROVER, "ask")
    run.finish("model", {"output": 240})

    assert (run.reopened, run.ran_with("pay")) == ([], [(240, "A-7")])


def test_a_tool_of_an_agent_that_somebody_answered() -> None:
    run = helped("pay")
    run.says(APPROVER, "ask")
    address = run.visit("model").address
    run.end(Finished, visit=address, patch={}, sends=(call("c1"),))
    run.ask("pay", "which account")
    run.says(CLERK, "which account", "main")
    done(run, "c1", {"content": "main"})
    run.finish("model", {"output": 999})

    assert is_asked_about_again(run)
