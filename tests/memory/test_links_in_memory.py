"""`ctx.link`: the address of a question, before it is asked and after."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import START, Context, Graph, append
from abeyance.testing import InMemoryRun

BASE = "http://127.0.0.1:8000/inbox#"


class State(BaseModel):
    count: int = 0
    links: Annotated[list[str], append] = []


def one_node(work: Any) -> Graph:
    graph = Graph("one", state=State)
    graph.node(name="work")(work)
    graph.edge(START, "work")
    return graph


async def open_links(trial: InMemoryRun) -> list[str]:
    return [f"{BASE}{each.id}" for each in await trial.interrupts()]


async def test_a_link_is_that_of_the_question_before_it_is_asked_and_after_its_answer() -> None:
    seen: list[str] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        seen.append(ctx.link("q"))
        await ctx.interrupt("q")
        return {"links": [ctx.link("q")]}

    trial = InMemoryRun(one_node(work))
    await trial.start()
    asked = await open_links(trial)
    await trial.respond(response="yes")

    assert [*seen, *trial.values["links"]] == [*asked, *asked, *asked]


async def test_a_question_that_is_still_open_keeps_its_link_beside_one_that_was_answered() -> None:
    seen: list[list[str]] = []

    async def work(state: State, ctx: Context) -> None:
        seen.append([ctx.link("q", process=name) for name in ("a", "b")])
        await ctx.gather(ctx.interrupt("q", process="a"), ctx.interrupt("q", process="b"))

    trial = InMemoryRun(one_node(work))
    await trial.start()
    first, _ = await trial.interrupts()
    await trial.respond(first.id, "yes")

    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_each_visit_of_a_node_has_links_of_its_own() -> None:
    seen: list[str] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        seen.append(ctx.link("q"))
        await ctx.interrupt("q")
        return {"count": state.count + 1}

    graph = one_node(work)
    graph.route("work", lambda state: "work" if state.count < 2 else None, to=["work"])
    trial = InMemoryRun(graph)
    await trial.start()
    (first,) = await open_links(trial)
    await trial.respond(response="yes")
    (second,) = await open_links(trial)

    assert first != second
    assert seen == [first, first, second]


async def test_a_question_that_was_withdrawn_and_is_asked_anew_has_another_link() -> None:
    seen: list[str] = []

    async def work(state: State, ctx: Context) -> None:
        name = "a" if state.count % 2 == 0 else "b"
        seen.append(ctx.link(name))
        await ctx.interrupt(name)

    trial = InMemoryRun(one_node(work))
    await trial.start()
    asked = await open_links(trial)
    for count in (1, 2):
        await trial.edit_values({"count": count})
        asked += await open_links(trial)

    assert len({*asked}) == 3
    assert seen == asked
