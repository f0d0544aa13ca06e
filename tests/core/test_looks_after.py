"""Static interrupts after a node: what its way out is sought with."""

from __future__ import annotations

from core_drive import ADA, Drive, chain, edge, graph, nested
from core_fans import fan
from core_looks import AFTER, BEFORE, edit, routed
from core_rules import ask, rule

from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    Clips,
    FunctionNode,
    GoTo,
    HaltRun,
    Rule,
)

# after


def test_a_person_looks_after_the_node_and_before_its_ways() -> None:
    spec = graph(
        "a",
        "b",
        "c",
        ways=[(START, "a"), edge("a", "b", {"x": 1}), edge("a", "c", "else")],
        after=["a"],
    )
    run = Drive(spec)
    run.finish("a", {"x": 1})
    assert (run.status, run.open(AFTER).payload["values"]) == ("awaiting-input", {"x": 1})
    assert run.open(AFTER).prompt.startswith("After 'a': let the run go on")
    run.answer(AFTER, edit(2, x=5))

    assert run.running == ["c"]


def test_rules_look_at_the_edited_values() -> None:
    one = rule("h", "a", HaltRun(reason="5"), x=5)
    run = Drive(chain("a", "b", after=["a"], rules=[one]))
    run.finish("a", {"x": 1})
    run.answer(AFTER, edit(2, x=5))

    assert (run.status, run.ending.reason) == ("halted", "5")


def test_a_route_holds_if_nothing_was_edited() -> None:
    run = Drive(routed())
    run.finish("a", {"x": 1}, routed=("b",))
    run.answer(AFTER, None)

    assert (run.running, run.decided) == (["b"], [])


def test_routes_are_asked_again_after_an_edit() -> None:
    run = Drive(routed())
    run.finish("a", {"x": 1}, routed=("b",))
    run.answer(AFTER, edit(2, x=5))
    (order,) = run.decisions()
    assert (order.address, order.values) == ("graph:g;node:a", {"x": 5})
    run.finish("a", {"x": "ignored"}, routed=("c",))

    assert (run.running, run.values) == (["c"], {"x": 5})


def test_a_goto_of_the_code_holds_also_after_an_edit() -> None:
    run = Drive(routed())
    run.finish("a", {"x": 1}, goto="d", routed=())
    run.answer(AFTER, edit(2, x=5))

    assert (run.running, run.decided) == (["d"], [])


def test_a_fan_out_of_the_code_holds_also_after_an_edit() -> None:
    run = Drive(fan(after=["s"]))
    run.finish("s", sends=[("one", 1)])
    run.answer(AFTER, edit(1, x=5))

    assert run.orders("one")[0].values == {"x": 5}


def test_rules_of_clips_are_asked_again_after_an_edit_and_keep_a_goto() -> None:
    rules = [
        Rule(id="k", condition=Clips(node="a", text="(x)"), actions=(HaltRun(reason="k"),)),
    ]
    run = Drive(routed(rules=rules))
    run.finish("a", goto="d", fired=("k",))
    run.answer(AFTER, edit(1, x=5))
    assert run.decided == ["a"]
    # Its routes may be newer than the run's graph, and do not count.
    run.finish("a", routed=("elsewhere",))

    assert run.running == ["d"]


def test_asking_routes_again_is_stopped_and_begins_anew() -> None:
    run = Drive(routed())
    run.finish("a", routed=("b",))
    run.answer(AFTER, edit(1, x=5))
    run.pause(mode="now")
    run.stopped("a")
    run.read_again()
    run.resume()
    assert run.decided == ["a", "a"]
    run.finish("a", routed=("c",))

    assert run.running == ["c"]


def test_nothing_follows_from_routes_that_were_asked_again_when_the_run_ends() -> None:
    one = rule("ask", "a", ask("ask", prompt="?"))
    run = Drive(routed(rules=[one]))
    run.finish("a", routed=("b",))
    run.answer(AFTER, edit(1, x=5))
    run.cancel()
    run.finish("a", routed=("c",))

    assert (run.status, run.asking, run.values) == ("cancelled", [], {"x": 5})


def test_a_node_that_fails_or_ends_the_run_is_not_looked_at() -> None:
    run = Drive(chain("a", after=["a"]))
    run.cancel()
    run.finish("a", {"x": 1})
    assert (run.status, run.values) == ("cancelled", {"x": 1})

    run = Drive(chain(FunctionNode(id="a", on_error=GoTo(node="b")), "b", after=["a"]))
    run.fail("a")
    assert run.running == ["b"]


def test_a_look_in_a_nested_graph_edits_its_values() -> None:
    inner = chain("deep", name="in", before=["deep"])
    run = Drive(chain(nested("n", inner), "after"), values={"x": 1})
    entry = run.open(BEFORE)
    assert [parent.address for parent in entry.parents] == ["graph:g;node:n"]
    run.answer(BEFORE, edit(1, x=2))
    assert run.orders("deep")[0].values == {"x": 2}
    assert run.values == {"x": 1}
    run.finish("deep")

    assert run.values == {"x": 2}


def test_a_look_is_not_asked_again_when_the_way_out_is_sought_again() -> None:
    spec = graph(
        FunctionNode(id="a", on_error=AskHuman()),
        "b",
        ways=[(START, "a"), edge("a", "b", {"x": 1})],
        after=["a"],
    )
    run = Drive(spec)
    run.finish("a", {"log": ["done"]})
    run.answer(AFTER)
    assert run.open("error").reason["code"] == "no_way_out"
    run.edit(ADA, x=1)
    run.answer("error", {"action": "retry"})

    assert (run.started, run.values) == (["a", "b"], {"x": 1, "log": ["done"]})
    assert END not in run.running


def test_what_code_had_changed_when_it_asked_is_not_merged_again_after_it_has_finished() -> None:
    run = Drive(chain("a", "b", after=["a"]))
    run.ask("a", "plan", patch={"log": ["half"]})
    run.answer("plan", "yes")
    run.finish("a", {"log": ["half", "done"]})
    assert run.asking == [(AFTER, "graph:g;node:a")]

    run.cancel(actor="ada")
    assert run.state.root.values["log"] == ["half", "done"]
