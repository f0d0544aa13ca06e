"""Asking people from code, in milliseconds: what an author may write, and how wrong use fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from abeyance import (
    START,
    CompositeInterrupt,
    Context,
    Escalation,
    Graph,
    Interrupt,
    Principal,
    append,
)
from abeyance.testing import InMemoryRun, run


class State(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []


class Account(BaseModel):
    iban: str
    opened: datetime | None = None


def one_node(work: Callable[..., Any], **options: Any) -> Graph:
    graph = Graph("one", state=State)
    graph.node(name="work", retries=0, **options)(work)
    graph.edge(START, "work")
    return graph


async def failed(work: Callable[..., Any], **options: Any) -> str:
    """Return the error of a run that fails because of this node."""
    ended = await run(one_node(work, **options), answers={"q": 1})
    assert ended.status == "failed"
    error = ended.state.ending and ended.state.ending.error
    assert error
    return f"{error.code}: {error.message}"


async def test_the_answer_has_the_type_that_was_asked_for() -> None:
    got: list[Any] = []

    async def work(state: State, ctx: Context) -> None:
        got.append(await ctx.interrupt("account", response=Account))
        got.append(await ctx.interrupt("choice", response=Literal["a", "b"]))
        got.append(await ctx.interrupt("count", response={"type": "integer"}))
        got.append(await ctx.interrupt("anything"))

    answers = {
        "account": {"iban": "DE1", "opened": "2026-01-02T03:04:05Z"},
        "choice": "b",
        "count": 0,
        "anything": None,
    }
    ended = await run(one_node(work), answers=answers)
    assert ended.status == "completed"
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert got[-4:] == [Account(iban="DE1", opened=moment), "b", 0, None]


async def test_processes_run_side_by_side_and_only_what_waits_is_asked() -> None:
    done: Counter[str] = Counter()

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async def process(name: str) -> str:
            await ctx.step(f"begin {name}", lambda: done.update([name]))
            return f"{name} {await ctx.interrupt('go', process=name)}"

        async def quick() -> str:
            return "quick"

        return {"log": await ctx.gather(process("a"), quick(), process("b"))}

    ended = await run(one_node(work), answers={"go": "yes"})
    assert ended.values["log"] == ["a yes", "quick", "b yes"]
    assert done == {"a": 1, "b": 1}


async def test_a_task_group_that_asks_is_a_composite_too() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            a = group.create_task(ctx.interrupt("q", process="a"))
            b = group.create_task(ctx.interrupt("q", process="b"))
        return {"log": [a.result(), b.result()]}

    ended = await run(one_node(work), answers={"q": "y"})
    assert ended.values["log"] == ["y", "y"]


async def test_a_raised_interrupt_is_answered_by_looking_at_the_answers() -> None:
    def work(state: State, ctx: Context) -> dict[str, Any]:
        if not ctx.resumed:
            raise Interrupt("q", state={"seen": 1})
        return {"log": [f"{ctx.answers['q']} {ctx.targets} {ctx.saved_state}"]}

    ended = await run(one_node(work), answers={"q": "y"})
    assert ended.values["log"] == ["y {'q': 'y'} {'seen': 1}"]


async def test_a_moment_is_a_deadline_and_lets_time_decide() -> None:
    moment = datetime(2026, 1, 9, tzinfo=UTC)

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        said = await ctx.interrupt("q", deadline=moment, on_timeout={"default": "late"})
        return {"log": [said]}

    trial = InMemoryRun(one_node(work))
    await trial.start()
    assert (await trial.interrupts())[0].deadline == moment
    await trial.advance("7d")
    assert trial.status == "awaiting-input"
    await trial.advance("1d")
    assert (trial.status, trial.values["log"]) == ("completed", ["late"])


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("q", {"timeout": "soon"}, "'soon' is not a duration"),
        ("q", {"timeout": 0}, "must be positive"),
        ("q", {"timeout": -5}, "a timeout of -5 s"),
        ("q", {"on_timeout": "goto:x"}, "has on_timeout but no timeout: add a timeout"),
        ("q", {"timeout": "1d", "on_timeout": "goto:x"}, "would go to 'x' at its deadline"),
        ("q", {"timeout": "1d", "on_timeout": "perhaps"}, "use 'halt', 'goto:<node>'"),
        (
            "q",
            {"timeout": "1d", "on_timeout": {"default": 1}, "response": Account},
            "default answer that does not fit",
        ),
        ("q", {"deadline": datetime(2026, 1, 1)}, "use a datetime with a time zone"),  # noqa: DTZ001
        (
            "q",
            {"deadline": datetime(2026, 2, 1, tzinfo=UTC), "timeout": 3},
            "both a timeout and a deadline",
        ),
        ("q", {"reason": {1, 2}}, "set is not a JSON value"),
        ("q", {"reason": "x" * 200_000}, "the limit is 100000"),
        ("q", {"prompt": "x" * 200_000}, "the limit is 100000"),
        ("q", {"prompt": 5}, "the interrupt 'q', prompt=: 5 is not a string"),
        ("q", {"prompt": "\ud800"}, "the interrupt 'q', prompt=: 'utf-8' codec can't encode"),
        ("\ud800", {}, "use a string that"),
        ("q", {"response": object()}, "cannot be written as a JSON Schema"),
        ("q", {"requested_capability": "two words"}, "which no principal can have"),
        ("q", {"requested_capability": 7}, "the capability 7, which no principal can have"),
        ("", {}, "use a string that is not empty"),
        ("a/b", {}, "has no '/'"),
        ("q", {"state": {1}}, "the state of an interrupt of 'work' is not JSON"),
    ],
)
async def test_a_question_that_cannot_be_asked_fails_the_visit_and_says_why(
    name: str, options: dict[str, Any], said: str
) -> None:
    async def work(state: State, ctx: Context) -> None:
        await ctx.interrupt(name, **options)

    assert said in await failed(work)


async def test_an_object_that_is_not_an_interrupt_is_refused() -> None:
    async def asks(state: State, ctx: Context) -> None:
        await ctx.interrupts(["sure"])  # type: ignore[list-item]

    def raises(state: State) -> None:
        raise CompositeInterrupt(["sure"])  # type: ignore[list-item]

    for work in (asks, raises):
        assert "'sure' is not an Interrupt: write Interrupt('name', prompt=...)" in await failed(
            work
        )


@pytest.mark.parametrize("catching", ["bare", "base", "gathered", "left behind"])
async def test_code_that_catches_its_own_question_does_not_go_on_without_the_answer(
    catching: str,
) -> None:
    async def asks(state: State, ctx: Context) -> dict[str, Any]:
        match catching:
            case "bare":
                try:
                    await ctx.interrupt("sure")
                except:  # noqa: E722
                    return {"log": ["went on without"]}
            case "base":
                with contextlib.suppress(BaseException):
                    await ctx.interrupt("sure")
            case "gathered":
                await asyncio.gather(ctx.interrupt("sure"), return_exceptions=True)
            case _:
                await asyncio.wait([asyncio.create_task(ctx.interrupt("sure"))])
        return {"log": ["went on"]}

    assert "the interrupt 'sure' is unanswered, but the code ended" in await failed(asks)


async def test_a_question_that_is_caught_and_let_through_is_asked() -> None:
    cleaned: list[str] = []

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        try:
            answer = await ctx.interrupt("sure")
        except BaseException:
            cleaned.append("up")
            raise
        return {"log": [answer]}

    ended = await run(one_node(work), answers={"sure": "yes"})
    assert (ended.values["log"], cleaned) == (["yes"], ["up"])


async def test_an_event_has_a_name() -> None:
    async def nameless(state: State, ctx: Context) -> None:
        ctx.emit("")

    async def numbered(state: State, ctx: Context) -> None:
        ctx.emit(5)  # type: ignore[arg-type]

    for work in (nameless, numbered):
        assert "use a string of 1 to 100 characters" in await failed(work)


async def test_names_that_are_used_twice_are_an_authors_error() -> None:
    async def asks_twice(state: State, ctx: Context) -> None:
        for name in ("q", "q"):
            await ctx.interrupt(name)

    async def steps_twice(state: State, ctx: Context) -> None:
        await ctx.step("s", lambda: 1)
        await ctx.step("s", lambda: 2)

    assert "the interrupt 'q' is asked twice" in await failed(asks_twice)
    assert "the step 's' runs twice" in await failed(steps_twice)


async def test_a_local_node_can_neither_ask_nor_keep_steps() -> None:
    async def asks(state: State, ctx: Context) -> None:
        await ctx.interrupt("q")

    def raises(state: State, ctx: Context) -> None:
        raise Interrupt("q")

    async def steps(state: State, ctx: Context) -> None:
        await ctx.step("s", lambda: 1)

    for work in (asks, raises, steps):
        assert "a local node cannot" in await failed(work, local=True)


async def test_composites_may_stand_in_each_other() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        if len(ctx.targets) < 2:
            inner = CompositeInterrupt([Interrupt("a", process="p")])
            left = [each for each in inner.interrupts if each.key not in ctx.targets]
            rest = [Interrupt("b")] if "b" not in ctx.targets else []
            raise CompositeInterrupt([*rest, CompositeInterrupt(left)])
        return {"log": sorted(ctx.targets)}

    ended = await run(one_node(work), answers={"a": 1, "b": 2})
    assert ended.values["log"] == ["b", "p/a"]


async def test_the_questions_and_events_of_an_outcome_are_bounded() -> None:
    async def asks(state: State, ctx: Context) -> None:
        await ctx.interrupts([Interrupt(f"q{n}", payload="x" * 90_000) for n in range(20)])

    async def emits(state: State, ctx: Context) -> None:
        for _ in range(3):
            ctx.emit("much", "x" * 90_000)

    async def emits_often(state: State, ctx: Context) -> None:
        for _ in range(1_001):
            ctx.emit("often")

    assert "asks 20 questions that take 18" in await failed(asks)

    assert "200000 bytes of them" in await failed(emits)
    assert "emits more than 1000 events" in await failed(emits_often)


async def test_an_event_has_the_prefix_of_its_kind_once() -> None:
    async def emits(state: State, ctx: Context) -> None:
        ctx.emit("charged")
        ctx.emit("user.charged")

    ended = await run(one_node(emits))
    own = [
        event.type async for event in ended.events(follow=False) if event.type.startswith("user.")
    ]
    assert own == ["user.charged", "user.charged"]


async def test_a_visit_keeps_its_state_until_it_gives_another() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.interrupt("first", state={"seen": 1})
        await ctx.interrupt("second")
        await ctx.interrupt("third", state=ctx.saved_state | {"third": True})
        return {"log": [str(ctx.saved_state)]}

    ended = await run(one_node(work), answers={"first": 1, "second": 2, "third": 3})
    assert ended.values["log"] == ["{'seen': 1, 'third': True}"]


async def test_a_settled_question_still_says_by_which_terms_it_was_asked() -> None:
    graph = Graph("invoice")
    graph.interrupt(
        "approve",
        prompt="Pay the invoice?",
        assignees=["ada"],
        assignees_only=True,
        priority="high",
        risk=80,
        not_by=["@starter"],
        escalate=[Escalation(after="1d", to=["cfo"])],
    )
    graph.edge(START, "approve")
    run = InMemoryRun(graph)
    await run.start()
    (asked,) = await run.interrupts()
    await run.respond("approve", True, principal=Principal(subject="ada"))
    (settled,) = await run.interrupts(status="answered")

    terms = ("assignees", "assignees_only", "priority", "risk", "not_by", "escalations", "digest")
    shown = {name: getattr(settled, name) for name in terms}
    assert shown == {name: getattr(asked, name) for name in terms}
