"""The context of code, besides asking: steps, links, files, messages, and what code must await."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from abeyance import START, Context, Graph, Interrupt, append
from abeyance.errors import Fatal
from abeyance.storage.blobs import MemoryBlobs
from abeyance.storage.run_files import MAX_BYTES, store
from abeyance.testing import InMemoryRun, run

BASE = "http://127.0.0.1:8000/inbox#"


class State(BaseModel):
    count: int = 0
    seen: dict[str, str] = {}
    log: Annotated[list[str], append] = []


class Account(BaseModel):
    iban: str
    opened: datetime | None = None


def one_node(work: Callable[..., Any], *, retries: int = 0) -> Graph:
    graph = Graph("one", state=State)
    graph.node(name="work", retries=retries)(work)
    graph.edge(START, "work")
    return graph


async def begun(graph: Graph) -> InMemoryRun:
    trial = InMemoryRun(graph)
    await trial.start()
    return trial


async def failed(work: Callable[..., Any]) -> str:
    """Return the error of a run that fails because of this node."""
    ended = await run(one_node(work))
    error = ended.state.ending and ended.state.ending.error
    assert error
    return error.message


# Steps


async def test_a_step_returns_the_same_whether_it_ran_or_was_recorded() -> None:
    seen: list[Any] = []
    account = Account(iban="DE1", opened=datetime(2026, 1, 1, tzinfo=UTC))

    async def opened() -> Account:
        return account

    async def work(state: State, ctx: Context) -> None:
        seen.append(await ctx.step("account", opened))
        seen.append(await ctx.step("plain", lambda: ("a", 1)))
        await ctx.interrupt("q")

    await run(one_node(work), answers={"q": 1})
    assert seen == [account, ["a", 1]] * 2


async def test_a_step_of_what_is_not_json_fails_and_names_itself() -> None:
    async def work(state: State, ctx: Context) -> None:
        await ctx.step("odd", object)

    said = "the step 'odd' returned a value of type object that is not JSON"
    assert said in await failed(work)


@pytest.mark.parametrize("name", [1, None, "", "/made", "\ud800"])
async def test_the_name_of_a_step_is_a_text_that_is_no_marker(name: Any) -> None:
    async def work(state: State, ctx: Context) -> None:
        await ctx.step(name, lambda: 1)

    assert "of a step is invalid" in await failed(work)


async def test_a_retry_goes_on_behind_the_finished_steps() -> None:
    done: Counter[str] = Counter()

    async def work(state: State, ctx: Context) -> None:
        await ctx.step("one", lambda: done.update(["one"]))
        if ctx.attempt < 3:
            raise ValueError("not yet")
        await ctx.step("two", lambda: done.update(["two"]))

    ended = await run(one_node(work, retries=2))
    assert (ended.status, done) == ("completed", {"one": 1, "two": 1})


# Links


async def test_a_link_is_that_of_the_question_before_it_is_asked_and_after_its_answer() -> None:
    links: list[list[str]] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        links.append([ctx.link("q", process=name) for name in ("a", "b")])
        await ctx.gather(ctx.interrupt("q", process="a"), ctx.interrupt("q", process="b"))
        return {"log": [ctx.link("q", process="a")]}

    trial = await begun(one_node(work))
    first, second = await trial.interrupts()
    await trial.respond(first.id, "yes")
    await trial.respond(second.id, "yes")

    assert links == [[f"{BASE}{first.id}", f"{BASE}{second.id}"]] * 3
    assert trial.values["log"] == links[0][:1]


async def test_a_question_of_another_visit_has_another_link() -> None:
    seen: list[str] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        name = "a" if state.count % 2 == 0 else "b"
        seen.append(ctx.link(name))
        await ctx.interrupt(name)
        return {"count": 0}

    graph = one_node(work)
    graph.route("work", lambda state: "work" if len(seen) < 5 else None, to=["work"])
    trial = await begun(graph)
    asked = [(await trial.interrupts())[0].id]
    # Each edit has the code ask something else, so its question is withdrawn and another one asked.
    for count in (1, 2):
        await trial.edit_values({"count": count})
        asked += [entry.id for entry in await trial.interrupts()]
    await trial.respond(response="yes")
    asked += [entry.id for entry in await trial.interrupts()]

    assert len({*asked}) == 4
    first, second, third, last = (f"{BASE}{id_}" for id_ in asked)
    assert seen == [first, second, third, third, last]


# Files


async def test_the_same_file_is_the_same_reference_in_every_entry_of_a_visit() -> None:
    stored: list[dict[str, str]] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        stored.append(await ctx.file("scan.pdf", b"%PDF-1.7"))
        await ctx.interrupt("q", payload=stored[-1])
        return {"seen": stored[-1]}

    trial = await begun(one_node(work))
    (asked,) = await trial.interrupts()
    await trial.respond(response="yes")

    assert stored[0] == stored[1] == asked.payload == trial.values["seen"]
    assert (asked.payload["name"], asked.payload["type"]) == ("scan.pdf", "application/pdf")
    assert await trial.file(asked.payload) == b"%PDF-1.7"


@pytest.mark.parametrize(
    ("name", "data", "type_", "fault"),
    [
        ("", b"", None, "not a name of a file"),
        ("a/b.png", b"", None, "not a name of a file"),
        ("a\u202egnp.exe", b"", None, "not a name of a file"),
        ("a.png", b"", "image/png; charset=x\r\n", "not a media type"),
        ("a.png", b"x" * (MAX_BYTES + 1), None, "at most 10485760"),
    ],
)
async def test_an_invalid_file_is_refused(
    name: str, data: bytes, type_: str | None, fault: str
) -> None:
    with pytest.raises(Fatal, match=fault):
        await store(MemoryBlobs(), "run-1", name, data, type_)


async def test_a_file_of_an_unknown_kind_is_only_bytes() -> None:
    stored = await store(MemoryBlobs(), "run-1", "data.nothing", b"", None)

    assert stored["type"] == "application/octet-stream"


# Messages


async def test_a_long_node_takes_one_message_at_a_time() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.interrupt("ready")
        told = []
        while (message := await ctx.check_interrupt()) is not None:
            told.append(message.text)
        return {"log": told}

    trial = await begun(one_node(work))
    for text in ("one", "two", "three"):
        await trial.send(text)
    await trial.respond("ready", True)
    assert trial.values["log"] == ["one", "two", "three"]


# Awaiting: a call does nothing and opens no gate before the code awaits it


async def test_a_question_that_is_not_awaited_opens_no_gate() -> None:
    paid: list[str] = []

    async def gated(state: State, ctx: Context) -> None:
        if ctx.interrupt("sure", response=bool):
            paid.append("all of it")

    def left_alone(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [str(type(ctx.interrupts([Interrupt("a"), Interrupt("b")])))]}

    assert "the interrupt 'sure' is not awaited, so nobody was asked" in await failed(gated)
    assert "the list of interrupts is not awaited" in await failed(left_alone)
    assert paid == []


@pytest.mark.parametrize(
    "use", [lambda answer: answer.lower(), lambda answer: answer["paths"], lambda answer: [*answer]]
)
async def test_an_answer_that_is_used_before_it_is_awaited_says_so(
    use: Callable[[Any], object],
) -> None:
    def work(state: State, ctx: Context) -> None:
        use(ctx.interrupt("sure"))

    assert "the interrupt 'sure' is not awaited, so nobody was asked" in await failed(work)


@pytest.mark.parametrize(
    ("use", "call"),
    [
        (lambda ctx: ctx.step("charge", list), "ctx.step('charge')"),
        (lambda ctx: ctx.file("a.txt", b"a"), "ctx.file('a.txt')"),
        (lambda ctx: ctx.gather(), "ctx.gather()"),
        (lambda ctx: ctx.check_interrupt(), "ctx.check_interrupt()"),
        (lambda ctx: ctx.wait_if_paused("5m"), "ctx.wait_if_paused('5m')"),
    ],
)
async def test_a_node_that_awaits_nothing_of_what_it_calls_fails(
    use: Callable[[Context], object], call: str
) -> None:
    async def left_alone(state: State, ctx: Context) -> None:
        use(ctx)

    async def gated(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": ["done"] if use(ctx) else []}

    for work in (left_alone, gated):
        assert f"{call} is not awaited, so it did nothing: write `await" in await failed(work)


async def test_a_step_that_is_stopped_before_it_begins_fails_no_node() -> None:
    async def work(state: State, ctx: Context) -> None:
        unwanted: asyncio.Task[list[str]] = asyncio.create_task(ctx.step("unwanted", list))
        unwanted.cancel()
        await asyncio.wait([unwanted])

    assert (await run(one_node(work))).status == "completed"


async def test_a_question_may_be_awaited_in_a_task_or_later() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        later = ctx.interrupt("later")
        first = await asyncio.create_task(ctx.interrupt("first"))
        return {"log": [*await asyncio.gather(ctx.interrupt("gathered")), first, await later]}

    answers = {"first": "1", "gathered": "2", "later": "3"}
    assert (await run(one_node(work), answers=answers)).values["log"] == ["2", "1", "3"]
