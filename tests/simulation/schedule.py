"""One schedule: a run of a random graph, the people and faults that act on it, and its end."""

from __future__ import annotations

import asyncio
import traceback
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import drawn_orders as drawn

from abeyance import Graph
from abeyance.client import Client
from abeyance.commands import REWIND_TO_START
from abeyance.core.spec import GraphSpec
from tests.simulation.chance import Chance
from tests.simulation.clock import VirtualLoop, virtual_time
from tests.simulation.graphs import Effects, Plan, RandomGraph, graphs_for
from tests.simulation.people import People
from tests.simulation.promises import Promises, Steps
from tests.simulation.purse import Purse
from tests.simulation.records import LATEST
from tests.simulation.reindexing import reindex
from tests.simulation.runner import QUEUE
from tests.simulation.server import Broken, Server
from tests.simulation.service import connected
from tests.simulation.versions import Versions
from tests.simulation.worker import Worker, task_factory

_ROUNDS = 40
_STEPS = 80
QUIET = 0.15
"""The share of schedules that are compared with an undisturbed run, if that is possible."""
_PATIENCE = 86_400.0
_REINDEXED = 2
"""One of this many schedules has its records rebuilt at its end."""
Kind: TypeAlias = Literal["any", "grants", "migrations"]
"""The subject of a schedule: a random graph, an agent whose approvals may be remembered, or a random
graph with a second version that is deployed.
"""


@dataclass(frozen=True, kw_only=True)
class Played:
    """The result of a schedule: `fault` is empty, or names the promise that it broke."""

    seed: int
    draws: list[int]
    log: list[str]
    fault: str
    steps: int

    @property
    def kind(self) -> str:
        """The fault, without the details that differ between schedules."""
        return self.fault.partition("\n")[0][:60]


def play(
    seed: int,
    draws: Sequence[int] | None = None,
    *,
    quiet: float = QUIET,
    kind: Kind = "any",
) -> Played:
    """Play the schedule of a seed, or the one with these `draws`. A share of them is `quiet`: if the
    `kind` is any, the result of a quiet run is compared with an undisturbed run.
    """
    chance = Chance(seed, draws)
    site, fault = _played(chance, {}, quiet if kind == "any" else 0.0, kind=kind)
    if not fault and site.is_quiet and site.promises.order.is_free:
        again = Chance(seed, chance.draws[: site.drawn])
        alone, fault = _played(again, site.plans, quiet, is_alone=True)
        try:
            site.promises.same_as_without_faults(alone.promises)
        except Broken as error:
            fault = fault or fault_of(error)
    return Played(
        seed=seed,
        draws=chance.draws,
        log=site.server.log,
        fault=fault,
        steps=site.promises.steps,
    )


def _played(
    chance: Chance,
    plans: dict[str, Plan],
    quiet: float,
    *,
    is_alone: bool = False,
    kind: Kind = "any",
) -> tuple[Site, str]:
    with virtual_time() as loop:
        loop.set_task_factory(task_factory)
        site = Site(loop, chance, plans, quiet)
        site.server.is_calm = is_alone
        site.kind = kind
        if kind == "grants":
            site.promises.purse = Purse(chance, site.server.records)
        fault = ""
        try:
            site.run(site.play())
        except Exception as error:  # noqa: BLE001 whatever it is, it should not be
            fault = fault_of(error)
        finally:
            site.close()
    return site, fault


def fault_of(error: BaseException) -> str:
    place = "".join(traceback.format_tb(error.__traceback__)[-3:])
    return f"{type(error).__name__}: {error}\n{place}"


