"""A blocked visit keeps its work and is tried again, and the test that waits for it is told."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, create_model
from sample_graphs import State

from abeyance import START, Context, Graph
from abeyance.errors import Blocked
from abeyance.testing import InMemoryRun, run


def exporting(timeout: str | None = None) -> Graph:
    """Return a graph of a node that needs an optional package after a step, beside a gate."""
    graph = Graph("exporting", state=State)

    @graph.node(retries=0)
    async def export(state: State, ctx: Context) -> dict[str, Any]:
        async def fetch() -> str:
            return "fetched"

        first = await ctx.step("fetch", fetch)
        importlib.import_module("boto3")
        return {"log": [first, f"attempt {ctx.attempt}"]}

    on_timeout: Any = "halt" if timeout is None else {"default": True}
    graph.interrupt("approve", prompt="Go on?", timeout=timeout, on_timeout=on_timeout)
    graph.edge(START, "export")
    graph.edge(START, "approve")
    return graph


@pytest.fixture
def without_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)


def with_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", sys)


@pytest.mark.usefixtures("without_s3")
async def test_the_next_call_tries_a_blocked_visit_again_and_keeps_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = InMemoryRun(exporting())
    with pytest.raises(Blocked, match=r"pip install 'abeyance\[s3\]'"):
        await trial.start()

    (why,) = (await trial.view()).blocked
    assert (why.code, why.node, why.since) == ("extra_missing", "exporting.export", trial.now)
    # Everything else has gone on.
    assert [entry.name for entry in await trial.interrupts()] == ["approve"]
    # The answer counts, as on a server.
    (receipt,) = await trial.respond("approve", True)
    assert receipt.status == "answered"
    assert [each.code for each in (await trial.view()).blocked] == ["extra_missing"]
    with_s3(monkeypatch)
    await trial.advance("1s")

    assert trial.status == "completed"
    assert trial.values["log"] == ["fetched", "attempt 1"]
    assert [event.type async for event in trial.events(follow=False)] == [
        "run.started",
        "node.started",
        "interrupt.opened",
        "node.blocked",
        "interrupt.answered",
        "node.finished",
        "node.unblocked",
        "run.completed",
    ]


@pytest.mark.usefixtures("without_s3")
async def test_the_clock_passes_every_deadline_while_a_visit_is_blocked() -> None:
    trial = InMemoryRun(exporting(timeout="1h"))
    with pytest.raises(Blocked):
        await trial.start()
    before = trial.now
    with pytest.raises(Blocked):
        await trial.advance("2h")

    assert (trial.now - before).total_seconds() == 7200
    assert await trial.interrupts() == []


@pytest.mark.usefixtures("without_s3")
async def test_waiting_for_blocked_returns_the_view() -> None:
    trial = InMemoryRun(exporting())
    with pytest.raises(Blocked):
        await trial.start()
    before = trial.now

    waited = await trial.wait(until=frozenset({"blocked"}))
    assert (waited.blocked[0].code, trial.now) == ("extra_missing", before)
    with pytest.raises(Blocked):
        await trial.wait(until=frozenset({"paused"}))


@pytest.mark.usefixtures("without_s3")
async def test_a_script_of_answers_ends_at_a_blocked_visit() -> None:
    with pytest.raises(Blocked, match="lacks 'boto3'"):
        await run(exporting(), answers={"approve": True})


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


def doubling(type_: Any, *, is_nested: bool) -> Graph:
    """Return a graph that asks for a number of a type, and doubles it."""
    percent: Any = (Annotated[int, type_], 0)
    share = create_model("Share", percent=percent)
    graph = Graph("asking", state=share)
    graph.interrupt("how_much", prompt="How much?", answer_to="percent")
    graph.interrupt("sure", prompt="Sure?", response=bool)
    graph.edge(START, "how_much")
    graph.edge("how_much", "sure")
    graph.edge("sure", "double")
    inner = Graph("inner", state=share) if is_nested else graph

    @inner.node
    def double(state: Any) -> dict[str, Any]:
        return {"percent": 2 * state.percent}

    if is_nested:
        inner.edge(START, "double")
        graph.subgraph("double", inner)
    return graph


@pytest.mark.parametrize("is_nested", [False, True])
async def test_an_answer_that_a_later_deploy_rejects_is_asked_for_again_with_the_fault(
    *, is_nested: bool
) -> None:
    trial = InMemoryRun(doubling(None, is_nested=is_nested))
    await trial.start()
    await trial.respond("how_much", 3)
    trial.deploy(doubling(AfterValidator(even), is_nested=is_nested))
    await trial.respond("sure", True)

    (again,) = await trial.interrupts()
    assert again.prompt == (
        "How much? (Asked again, because the answer does not fit: /percent: must be even)"
    )
    await trial.respond("how_much", 4)
    await trial.respond("sure", True)
    assert (trial.status, trial.values) == ("completed", {"percent": 8})
