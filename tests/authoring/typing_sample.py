"""The authoring API as a user types it: `mypy --strict` has to accept all of it.

Only the type checker reads this file. Code that it must reject is marked `type: ignore` with the code of
the error; a mark that is not needed is an error as well.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel

from abeyance import (
    END,
    START,
    BeforeToolCall,
    Client,
    Context,
    Fatal,
    Goto,
    Graph,
    GraphError,
    GraphSpec,
    NodeError,
    Principal,
    Refusal,
    add,
    append,
    merge,
    testing,
    union,
)
from abeyance.core.ledger import Interrupt
from abeyance.views import RunView


class Decision(BaseModel):
    approved: bool
    reason: str = ""


class Refund(BaseModel):
    order_id: str
    amount: float
    risk: Literal["unknown", "low", "high"] = "unknown"
    decision: Decision | None = None
    log: Annotated[list[str], append] = []
    seen: Annotated[set[str], union] = set()
    facts: Annotated[dict[str, Any], merge] = {}
    attempts: Annotated[int, add] = 0


graph = Graph("refund", state=Refund, description="Pays money back.", on_error="goto:escalate")


@graph.retired("settle")
def settle(state: Refund) -> dict[str, Any]:
    return {"log": ["settled"]}


settled: dict[str, Any] = settle(Refund(order_id="A-7", amount=1))


@graph.node(retries=3, timeout="30s", heartbeat=2.5)
async def assess(state: Refund, ctx: Context) -> dict[str, Any]:
    ctx.logger.info("attempt %d at %s", ctx.attempt, ctx.address)
    ctx.heartbeat()
    if state.amount < 0:
        raise Fatal(f"{state.order_id} has a negative amount")
    return {"risk": "high" if state.amount > 700 else "low", "seen": {state.order_id}}


@graph.node
async def pay(state: Refund, ctx: Context) -> Mapping[str, object] | None:
    if ctx.cancelled:
        raise NodeError("told to stop")
    return {"log": [f"paid with {ctx.idempotency_key}"]}


@graph.node(local=True, timeout=timedelta(seconds=5))
def note(state: Refund) -> None:
    print(state.log)


@graph.node(name="escalate", to=["pay", END], on_error="fail")
def escalated(state: Refund, ctx: Context) -> Goto:
    return Goto("pay", {"log": ["escalated"]}) if state.risk == "low" else Goto(END)


@graph.node
def tidy() -> None: ...


async def score(order_id: str, *, at: float = 0.5) -> float:
    return at


@graph.node(asks=["refunds:approve"])
async def asks(state: Refund, ctx: Context) -> None:
    assert_type(await ctx.interrupt("a", prompt="?", response=Decision, timeout="1h"), Decision)
    assert_type(await ctx.interrupt("b", response=bool, state={"seen": 1}), bool)
    assert_type(await ctx.interrupt("c", response={"type": "string"}), Any)
    assert_type(await ctx.interrupt("d"), Any)
    assert_type(await ctx.step("score", score, state.order_id, at=0.1), float)
    assert_type(await ctx.step("length", len, state.order_id), int)
    await ctx.step("score", score, 5)  # type: ignore[call-overload]
    await ctx.interrupt("e", prompt=5, response=bool)  # type: ignore[call-overload]


class Careful:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        assert_type(await event.interrupt("sure", response=bool), bool)
        assert_type(await event.interrupt("why"), Any)


# A decorated function keeps its type.
paid: Callable[[Refund, Context], Coroutine[Any, Any, Mapping[str, object] | None]] = pay
as_before: Callable[[Refund, Context], Goto] = escalated
nothing: Callable[[], None] = tidy


def after_approve(state: Refund) -> str:
    return "pay" if state.decision is not None and state.decision.approved else END


async def after_assess(state: Refund) -> list[str] | None:
    return ["approve", "note"] if state.amount > 100 else None


graph.interrupt(
    "approve",
    prompt="Refund {amount} for {order_id}?",
    reason={"risk": "{risk}"},
    payload={"order": [1, 2]},
    response=Decision,
    answer_to="decision",
    requested_capability="refunds:approve",
    timeout="P2D",
    on_timeout="goto:escalate",
)
graph.interrupt("sure", prompt="?", response=bool, timeout=60, on_timeout={"default": False})
graph.interrupt("which", prompt="?", response={"enum": ["a", "b"]}, timeout=timedelta(days=1))
graph.interrupt("say", prompt="?", response=Literal["yes", "no"])
graph.edge(START, "assess")
graph.edge(["assess", "note"], "sure", join="arrived")
graph.edge("sure", "which", when={"decision.approved": True})
graph.edge("sure", END, when="else")
graph.route("assess", after_assess, to=["approve", "note"])
graph.route("approve", after_approve, to=("pay", END), name="decided")
graph.route("which", lambda state: END, to=[END])
graph.finally_("tidy")

graph.node(retries="three")(pay)  # type: ignore[call-overload]
graph.interrupt("late", prompt="?", timeout=[5])  # type: ignore[arg-type]
graph.edge("a", "b", when="otherwise")  # type: ignore[arg-type]
graph.edge("a", "b", join="some")  # type: ignore[arg-type]
graph.route("a", "b", to=[END])  # type: ignore[arg-type]
Graph("g", state=dict)  # type: ignore[arg-type]
Goto(pay)  # type: ignore[arg-type]


def build() -> GraphSpec | tuple[str, ...]:
    try:
        return graph.build()
    except GraphError as error:
        return error.faults


async def rehearse() -> Mapping[str, Any]:
    def answer(asked: Interrupt) -> object:
        return {"approved": "order" in asked.prompt}

    ended = await testing.run(graph, {"order_id": "o1", "amount": 5}, answers={"approve": answer})
    return ended.values


async def run() -> RunView:
    client = await Client.connect("127.0.0.1:7233", namespace="default")
    started = await client.runs.start(
        graph, {"order_id": "o1", "amount": 250}, labels={"team": "blue"}
    )
    ada = Principal(subject="ada", capabilities=("refunds:approve",))
    try:
        receipts = await client.run(started.run_id).respond(
            response={"approved": True}, principal=ada, note="looks right"
        )
    except Refusal as refusal:
        print(refusal.code, refusal.message, refusal.details)
    else:
        print([receipt.answered_by for receipt in receipts])
    return await client.run(started.run_id).wait(until=frozenset({"completed"}), timeout=5)
