"""Running the code of one visit."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from one_visit import context, visit
from pydantic import BaseModel, Field

from abeyance import END, START, Context, Fatal, Goto, Graph, NodeError, Send, add, append
from abeyance.core.outcome import Finished
from abeyance.errors import Blocked
from abeyance.runtime.node_runner import CodeMissing, run_visit


class State(BaseModel):
    amount: int = 0
    log: Annotated[list[str], append] = []


class Ledger(BaseModel):
    balance: Annotated[int, add] = Field(default=0, ge=0)


def graph_of(function: Callable[..., Any], *, state: Any = State, **options: Any) -> Graph:
    """Return a graph whose node `a` is the function, and may go to `b` and `c`."""
    graph = Graph("g", state=state)
    graph.node(name="a", **{"to": ["b", "c"], **options})(function)
    graph.node(name="b")(lambda: None)
    graph.node(name="c")(lambda: None)
    graph.edge(START, "a")
    return graph


def routed(*functions: Callable[..., Any], node: Callable[..., Any] = lambda: None) -> Graph:
    graph = graph_of(node)
    for function in functions:
        graph.route("a", function, to=["b", "c", END])
    return graph


# Return values


async def both(state: State, ctx: Context) -> dict[str, Any]:
    return {"amount": state.amount + 1, "log": [ctx.run_id]}


class AsyncCallable:
    async def __call__(self, state: State) -> dict[str, Any]:
        return {"amount": state.amount + 1}


@pytest.mark.parametrize(
    ("function", "patch"),
    [
        (both, {"amount": 2, "log": ["r1"]}),
        (lambda: None, {}),
        (lambda state: {"amount": state.amount + 1}, {"amount": 2}),
        (lambda state, ctx: {"log": [ctx.node]}, {"log": ["a"]}),
        (AsyncCallable(), {"amount": 2}),
        (functools.partial(lambda by, state: {"amount": state.amount + by}, 5), {"amount": 6}),
    ],
)
async def test_a_node_returns_a_patch_or_nothing(
    function: Callable[..., Any], patch: dict[str, Any]
) -> None:
    outcome = await visit(graph_of(function), {"amount": 1})

    assert outcome == Finished(patch=patch, messages_read=0)


@pytest.mark.parametrize(
    ("returned", "goto", "patch"),
    [
        (Goto("b"), "b", {}),
        (Goto("b", {"amount": 5}), "b", {"amount": 5}),
        (Goto(END, {"log": ["x"]}), END, {"log": ["x"]}),
    ],
)
async def test_a_goto_takes_its_patch_with_it_and_asks_no_route(
    returned: Goto, goto: str, patch: dict[str, Any]
) -> None:
    asked: list[Any] = []
    outcome = await visit(routed(asked.append, node=lambda: returned))

    assert outcome == Finished(goto=goto, patch=patch, messages_read=0)
    assert asked == []


@pytest.mark.parametrize(
    ("returned", "code", "told"),
    [
        (5, "invalid_patch", "returned a int: return a mapping"),
        (State(), "invalid_patch", "returned a State: return a mapping"),
        ({"nope": 1}, "invalid_patch", "sets 'nope', which State does not have"),
        ({"amount": "many"}, "invalid_patch", "/amount: Input should be a valid integer"),
        ({"log": "text"}, "invalid_patch", "/log: Input should be a valid list"),
        ({5: 1}, "invalid_patch", "must be a string, not 5"),
        (Goto("b", {"nope": 1}), "invalid_patch", "sets 'nope'"),
        (Goto(both), "unknown_node", "use the name of a node"),  # type: ignore[arg-type]
        ({"log": ["x" * 2_000_000]}, "invalid_patch", "and the limit is 1500000"),
    ],
)
async def test_an_invalid_return_value_fails_the_visit_without_a_retry(
    returned: Any, code: str, told: str
) -> None:
    outcome = await visit(graph_of(lambda: returned))

    assert (outcome.kind, outcome.code) == ("failed", code)
    assert told in outcome.message


@pytest.mark.parametrize("returned", [Goto("nowhere"), [Send("nowhere", 1)], [Send(END, 1)]])
async def test_a_target_that_no_graph_allows_fails_the_visit_with_its_steps(returned: Any) -> None:
    async def chooses(state: State, ctx: Context) -> Any:
        await ctx.step("s", lambda: "done")
        return returned

    outcome = await visit(graph_of(chooses), targets=(END,))

    assert (outcome.kind, outcome.code) == ("failed", "unknown_node")
    assert outcome.message.endswith("it may go to 'END': declare its targets with to=[...]")
    assert outcome.journal == {"s": "done"}, "a retry repeats no step"


@pytest.mark.parametrize(
    ("patch", "size", "is_told"),
    [
        ({"log": ["a"]}, 10, True),
        ({"log": ["a"]}, 990_000, True),
        ({"log": ["a" * 600_000]}, 990_000, False),
        ({}, 10, False),
    ],
)
async def test_a_patch_that_the_run_may_refuse_comes_with_the_steps_before_it(
    patch: dict[str, Any], size: int, *, is_told: bool
) -> None:
    async def adds(state: State, ctx: Context) -> Any:
        await ctx.step("s", lambda: "x" * size)
        return patch

    outcome = await visit(graph_of(adds))

    assert (outcome.kind, outcome.patch) == ("finished", patch)
    assert outcome.journal == ({"s": "x" * size} if is_told else None)


async def test_a_target_that_only_the_graph_of_the_run_has_is_taken() -> None:
    outcome = await visit(graph_of(lambda: Goto("earlier")), targets=("earlier",))

    assert outcome == Finished(goto="earlier", messages_read=0)


async def test_a_reducer_is_held_to_the_bounds_of_its_field() -> None:
    graph = graph_of(lambda: {"balance": -5}, state=Ledger)
    enough, too_little = await visit(graph, {"balance": 7}), await visit(graph, {"balance": 3})

    assert enough == Finished(patch={"balance": -5}, messages_read=0)
    assert too_little.code == "invalid_patch"
    assert "/balance: Input should be greater than or equal to 0" in too_little.message


class Loose(BaseModel):
    log: Annotated[Any, append] = None


async def test_a_reducer_that_cannot_take_the_patch_names_the_field() -> None:
    outcome = await visit(graph_of(lambda: {"log": "text"}, state=Loose))

    assert outcome.code == "invalid_patch"
    assert "'log' merges by 'append'" in outcome.message


# Routes


async def route_c(state: State) -> str:
    return "c"


@pytest.mark.parametrize(
    ("functions", "targets"),
    [
        ([lambda state: "b"], ("b",)),
        ([route_c], ("c",)),
        ([lambda state: ["b", "c"]], ("b", "c")),
        ([lambda state: ("b",)], ("b",)),
        ([lambda state: []], ()),
        ([lambda state: None], ()),
        ([lambda state: END], (END,)),
        ([lambda state: "b", route_c, lambda state: None], ("b", "c")),
    ],
)
async def test_routes_choose_among_their_targets(
    functions: list[Callable[..., Any]], targets: tuple[str, ...]
) -> None:
    assert (await visit(routed(*functions))).route_targets == targets


async def test_a_route_sees_the_values_with_the_patch_merged() -> None:
    graph = routed(
        lambda state: "b" if (state.amount, state.log) == (5, ["old", "new"]) else "c",
        node=lambda: {"amount": 5, "log": ["new"]},
    )

    assert (await visit(graph, {"amount": 1, "log": ["old"]})).route_targets == ("b",)


async def test_routes_are_asked_alone_after_an_interrupt() -> None:
    graph = Graph("g", state=State)
    graph.interrupt("a", prompt="?")
    graph.node(name="b")(lambda: None)
    graph.edge(START, "a")
    graph.route("a", lambda state: "b" if state.amount else END, to=["b", END])

    assert await visit(graph, {"amount": 1}, kind="routes") == Finished(route_targets=("b",))


@pytest.mark.parametrize("returned", [[], (), Goto([], {"amount": 1})])
async def test_an_empty_list_is_an_answer_only_of_a_node_that_may_send(returned: Any) -> None:
    graph = Graph("g", state=State)
    graph.node(name="a")(lambda: returned)
    graph.node(name="b")(lambda: None)
    graph.edge(START, "a")
    graph.route("a", lambda _: "b", to=["b"])

    outcome = await visit(graph, targets=("b",))
    assert (outcome.kind, outcome.code) == ("failed", "unknown_node")
    assert "an empty list of Send, and declares no targets" in outcome.message
    earlier = await visit(graph, targets=("b", "earlier"))
    assert (earlier.kind, earlier.sends) == ("finished", ())


@pytest.mark.parametrize("chosen", [5, ["b", 5], {"b": 1}, True, b"b"])
async def test_a_route_that_returns_no_name_fails_the_visit(chosen: Any) -> None:
    outcome = await visit(routed(lambda state: chosen))

    assert (outcome.kind, outcome.code) == ("failed", "node_failed")
    assert f"the route 'route' of 'a' returned {chosen!r}" in outcome.message


async def test_a_run_keeps_to_the_routes_of_its_own_graph() -> None:
    graph = routed(lambda state: "b", route_c)

    assert (await visit(graph, routes=("route_c",))).route_targets == ("c",)
    assert (await visit(graph, routes=())).route_targets == ()


# Errors


async def test_a_fatal_error_fails_the_visit_for_good() -> None:
    def fail() -> None:
        raise Fatal("no such order")

    outcome = await visit(graph_of(fail))
    assert (outcome.kind, outcome.code) == ("failed", "node_failed")
    assert outcome.message == "Fatal: no such order"


async def test_a_message_of_any_length_is_cut() -> None:
    def fail() -> None:
        raise Fatal("x" * 1_000_000 + "\ud800")

    assert len((await visit(graph_of(fail))).message) < 2_100


async def test_an_error_without_a_readable_text_is_named_by_its_type() -> None:
    class Odd(Fatal):
        def __str__(self) -> str:
            raise KeyError("no text")

    def fail() -> None:
        raise Odd

    outcome = await visit(graph_of(fail))
    assert outcome.message == "Odd: (its text is not available: KeyError)"


@pytest.mark.parametrize(
    ("error", "place"),
    [(ValueError("odd"), "thread"), (NodeError("later"), "loop"), (KeyError("x"), "route")],
)
async def test_other_errors_are_let_through_to_be_tried_again(error: Exception, place: str) -> None:
    def fail(*given: Any) -> None:
        raise error

    async def fail_in_the_loop() -> None:
        fail()

    graph = {"thread": graph_of(fail), "loop": graph_of(fail_in_the_loop), "route": routed(fail)}[
        place
    ]
    with pytest.raises(type(error)) as caught:
        await visit(graph)
    assert caught.value is error


def ask_an_empty_iterator() -> None:
    next(iter(()))


async def cancel_oneself() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


def leave() -> None:
    raise SystemExit(3)


async def leave_from_the_loop() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (ask_an_empty_iterator, "raised StopIteration"),
        (cancel_oneself, "the code awaited something that it had cancelled"),
        (leave, "called sys.exit"),
        (leave_from_the_loop, "called sys.exit"),
    ],
)
async def test_an_error_that_would_end_the_worker_fails_only_the_node(
    function: Callable[..., Any], told: str
) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match=told):
            await visit(graph_of(function))


# Missing code, and values that do not fit


async def test_a_node_that_this_worker_does_not_have_is_missing() -> None:
    with pytest.raises(CodeMissing, match="the graph 'g' of this worker has no node 'gone'"):
        await visit(graph_of(lambda: None), node="gone")


async def test_a_route_that_this_worker_does_not_have_is_missing_before_the_node_runs() -> None:
    ran: list[int] = []
    graph = graph_of(lambda: ran.append(1))

    with pytest.raises(CodeMissing, match="has no route 'gone' from 'a'"):
        await visit(graph, routes=("gone",))
    assert ran == []


@pytest.mark.parametrize("kind", ["visit", "routes"])
async def test_values_that_todays_model_refuses_block_the_visit_before_its_code_runs(
    kind: str,
) -> None:
    ran: list[Any] = []
    graph = routed(ran.append, node=ran.append)

    with pytest.raises(Blocked, match="/amount: Input should be a valid integer") as caught:
        await visit(graph, {"amount": "many"}, kind=kind)
    assert caught.value.code == "values_incompatible"
    assert ran == []


# Stops


async def test_a_coroutine_is_cancelled_at_its_await() -> None:
    began = asyncio.Event()

    async def hold() -> None:
        began.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(run_visit(graph_of(hold), context()))
    await asyncio.wait_for(began.wait(), 30)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
