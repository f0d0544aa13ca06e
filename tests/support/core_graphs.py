"""Graphs of the tests of the core: with fan-outs, with static interrupts, and with rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_drive import Drive, Ways, chain, graph

from abeyance.core.json import Json
from abeyance.core.spec import (
    START,
    Ask,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    HaltRun,
    InterruptSpec,
    Matches,
    Node,
    OnTimeout,
    Reducer,
    Route,
    Rule,
    RuleAction,
)
from abeyance.core.state import Limits
from abeyance.core.terms import Terms

FIELDS: Mapping[str, Reducer] = {"x": "last", "log": "append", "sum": "add", "by": "merge"}

# Fan-outs, and the results of their items


def sending(
    *nodes: str | Node, ways: Ways = (), to: tuple[str, ...] = ("one",), **kwargs: Any
) -> GraphSpec:
    """Return a graph that begins with `s`, which sends items."""
    sender = FunctionNode(id="s", to=to)
    return graph(sender, *nodes, ways=[(START, "s"), *ways], fields=FIELDS, **kwargs)


def fan(*nodes: str | Node, ways: Ways = (), **kwargs: Any) -> GraphSpec:
    """Return a graph in which `s` sends items to `one`, and `c` follows their join."""
    names = {node if isinstance(node, str) else node.id for node in nodes}
    own = [node for node in ("one", "c") if node not in names]
    return sending(*nodes, *own, ways=[(["one"], "c"), *ways], **kwargs)


def sent(
    spec: GraphSpec,
    items: list[Json],
    *,
    values: Mapping[str, Json] | None = None,
    limits: Limits | None = None,
) -> Drive:
    """Return a run in which `s` has sent the items to `one`."""
    run = Drive(spec, values=values, limits=limits)
    run.finish("s", sends=[("one", item) for item in items])
    return run


def results(run: Drive) -> list[tuple[Json, str]]:
    """Return item and status of every result that `c`, the node behind the join, gets."""
    found = run.orders("c")[-1].results
    assert found is not None
    return [(each["item"], each["status"]) for each in found]


# Static interrupts

BEFORE, AFTER = "interrupt_before", "interrupt_after"


def before(*nodes: Any, **kwargs: Any) -> GraphSpec:
    return chain(*(nodes or ("a", "b")), before=["a"], **kwargs)


def routed(**kwargs: Any) -> GraphSpec:
    """Return a graph in which `a` routes to `b` or `c`, after a static interrupt."""
    return graph(
        FunctionNode(id="a", to=("d",)),
        *("b", "c", "d"),
        ways=[(START, "a")],
        routes=[Route(source="a", name="r", targets=("b", "c"))],
        after=["a"],
        **kwargs,
    )


def edit(version: int, **values: Json) -> dict[str, Json]:
    """Return an answer to a static interrupt that edits values."""
    return {"values": values, "version": version}


# Rules

GO, STOP = GoTo(node="other"), HaltRun(reason="enough")
WORK = "graph:g;node:work"


def rule(id_: str, node: str | None, *actions: RuleAction, **equals: Json) -> Rule:
    """Return a rule on a node; `x__y` is the path `x.y`."""
    paths = {name.replace("__", "."): value for name, value in equals.items()}
    return Rule(id=id_, condition=Matches(node=node, equals=paths), actions=actions)


def ask(
    name: str,
    *,
    prompt: str = "Sure?",
    timeout: float | None = None,
    on_timeout: OnTimeout | None = None,
    capability: str | None = None,
    answer_to: str | None = None,
    terms: Terms | None = None,
    schema: Json = None,
) -> Ask:
    question = InterruptSpec(
        name=name,
        prompt=prompt,
        requested_capability=capability,
        timeout=timeout,
        on_timeout=on_timeout or Halt(),
        terms=terms,
        response_schema=schema,
    )
    return Ask(question=question, answer_to=answer_to)


def ruled(
    *rules: Rule,
    nodes: tuple[str | Node, ...] = ("work", "next", "other"),
    ways: Ways = ((START, "work"), (START, "idle"), ("work", "next"), ("next", "other")),
    routes: tuple[Route, ...] = (),
) -> GraphSpec:
    """Return a graph work -> next -> other, unless rules decide otherwise; `idle` runs beside it."""
    return graph("idle", *nodes, ways=ways, routes=routes, rules=rules)


def after_work(run: Drive) -> list[str]:
    return [node for node in run.running if node != "idle"]
