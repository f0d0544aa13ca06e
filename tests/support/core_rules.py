"""Rules, and graphs that have some, for the tests of the core."""

from __future__ import annotations

from core_drive import Drive, Ways, graph

from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    START,
    Ask,
    GoTo,
    GraphSpec,
    Halt,
    HaltRun,
    InterruptSpec,
    Matches,
    Node,
    OnTimeout,
    Route,
    Rule,
    RuleAction,
)
from abeyance.core.terms import Terms

BOSS = Principal(subject="boss", capabilities=("runs:control", "approve"))
WORK = "graph:g;node:work"


def rule(id_: str, node: str | None, *actions: RuleAction, **equals: Json) -> Rule:
    """A rule on a node; `x__y` is the path `x.y`."""
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
    """`work` leads to `next` and that to `other`, unless rules say else; `idle` goes on beside."""
    return graph("idle", *nodes, ways=ways, routes=routes, rules=rules)


def after_work(run: Drive) -> list[str]:
    return [node for node in run.running if node != "idle"]


GO, STOP = GoTo(node="other"), HaltRun(reason="enough")
