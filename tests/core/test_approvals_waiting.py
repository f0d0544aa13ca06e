"""Nothing is applied between an answer and what it allows."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import Drive, gate, graph, nested
from core_gated import APPROVER, BOSS, CLERK, Gated, approving, refund

from abeyance.core.json import Json
from abeyance.core.spec import START
from abeyance.core.state import Limits

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
