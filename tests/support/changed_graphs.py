"""Versions of a graph that pays after an approval, with a payment that fails a given number of times."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import END, START, Context, Graph, append


class State(BaseModel):
    amount: float = 0
    log: Annotated[list[str], append] = []


class Stricter(State):
    cost_center: str


class Payments:
    """The work that nodes of all versions have done. The next `fails` payments fail."""

    def __init__(self, *, fails: int = 0) -> None:
        self.done: list[str] = []
        self.fails = fails

    def graph(
        self,
        *,
        name: str = "payment",
        ask: str = "approve",
        pay: str = "pay",
        state: type[BaseModel] = State,
        capability: str | None = None,
        timeout: str | None = None,
        ends: str | None = None,
    ) -> Graph:
        """Return check -> approve -> pay; `ask` and `pay` name the last two, `ends` a finally node."""
        graph = Graph(name, state=state)

        @graph.node
        async def check(state: Any) -> dict[str, Any]:
            self.done.append("check")
            return {"log": ["check"]}

        async def paid(state: Any, ctx: Context) -> dict[str, Any]:
            await ctx.step("reserve", lambda: self.done.append("reserve"))
            if self.fails:
                self.fails -= 1
                raise RuntimeError("the bank is closed")
            self.done.append("pay")
            return {"log": [f"{pay} {state.amount:g}"]}

        graph.node(name=pay, retries=0)(paid)
        graph.interrupt(
            ask, prompt="Pay {amount}?", requested_capability=capability, timeout=timeout
        )
        graph.edge(START, "check")
        graph.edge("check", ask)
        graph.edge(ask, pay)
        graph.edge(pay, END)
        if ends is not None:

            @graph.node(name=ends)
            async def last(state: Any, ctx: Context) -> None:
                self.done.append(f"{ends} {ctx.outcome}")

            graph.finally_(ends)
        return graph
