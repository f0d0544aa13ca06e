"""Random graphs, and random code for their nodes.

The strategies of the core's tests draw the graphs. The code sleeps, makes steps, asks, looks for
messages, fails and sends. A visit's plan is drawn once, so that a retry does the same.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from core_strategies import GOOD_PATCHES, chained_graphs, gated_graphs, graphs
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel
from temporalio import activity

from abeyance import Context, Goto, Graph, Send, add, append
from abeyance.authoring.callables import NodeCode
from abeyance.core.bounds import RetryPolicy
from abeyance.core.json import Json
from abeyance.core.spec import END, FunctionNode, GraphSpec, Node, SubgraphNode
from abeyance.schemas.state_model import StateModel
from tests.simulation.chance import Chance

_SEEDS = 200
_GRAPHS = 16
_PATIENT = RetryPolicy(retries=99)
SUFFIX = "_new"
"""The suffix of node names in the second version of a graph."""


def plain(text: str) -> str:
    """Return a name or an address as in the first version of the graph."""
    return text.replace(SUFFIX, "")


class Wanted(ValueError):
    """An error that a node's code raises on purpose, because the plan says so."""


class State(BaseModel):
    flag: Any = None
    count: Annotated[int, add] = 0
    log: Annotated[list[Any], append] = []


_STATES = StateModel(State)
_FIELDS = _STATES.field_specs()


