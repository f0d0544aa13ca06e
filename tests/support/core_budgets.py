"""Runs of agents with budgets, and the turns that use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core_agents import agent, agent_node
from core_drive import Drive, graph

from abeyance.core import events
from abeyance.core.bounds import Amounts
from abeyance.core.budgets import why_stopped
from abeyance.core.json import Json
from abeyance.core.outcome import Failed, Finished, Send, Stopped
from abeyance.core.policy import Principal
from abeyance.core.spec import START, BudgetSpec, InterruptSpec, SubgraphNode

BOSS = Principal(subject="boss", capabilities=("runs:control", "money"))


def budget(
    usd: float | None = None,
    tokens: int | None = None,
    time: float | None = None,
    turns: int | None = None,
    **question: Any,
) -> BudgetSpec:
    limits = Amounts(usd=usd, tokens=tokens, time=time, turns=turns)
    return BudgetSpec(limits=limits, question=InterruptSpec(name="budget", prompt="", **question))


def clerk(its: BudgetSpec | None = None, *more: Any, **about: Any) -> SubgraphNode:
    return replace(agent_node("review", *more, **about), graph=replace(agent(*more), budget=its))


def one(its: BudgetSpec | None = None, *more: Any, after: str | None = None, **about: Any) -> Drive:
    """A run of the agent `clerk` with a budget."""
    rest = [] if after is None else [after]
    return Drive(graph(clerk(its, *more, **about), *rest, ways=[(START, "review")]))


def two(its: BudgetSpec, **about: Any) -> Drive:
    """A run of the agents `ann` and `bob`, side by side, each with this budget."""
    nodes = [agent_node(name, name=name, **about) for name in ("ann", "bob")]
    nodes = [replace(node, graph=replace(node.graph, budget=its)) for node in nodes]
    rest = ["next"] if about else []
    return Drive(graph(*nodes, *rest, ways=[(START, "ann"), (START, "bob")]))


def took(
    run: Drive,
    *sends: Send,
    who: str = "clerk",
    seconds: float = 0.0,
    model: str = "m",
    goto: str | None = None,
    **usage: Json,
) -> None:
    """A turn of an agent has ended, and used this."""
    visits = [v for v in run.state.visits.values() if v.address.rpartition(":")[0].count(who)]
    address = next(v.address for v in visits if v.node == "model" and v.state.kind == "running")
    turn = {"model": model, "usage": {"requests": 1, **usage}}
    ended = Finished(turn=turn, sends=sends or None, goto=goto)
    run.feed(events.VisitEnded, visit=address, outcome=ended, worked=seconds)


def asked(run: Drive) -> dict[str, Any]:
    reason = run.open("budget").reason
    assert isinstance(reason, dict)
    return reason


def raised(run: Drive, **amounts: Json) -> None:
    run.answer("budget", {"raise_to": amounts})


def stopped(run: Drive) -> None:
    """Ada stops the agent, and its last turn has kept what it had not read."""
    run.answer("budget", {"stop": True})
    last_turns(run)


def last_turns(run: Drive) -> None:
    for visit in [*run.state.visits.values()]:
        why = why_stopped(visit.questions.answers)
        if why is not None:
            failed = Failed(code="budget_exhausted", message=why, patch={"agent_state": {"c": 1}})
            outcome = failed if run.state.ending is None else Stopped()
            run.feed(events.VisitEnded, visit=visit.address, outcome=outcome)
