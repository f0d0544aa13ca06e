"""Scenarios: moments of a run that somebody is to be notified of. Nobody delivers them here."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from receiver import rules
from sample_graphs import State, gated
from temporal_site import Site

from abeyance import START, Context, Graph, wire
from abeyance.notifications.config import Notifications
from tests.replay.stage import SHORT, Scenario, Stage

YES = {"approved": True}


def _wanting(*events: str) -> Notifications:
    return rules(({"event": [*events]}, [{"apprise": "json://127.0.0.1:1"}]))


def _site(stage: Stage, graph: Graph, file: Notifications) -> Site:
    return Site(
        stage.temporal,
        graph,
        patience=30,
        strict_sandbox=stage.strict_sandbox,
        notifications=file,
    )


async def announced_when_it_asks_and_ends(stage: Stage) -> None:
    site = _site(stage, gated(), _wanting("interrupt.*", "run.completed"))
    async with site.worker():
        run = await stage.started(site)
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


async def announced_from_history_to_history(stage: Stage) -> None:
    graph = Graph("announced", state=State)
    for name in ("one", "two"):
        graph.node(name=name, local=True)(_emitting(name))
    graph.node(name="three")(_emitting("three"))
    graph.interrupt("sign", prompt="Sign?")
    for before, after in pairwise([START, "one", "two", "three", "sign"]):
        graph.edge(before, after)
    site = _site(stage, graph, _wanting("*", "user.*"))
    async with site.worker():
        run = await stage.started(site, limits=SHORT)
        await run.waiting()
        await run.hand_over()
        await run.answer(sign="yes")
        await run.ended()


async def told_that_a_notification_failed(stage: Stage) -> None:
    async with stage.run(gated()) as run:
        view = await run.waiting()
        refused = wire.Undelivered(receiver="mail to ada", reason="no such address", attempts=3)
        failed = wire.NotificationFailed(
            about="interrupt.opened", undelivered=(refused,), interrupt=view.interrupts[0].id
        )
        await run.site.client.run(run.id).notification_failed(failed)
        await run.answer(approve=YES)
        await run.ended()


def _emitting(name: str) -> Any:
    async def emit(state: State, ctx: Context) -> dict[str, Any]:
        ctx.emit(name)
        return {"log": [name]}

    return emit


SCENARIOS: tuple[Scenario, ...] = (
    announced_when_it_asks_and_ends,
    announced_from_history_to_history,
    told_that_a_notification_failed,
)
