"""What a scope has done last, and how it is taken back."""

from __future__ import annotations

from dataclasses import replace

from core_drive import Drive, Ways, chain, edge, gate, graph, restored
from core_rules import ask, rule

from abeyance.core.outcome import Finished, Send
from abeyance.core.spec import START, FunctionNode, Retry
from abeyance.core.state import Step
from abeyance.core.visit import Undo


def trail(run: Drive) -> list[str]:
    return [step.node for step in run.state.root.trail]


def looping() -> Drive:
    """`a` again and again, until it says that it is enough."""
    ways: Ways = [(START, "a"), edge("a", "b", when={"x": "enough"}), edge("a", "a", when="else")]
    return Drive(graph("a", "b", ways=ways))


def test_a_linear_scope_remembers_its_visits_with_what_takes_them_back() -> None:
    run = Drive(chain("a", "b", "c"), values={"x": 1})
    run.finish("a", {"x": 2, "log": ["a"]})
    run.finish("b")

    assert run.state.root.trail == (
        Step(
            node="a",
            address="graph:g;node:a",
            undo=Undo(fields={"x": 1}, absent=("log",)),
            size=7,
        ),
        Step(node="b", address="graph:g;node:b", undo=Undo(), size=2),
    )


def test_the_last_twenty_visits_are_remembered() -> None:
    run = looping()
    for number in range(25):
        run.finish("a", {"x": number})

    steps = run.state.root.trail
    assert [step.address.rpartition(":")[2] for step in steps] == [str(n) for n in range(6, 26)]

    run.direct("go_back", params={"steps": 19})
    run.finish("a", {"x": 25})
    assert run.values == {"x": 5}
    assert trail(run) == []


def test_what_is_remembered_is_bounded_in_bytes_too() -> None:
    run = Drive(chain("a", "b", "c", "d"), values={"x": "0" * 199_992})
    run.finish("a", {"x": "1" * 150_000})
    assert trail(run) == ["a"]
    run.finish("b", {"x": "2" * 150_000})
    assert trail(run) == ["b"]
    run.finish("c", {"x": "3" * 201_000})
    run.direct("go_back", params={"steps": 1})

    assert trail(run) == ["c"]


def test_a_visit_that_alone_is_too_large_to_take_back_ends_the_trail() -> None:
    run = Drive(chain("a", "b", "c"), values={"x": "0" * 199_993})
    run.finish("a", {"x": 1})

    assert trail(run) == []
    run.direct("rerun", target="b")
    run.finish("b")
    assert (run.running, run.rejected()) == (["b"], [])


def test_a_second_branch_ends_the_trail() -> None:
    ways: Ways = [(START, "a"), ("a", "b"), ("a", "c"), ("b", "d")]
    run = Drive(graph("a", "b", "c", "d", ways=ways))
    run.finish("a")
    assert trail(run) == ["a"]

    run.finish("b")
    assert trail(run) == []
    run.finish("c")
    assert trail(run) == []
    run.finish("d")
    assert trail(run) == ["d"]


def test_a_token_at_a_join_ends_the_trail_and_the_join_begins_a_new_one() -> None:
    ways: Ways = [(START, "a"), (START, "b"), edge(("a", "b"), "c"), ("c", "d")]
    run = Drive(graph("a", "b", "c", "d", ways=ways))
    run.finish("a")
    run.finish("b")
    assert trail(run) == []
    run.finish("c")
    assert trail(run) == ["c"]


def test_a_fan_out_ends_the_trail() -> None:
    gathering = replace(edge("one", "collect"), gathers=True)
    spec = graph(
        "first",
        FunctionNode(id="split", to=("one",)),
        "one",
        "collect",
        ways=[(START, "first"), ("first", "split"), gathering],
    )
    run = Drive(spec)
    run.finish("first")
    run.end(
        Finished,
        visit=run.visit("split").address,
        sends=(Send(node="one", item=1),),
    )
    assert trail(run) == ["first", "split"]
    run.finish("one")
    assert trail(run) == []
    run.finish("collect")
    assert trail(run) == ["collect"]


def test_an_answer_that_is_written_to_the_values_is_taken_back_with_its_gate() -> None:
    run = Drive(chain(gate("ask", answer_to="x"), "a", "b"), values={"x": "before"})
    run.answer("ask", "yes")
    assert run.values == {"x": "yes"}
    run.direct("go_back")
    run.finish("a")

    assert (run.values, run.waiting) == ({"x": "before"}, ["ask"])


def test_the_first_change_of_a_field_by_a_visit_is_the_one_that_is_taken_back() -> None:
    spec = graph(
        "a",
        "b",
        ways=[(START, "a"), ("a", "b")],
        rules=[rule("ok", "a", ask("ok", answer_to="x"))],
    )
    run = Drive(spec, values={"x": 0})
    run.finish("a", {"x": 1, "log": ["a"]})
    run.answer("ok", 2)
    assert run.values == {"x": 2, "log": ["a"]}
    (step,) = run.state.root.trail
    assert step.undo == Undo(fields={"x": 0}, absent=("log",))

    again = Drive(spec, values={"x": 0})
    again.finish("a", {"x": 1})
    again.direct("rerun", capabilities=("*",))
    assert (again.running, again.values) == (["a"], {"x": 0})


def test_a_rule_that_retries_leaves_a_trail() -> None:
    spec = graph(
        "a",
        "b",
        ways=[(START, "a"), ("a", "b")],
        rules=[rule("more", "a", Retry(), x="more")],
    )
    run = Drive(spec)
    run.finish("a", {"x": "more"})
    run.finish("a", {"x": "done"})

    assert trail(run) == ["a", "a"]


def test_the_trail_survives_a_snapshot() -> None:
    run = Drive(chain("a", "b"), values={"x": 1})
    run.finish("a", {"x": 2})
    run.state = restored(run.state)
    run.direct("go_back", params={"steps": 1})
    run.finish("b")

    assert (run.running, run.values) == (["a"], {"x": 1})


def test_finally_nodes_leave_no_trail() -> None:
    run = Drive(chain("a", finally_=["tidy"]))
    run.finish("a")
    before = run.state.root.trail
    run.finish("tidy", {"x": 1})

    assert run.status == "completed"
    assert run.state.root.trail == before
