"""An agent in the core: a graph whose node `model` calls tools and reads their results."""

from __future__ import annotations

from typing import Any

from core_drive import Drive, edge, graph, nested

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.outcome import Asked, Call, Failed, Finished, Interrupted, Send
from abeyance.core.spec import (
    START,
    FunctionNode,
    GraphSpec,
    InterruptSpec,
    Node,
    Reducer,
    ReturnErrorToCaller,
    SubgraphNode,
)
from abeyance.core.terms import Kind

CLERK = "graph:g;node:review;agent:clerk"
FIELDS: dict[str, Reducer] = {
    "input": "last",
    "transcript": "last",
    "output": "last",
    "agent_state": "merge",
}


def tool(id_: str) -> FunctionNode:
    return FunctionNode(id=id_, on_error=ReturnErrorToCaller(), asks=())


def agent(*more: Node, name: str = "clerk") -> GraphSpec:
    """Return the graph of an agent with the tools `pay` and `delete`, and more."""
    tools: list[Node] = [tool("pay"), tool("delete"), *more]
    names = [each.id for each in tools]
    model = FunctionNode(id="model", to=(*names, "model"), reads_inbox=True, guarded=True)
    return graph(
        model, *tools, ways=[(START, "model"), edge(names, "model")], fields=FIELDS, name=name
    )


def agent_node(id_: str = "review", *more: Node, name: str = "clerk", **about: Any) -> SubgraphNode:
    given = {"input": {}, "output": {"x": "output"}, "agent": True, **about}
    return nested(id_, agent(*more, name=name), **given)


def helper(**about: Any) -> SubgraphNode:
    """Return an agent that is a tool of another agent."""
    given = {"output": {}, "result": "output", "on_error": ReturnErrorToCaller(), **about}
    return agent_node("ask_helper", name="helper", **given)


def reviewing(*more: Node, after: tuple[Node, ...] = (), **about: Any) -> Drive:
    """Start a run whose node `review` is the agent `clerk`, at its first turn; `after` follows it."""
    node = agent_node("review", *more, **about.pop("node", {}))
    rest = [each.id for each in after]
    ways = [(START, "review"), *zip(["review", *rest], rest, strict=False)]
    return Drive(graph(node, *after, ways=ways), **about)


def question(name: str, kind: Kind = "approval", process: str | None = None, **about: Any) -> Asked:
    given = {"prompt": "May it?", **about}
    return Asked(question=InterruptSpec(name=name, **given), kind=kind, process=process)


def call(
    id_: str,
    node: str = "pay",
    *asked: Asked,
    once: bool | None = None,
    item: Json = None,
) -> Send:
    """Return a call of a tool. A call that asks for an approval may run only once."""
    is_once = any(each.kind == "approval" for each in asked) if once is None else once
    shown = {"tool": node, "call_id": id_} if item is None else item
    return Send(node=node, item=shown, call=Call(tool=node, id=id_, interrupts=asked, once=is_once))


def gated(id_: str, node: str = "pay", **about: Any) -> Send:
    """Return a call that a person must approve."""
    return call(id_, node, question("approve", **about))


def turn(run: Drive, *calls: Send, node: str = "model", **patch: Json) -> None:
    """End the model's turn: it calls these tools."""
    address = run.visit(node).address
    run.end(Finished, visit=address, patch=patch, sends=calls)


def calls(run: Drive) -> list[str]:
    """Return the ids of the calls whose code runs, oldest first."""
    return [each.call.id for each in run.state.visits.values() if each.call and is_running(each)]


def is_running(visit: Any) -> bool:
    return bool(visit.state.kind == "running")


def address_of(run: Drive, id_: str) -> str:
    return next(
        each.address for each in run.state.visits.values() if each.call and each.call.id == id_
    )


def done(run: Drive, id_: str, result: Json = None, **patch: Json) -> None:
    """End the code of a call with a result."""
    run.end(Finished, visit=address_of(run, id_), patch=patch, result=result)


def failed(run: Drive, id_: str, message: str = "it broke", *, fatal: bool = False) -> None:
    """Let the code of a call fail."""
    visit = address_of(run, id_)
    run.end(Failed, visit=visit, code="node_failed", message=message, fatal=fatal)


def asks(run: Drive, id_: str, *asked: Asked, **fields: Any) -> None:
    """Let the code of a call ask people."""
    run.end(Interrupted, visit=address_of(run, id_), interrupts=asked, **fields)


def said(run: Drive, id_: str, value: Json, name: str = "approve") -> None:
    """Answer the question `name` of a call as Ada."""
    (entry,) = [
        each
        for each in run.state.ledger.open.values()
        if each.visit == address_of(run, id_) and each.name == name
    ]
    run.feed(events.Responded, **run.response({entry.id: value}))


def results(run: Drive, node: str = "model") -> list[Json]:
    """Return the results of the calls that the latest turn got, in their order."""
    found = run.orders(node)[-1].results or []
    return [each.get("result") for each in found]