class Site:
    """The server, its workers, the people, and the promises.

    In a schedule that `is_quiet` people only do their part, so it differs from an undisturbed one by its
    faults alone. The first `drawn` draws decide which run it is, the rest what happens to it.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: Chance,
        plans: dict[str, Plan] | None = None,
        quiet: float = 0.0,
    ) -> None:
        self.loop, self.chance = loop, chance
        self.server = Server(loop, chance, is_sealed=chance.origin % 2 == 1)
        self.effects = Effects(
            is_awaited=self.server.activities.__contains__,
            is_discarded=self.server.takes_nothing_of,
        )
        self.steps = Steps()
        self.promises = Promises(self.effects)
        self.server.committed = self.promises.committed
        self.server.rewound = self.promises.rewound
        self.main: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        self.graph = Graph("")
        self.kind: Kind = "any"
        self.versions: Versions | None = None
        self.plans = {} if plans is None else plans
        self.is_quiet, self._quiet = False, quiet
        self.drawn = 0
        self._names = 0

    def went_wrong(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take the first error of a callback as the result of the schedule, and stop it."""
        error = context.get("exception")
        if self.error is None:
            self.error = error or AssertionError(context["message"])
        if self.main is not None:
            self.main.cancel()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the schedule to its end, and raise the error that stopped it."""
        self.loop.set_exception_handler(self.went_wrong)
        self.main = self.loop.create_task(work)
        try:
            with self.steps.watched():
                self.loop.run_until_complete(self.main)
        except asyncio.CancelledError:
            raise self.error or Broken("the schedule was cancelled") from None

    async def play(self) -> None:
        """Play a random schedule."""
        chance, server = self.chance, self.server
        values: dict[str, Any]
        if (purse := self.promises.purse) is not None:
            self.graph, values = purse.graph(), {}
            spec = self.graph.build()
        else:
            spec = chance.choice(graphs_for(chance.origin))
            self.is_quiet = chance.happens(self._quiet)
            self._declare(spec)
            values = chance.choice([{}, {"flag": True}])
        visits = chance.choice([3, 6]) if purse is None else 60
        limits = replace(drawn.limits(chance), max_visits=visits)
        if self.is_quiet:
            limits = replace(limits, finally_timeout=_PATIENCE)
        self.drawn = len(chance.draws)
        temporal, _ = connected(server)
        records: Any = server.records
        client = Client(temporal, task_queue=QUEUE, patience=30, records=records)
        # The real writer has its own threads, and this loop waits for none.
        client.records._writer = records
        people = People(
            server,
            chance,
            client,
            "r",
            self.promises,
            graph=lambda: self.graph,
            purse=purse,
            versions=self.versions,
        )
        server.note(f"a run of {spec.name} with {', '.join(spec.nodes)}")
        self.worker_comes()
        await client.runs.start(
            self.graph,
            values,
            run_id="r",
            limits=limits,
            request="key.body",
        )
        acting = []
        often = {"any": [4, 1, 2, 3, 6, 8, 0], "grants": [10, 14, 20], "migrations": [8, 5, 12]}
        for _ in range(0 if server.is_calm else chance.choice(often[self.kind])):
            await asyncio.sleep(server.delay() * 3)
            if self.is_quiet or chance.happens(0.25):
                self._mishap()
                continue
            name, call = people.act()
            acting.append(self.loop.create_task(people.tried(name, call)))
            if chance.happens(0.7):
                await asyncio.wait(acting[-1:])
        if acting:
            await asyncio.wait(acting)
            for each in acting:
                each.result()
        await self._end(people)
        await self._afterwards(people)
        # A batch of a worker that is gone may take this long.
        await asyncio.sleep(LATEST)
        await self._hold(people)
        if purse is not None:
            server.note(f"{purse.granted} calls ran under a grant")

    async def _hold(self, people: People) -> None:
        """Check the ended run and its records against the promises."""
        server, promises = self.server, self.promises
        execution = server.execution("r")
        assert execution is not None
        self.worker_comes()
        worker = next(each for each in server.workers if each.is_up)
        if not await people.finds_the_end():
            await reindex(server, worker, "r", server.records)
        promises.kept_at_the_end(execution)
        if self.chance.origin % _REINDEXED == 1:
            anew = server.records.anew()
            await reindex(server, worker, "r", anew)
            promises.recorded.is_reindexed(server.records.kept(), anew.kept())

    def _declare(self, spec: GraphSpec) -> None:
        """Build the graph of this schedule, or both of its versions."""
        chance, patient = self.chance, self.is_quiet
        if self.kind != "migrations":
            self.graph = RandomGraph(spec, chance, self.effects, self.plans, is_patient=patient)
            return

        def made(spec: GraphSpec, suffix: str) -> RandomGraph:
            return RandomGraph(spec, chance, self.effects, self.plans, suffix=suffix)

        self.versions = Versions(spec, chance, made)
        self.graph = self.versions.today

    def _deploy(self, versions: Versions) -> None:
        """Deploy the other version: new workers have it, and the old ones shut down."""
        versions.deploy()
        self.graph = versions.today
        self.server.note(f"the version {self.graph.build().version} is deployed")
        for worker in (each for each in self.server.workers if each.is_up):
            self.server.later(self.server.delay(), worker.leave)
            self.server.later(self.server.delay() + 1.0, worker.kill)
        self.server.later(self.server.delay(), self.worker_comes)
        # The first new worker may not have come, because too many were still up.
        self.server.later(14.0, self.worker_comes)

    def _mishap(self) -> None:
        server, chance = self.server, self.chance
        up = [each for each in server.workers if each.is_up]
        kinds = ["kill", "leave", "come", "jump", "drop", *(["kill"] * 3 if self.is_quiet else [])]
        kinds += ["deploy"] * 4 if self.versions is not None else []
        match chance.choice(kinds):
            case "kill" if up:
                worker = chance.choice(up)
                server.note(f"{worker.name} is killed")
                worker.kill()
                server.later(server.delay(), self.worker_comes)
            case "leave" if up:
                worker = chance.choice(up)
                server.note(f"{worker.name} shuts down")
                worker.leave()
                server.later(1.0, worker.kill)
                server.later(server.delay(), self.worker_comes)
            case "deploy" if self.versions is not None:
                self._deploy(self.versions)
            case "jump":
                server.jump(chance.choice([1.0, 30.0, 7200.0, -0.5]))
            case "drop":
                for worker in up:
                    worker.drop()
            case _:
                self.worker_comes()

    def worker_comes(self) -> None:
        if len([each for each in self.server.workers if each.is_up]) > 2:
            return
        self._names += 1
        temporal, connection = connected(self.server)
        graphs = {self.graph.name: self.graph}
        worker = Worker(self.server, f"worker-{self._names}", graphs, temporal, self.steps)
        connection.owner = worker
        self.server.workers.append(worker)
        self.server.note(f"{worker.name} comes")
        self.server.worker_came()

    async def _afterwards(self, people: People) -> None:
        """Rewind or retry the ended run, and bring it to an end again."""
        server, chance = self.server, self.chance
        calls: list[tuple[str, Callable[[], Callable[[], Awaitable[Any]]]]] = []
        if server.has_rewinds:
            calls.append(("rewind", people.rewinds))
        if server.has_retries:
            calls.append(("retry", people.retries))
        while calls and not self.is_quiet and chance.happens(0.4):
            server.is_calm = False
            name, calling = chance.choice(calls) if len(calls) > 1 else calls[0]
            await people.tried(name, calling())
            self._mishap()
            await self._end(people)

    async def _end(self, people: People) -> None:
        """Do what the run needs until it has ended."""
        server, promises = self.server, self.promises
        server.is_calm = True
        server.note("everybody does their part")
        began = promises.steps
        for number in range(_ROUNDS):
            if not any(each.is_up for each in server.workers):
                self.worker_comes()
            execution, state = server.execution("r"), promises.state
            if execution is not None and not execution.is_open:
                if not execution.is_terminated:
                    return
                await people.tried("find the end", people.finds_the_end)
                await people.tried("rewind", people.rewinds(REWIND_TO_START))
                await asyncio.sleep(1.0)
                continue
            if state is not None and not state.finished:
                if number > _ROUNDS // 2 or promises.steps > began + _STEPS:
                    await people.cancels()
                await people.do_their_part()
            await asyncio.sleep(0.2 if number < 5 else 2.0 * number)

    def close(self) -> None:
        """Kill the workers, and cancel the tasks that are left."""
        for worker in self.server.workers:
            worker.kill()
        for task in self._left():
            task.cancel()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.loop.set_exception_handler(lambda *_: None)
            for _ in range(50):
                if not self._left():
                    break
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
        self.server.records.close()

    def _left(self) -> list[asyncio.Task[Any]]:
        """Return this loop's unfinished tasks; asyncio's own list has those of earlier schedules too."""
        return [each for each in self.loop.tasks if not each.done()]