def graphs_for(number: int) -> Sequence[GraphSpec]:
    """Return the graphs for a seed: each block of 200 seeds has its own."""
    return _batch(number // _SEEDS)


@functools.lru_cache(maxsize=4)
def _batch(batch: int) -> Sequence[GraphSpec]:
    kinds = [(gated_graphs(), _GRAPHS), (graphs(), _GRAPHS), (chained_graphs(), _GRAPHS // 2)]
    return [spec for strategy, count in kinds for spec in _drawn(strategy, count, batch)]


def _drawn(strategy: SearchStrategy[GraphSpec], count: int, number: int) -> list[GraphSpec]:
    found: list[GraphSpec] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def collect(spec: GraphSpec) -> None:
        found.append(spec)

    collect()
    return found


@dataclass(kw_only=True)
class Plan:
    """What the code of one visit does, drawn once."""

    acts: list[str]
    fails: int
    patch: dict[str, Json]
    way: str
    sends: int


@dataclass(kw_only=True)
class Effects:
    """Side effects of node code, counted outside the run, where no rewind or crash removes them.

    `recorded`: the steps after which the code went on, with activity and attempt, unless a rewind has
    discarded them. `repeated`: recorded steps that an attempt did again while the server still waited
    for it (`is_awaited`); nobody can stop a worker that the server has given up. `keys`: the idempotency
    keys of each visit, by its first address. `items`: the items for which each key was used, because
    after a rewind another item may have the address.
    """

    is_awaited: Callable[[bytes], bool] = lambda _: True
    is_discarded: Callable[[bytes], bool] = lambda _: False

    recorded: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    repeated: list[tuple[str, str, str]] = field(default_factory=list)
    keys: dict[str, set[str]] = field(default_factory=dict)
    items: dict[str, set[str]] = field(default_factory=dict)

    def has_key(self, ctx: Context) -> None:
        """Note the idempotency key with which code runs."""
        item = ctx.input.item
        at = ctx.address if item is None else ctx.input.first_address
        self.keys.setdefault(plain(at), set()).add(ctx.idempotency_key)
        self.items.setdefault(ctx.idempotency_key, set()).add(json.dumps(item))

    def forget(self, stands: Callable[[str, bytes], bool]) -> None:
        """Drop the steps whose activity and attempt no longer `stands`: they may be done again."""
        self.recorded = {key: each for key, each in self.recorded.items() if stands(*each)}


class RandomGraph(Graph):
    """A graph with a given spec and random code. If it `is_patient`, no node runs out of attempts or of
    time. All its names end with the `suffix`.
    """

    def __init__(
        self,
        spec: GraphSpec,
        chance: Chance,
        effects: Effects,
        plans: dict[str, Plan],
        *,
        suffix: str = "",
        is_patient: bool = False,
    ) -> None:
        super().__init__(spec.name)
        self._suffix = suffix
        self.states = _STATES
        self._chance, self._effects, self._plans = chance, effects, plans
        nodes: dict[str, Node] = {}
        for node in spec.nodes.values():
            match node:
                case FunctionNode():
                    retry = RetryPolicy(retries=chance.choice([2, 0, 5]))
                    timeout = chance.choice([None, None, None, 5.0])
                    if is_patient:
                        retry, timeout = _PATIENT, None
                    nodes[node.id] = replace(node, retry=retry, timeout=timeout)
                    self.code[node.id] = NodeCode(function=self._run, takes=2)
                case SubgraphNode(graph=inner):
                    self.subgraphs[node.id] = RandomGraph(
                        inner, chance, effects, plans, suffix=suffix, is_patient=is_patient
                    )
                    nodes[node.id] = replace(node, graph=self.subgraphs[node.id].build())
                case _:
                    nodes[node.id] = node
        self._given = replace(spec, nodes=nodes, fields=_FIELDS)
        for route in spec.routes:
            self.route_code[route.source, route.name] = self._route(chance.choice(route.targets))
        self._senders = {
            name
            for name in spec.nodes
            if any(
                edge.gathers and edge.sources == (to,)
                for edge in spec.edges
                for to in spec.declared_by(name)
            )
        }

    def retire(self, earlier: RandomGraph) -> None:
        """Keep the code of an earlier version, for runs that are not migrated."""
        self.code.update(earlier.code)
        self.route_code.update(earlier.route_code)
        self.subgraphs.update(earlier.subgraphs)

    def build(self, **_: Any) -> GraphSpec:
        return self._given

    def build_for(self, **_: Any) -> GraphSpec:
        return self._given

    @staticmethod
    def _route(target: str) -> Any:
        return lambda state: target

    def _plan(self, ctx: Context) -> Plan:
        address = plain(ctx.address)
        if address not in self._plans:
            draw = self._chance
            acts = (
                []
                if ctx.outcome
                else [
                    draw.choices(
                        ["nothing", "nap", "step", "ask", "look", "fail", "long"],
                        [8, 4, 5, 2, 2, 2, 0.5],
                    )[0]
                    for _ in range(3)
                ]
            )
            targets = self._given.declared_by(ctx.node)
            self._plans[address] = Plan(
                acts=acts,
                fails=draw.choice([1, 1, 2, 9]) if "fail" in acts else 0,
                patch=draw.choice(GOOD_PATCHES),
                way=plain(draw.choice(["", *targets])),
                sends=draw.choice([2, 1, 3, 0]) if ctx.node in self._senders else 0,
            )
        return self._plans[address]

    async def _run(self, state: State, ctx: Context) -> Any:
        plan, effects = self._plan(ctx), self._effects
        effects.has_key(ctx)
        for number, act in enumerate(plan.acts):
            match act:
                case "nap":
                    await asyncio.sleep(0.3)
                case "long":
                    await asyncio.sleep(8.0)
                case "step":
                    await self._step(ctx, f"s{number}")
                case "ask":
                    await self._ask(ctx, f"q{number}")
                case "look":
                    await ctx.check_interrupt()
                case "fail" if ctx.attempt <= plan.fails:
                    raise Wanted("chance wants it")
                case _:
                    pass
        if ctx.outcome is not None:
            return {"log": ["finally"]}
        if ctx.node in self._senders:
            return [Send(self._given.declared_by(ctx.node)[0], n) for n in range(plan.sends)]
        if plan.way and plan.way != END:
            return Goto(plan.way + self._suffix, plan.patch)
        return plan.patch

    async def _step(self, ctx: Context, name: str) -> None:
        key, effects = (ctx.idempotency_key, name), self._effects

        async def once() -> str:
            if key in effects.recorded and effects.is_awaited(activity.info().task_token):
                effects.repeated.append((effects.recorded[key][0], ctx.address, name))
            await asyncio.sleep(0.05)
            return f"done {name}"

        assert await ctx.step(name, once) == f"done {name}"
        info = activity.info()
        token = info.task_token
        if effects.is_awaited(token) and not effects.is_discarded(token):
            effects.recorded[key] = (info.activity_id, token)

    async def _ask(self, ctx: Context, name: str) -> None:
        capability = ctx.input.asks[0].replace("*", "b") if ctx.input.asks else None
        await ctx.interrupt(name, prompt="Go on?", response=bool, requested_capability=capability)
