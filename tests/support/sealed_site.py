"""A deployment that requires encryption: a graph that pays, and runs that an intruder attacks."""

from __future__ import annotations

import base64
import os
from typing import Annotated, Any

from pydantic import BaseModel
from temporal_site import ANYBODY, Site, eventually, replay

from abeyance import START, Context, Graph, append, views


class State(BaseModel):
    amount: int = 0
    text: str = ""
    log: Annotated[list[str], append] = []


def paying(name: str = "paying") -> Graph:
    """Return the graph check -> confirm -> pay, whose first two nodes ask."""
    graph = Graph(name, state=State)

    async def asks(state: State, ctx: Context) -> dict[str, Any]:
        answer = await ctx.interrupt(
            "sure", prompt=f"{ctx.node}: pay {state.amount}?", requested_capability="pay"
        )
        return {"log": [f"{ctx.node} {answer}"]}

    @graph.node
    async def pay(state: State) -> dict[str, Any]:
        return {"log": [f"PAID {state.amount}"]}

    for step in ("check", "confirm"):
        graph.node(name=step, asks="pay")(asks)
    for source, target in ((START, "check"), ("check", "confirm"), ("confirm", "pay")):
        graph.edge(source, target)
    return graph


def a_key(name: str = "k1") -> str:
    """Return an encryption setting with one new key."""
    return f"{name}:{base64.b64encode(os.urandom(32)).decode()}"


async def asking(site: Site, **options: Any) -> tuple[str, views.InterruptView]:
    """Start a run, wait for its first question, and return both."""
    run_id = await site.start({"amount": 101}, **options)
    return run_id, await question(site, run_id, "check")


async def question(site: Site, run_id: str, node: str) -> views.InterruptView:
    """Wait for the question of a node, and return it."""

    async def opened() -> views.InterruptView | None:
        found = await site.client.run(run_id).interrupts()
        return next((each for each in found if each.prompt.startswith(node)), None)

    found: views.InterruptView = await eventually(opened)
    return found


async def stays(site: Site, run_id: str) -> None:
    """Check that the run waits as before, and that its history can be replayed."""
    view = await site.client.run(run_id).view()
    assert (view.status, view.values["log"]) == ("awaiting-input", [])
    await replays(site, run_id)


async def replays(site: Site, run_id: str) -> None:
    """Replay the run's newest history, with the keys of its site."""
    await replay(await site.history(run_id), site.temporal)


async def paid(site: Site, run_id: str) -> list[str]:
    """Answer all questions with every capability, and return the log of the ended run."""
    for node in ("check", "confirm"):
        asked = await question(site, run_id, node)
        await site.client.run(run_id).respond({asked.id: "yes"}, principal=ANYBODY)
    log: list[str] = (await site.ended(run_id)).values["log"]
    return log
