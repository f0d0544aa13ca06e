"""What each unit of the model costs, on a real server: measured by difference.

Runs that differ in one thing are compared: twelve nodes with two, six questions with one. Events, bytes,
rows and RPCs are counted by Temporal and PostgreSQL, and do not depend on what else the machine does;
processor time does, so it is the median of the rounds.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

import httpx
import psycopg
from capacity import graphs
from capacity.model import LISTED, NAMES, PAGE, Cost
from stage import OURS, Processes, Server, api, connected, postgres, temporal_server, worker
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from abeyance import Graph
from abeyance.api.auth import SUBJECT_HEADER
from abeyance.records.tables import metadata

S = TypeVar("S")
T = TypeVar("T")

_APP: Final = "capacity.graphs:graphs"
_AT_ONCE: Final = 4
_LOOK_EVERY: Final = 0.05
_SETTLED: Final = 0.5
_SECONDS: Final = 120.0
_MESSAGES: Final = 5
_FEW_LISTED: Final = 1_200
"""Shorter lists are counted in another way."""
_MORE_LISTED: Final = 20
_READ_OFTEN: Final = 10
"""One question is read so often as often as a page, because it takes so little."""
_FAR: Final = 10_000_000
"""The ids of copied rows are greater than this."""
_COPIES: Final = (
    """\
INSERT INTO runs SELECT each.* FROM runs, generate_series(%s, %s) AS n, jsonb_populate_record(
    runs, jsonb_build_object('id', id + n, 'run_id', run_id || n, 'origin', origin || n)
) AS each WHERE runs.run_id = %s""",
    """\
INSERT INTO questions SELECT each.* FROM questions, generate_series(%s, %s) AS n, jsonb_populate_record(
    questions, jsonb_build_object('id', id + n, 'run', run + n, 'interrupt_id', interrupt_id || n)
) AS each WHERE questions.run = (SELECT id FROM runs WHERE run_id = %s)""",
)
_AS_STREAM: Final = {"Accept": "text/event-stream"}
_INBOX: Final = "/events?type=interrupt.*&type=run.*"
_WRONG: Final = ("failed", "cancelled", "halted")
_OF_TASKS: Final = ("RespondActivityTaskCompleted", "RespondWorkflowTaskCompleted")
"""Each was preceded by the poll that brought the task."""
_OF_THE_DEPLOYMENT: Final = re.compile(
    "Poll.*|.*Namespace|GetSystemInfo|.*TaskQueue|.*Worker.*|(List|Count)WorkflowExecutions|Operator.*"
)
"""What is asked however many runs there are: once a minute, or by who waits for tasks."""
_ACTIONS: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_MARKER_RECORDED,
)
_VISIBLE: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
)
_FOLDS: Final = dict.fromkeys(("worker", "api", "records", "temporal"), median)
_STATUS: Final = """\
SELECT runs.run_id, runs.status, array_remove(array_agg(questions.interrupt_id), NULL)
FROM runs LEFT JOIN questions ON questions.run = runs.id AND questions.listed IS NOT NULL
WHERE runs.run_id = ANY(%s) GROUP BY runs.id"""
_TUPLES: Final = """\
SELECT coalesce(sum((pgstattuple(each)).tuple_len), 0)
FROM pg_class, unnest(array_remove(ARRAY[oid, reltoastrelid], 0)) AS each WHERE oid = %s::regclass"""
_ENTRIES: Final = """\
SELECT coalesce(sum(leaf_pages * 8192 * coalesce(nullif(avg_leaf_density, 'NaN'), 0) / 100), 0)
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
JOIN pg_am ON pg_am.oid = relam AND amname = 'btree', pgstatindex(indexrelid::regclass)
WHERE indrelid = %s::regclass"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs of a kind there are, how often they are compared, and who looks on, how long."""

    runs: int
    rounds: int
    viewers: int
    quiet: float


PLAN: Final = Plan(runs=6, rounds=3, viewers=200, quiet=12.0)
QUICK: Final = Plan(runs=2, rounds=1, viewers=5, quiet=1.0)


class Measuring:
    """A deployment, and what it has taken so far."""

    def __init__(
        self, server: Server, http: httpx.AsyncClient, temporal: Client, records: psycopg.Connection
    ) -> None:
        self.processes = Processes()
        self._server = server
        self._http = http
        self._temporal = temporal
        self._records = records

    async def spent(self) -> Cost:
        """Return the processor time and the RPCs so far, once nothing is under way."""
        rpcs = -1.0
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient(trust_env=False) as http:
            while True:
                await asyncio.sleep(_SETTLED)
                before, metrics = rpcs, await http.get(self._server.metrics)
                if (rpcs := _rpcs(metrics.raise_for_status().text)) == before:
                    break
        cpu = {name: 1000 * spent for name, spent in self.processes.cpu_seconds().items()}
        return Cost(rpcs=rpcs, **{name: cpu.get(name, 0.0) for name in _FOLDS})

    def stored(self) -> Cost:
        """Return the rows of the records, and their bytes: in tables and B-trees, without free space."""
        self._records.execute("VACUUM")
        found = Cost()
        for table in metadata.tables:
            ((rows,),) = self._records.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608
            sizes = [
                self._records.execute(sql, [table]).fetchall()[0][0] for sql in (_TUPLES, _ENTRIES)
            ]
            found += Cost(rows=rows, stored=sum(map(float, sizes)))
        return found

    async def history(self, run: str) -> Cost:
        """Return what Temporal keeps of a run, with all executions that it was continued in."""
        found, execution = Cost(), ""
        while True:
            handle = self._temporal.get_workflow_handle(run, run_id=execution or None)
            described = (await handle.describe()).raw_description.workflow_execution_info
            events = (await handle.fetch_history()).events
            kinds = [event.event_type for event in events]
            found += Cost(
                actions=sum(kind in _ACTIONS for kind in kinds),
                transitions=described.state_transition_count,
                visibility=sum(kind in _VISIBLE for kind in kinds),
                events=len(kinds),
                history=described.history_size_bytes,
            )
            execution = events[
                0
            ].workflow_execution_started_event_attributes.continued_execution_run_id
            if not execution:
                return found

    async def histories(self, names: Sequence[str]) -> Cost:
        """Return that of the least disturbed of some runs."""
        return folded([await self.history(run) for run in names])

    async def start(self, graph: Graph, count: int) -> Sequence[str]:
        """Start runs, and return their ids once each asks or has ended."""

        async def one(_: int) -> str:
            started = await self._http.post("/runs", json={"graph": graph.name, "input": {}})
            run: str = started.raise_for_status().json()["run_id"]
            return run

        names = await _few_at_once(one, range(count))
        await self.asked(names)
        return names

    async def asked(
        self, names: Sequence[str], *, but: Sequence[str] = ()
    ) -> Mapping[str, Sequence[str]]:
        """Return the open questions of each run, once none is of `but` and each asks or has ended."""
        async with asyncio.timeout(_SECONDS):
            while True:
                rows = self._records.execute(_STATUS, [list(names)])
                found = {run: (status, asked) for run, status, asked in rows}
                if wrong := [run for run, (status, _) in found.items() if status in _WRONG]:
                    message = f"{wrong} have not completed"
                    raise ValueError(message)
                if len(found) == len(names) and all(
                    status == "completed"
                    or (status == "awaiting-input" and not set(asked) & set(but))
                    for status, asked in found.values()
                ):
                    return {run: asked for run, (_, asked) in found.items() if asked}
                await asyncio.sleep(_LOOK_EVERY)

    async def answer(self, asked: Mapping[str, Sequence[str]], *, leave: int = 0) -> None:
        """Answer the questions of each run one after another, but the last few."""

        async def one(questions: Sequence[str]) -> None:
            for question in questions[: len(questions) - leave]:
                path = f"/interrupts/{question}/respond"
                (await self._http.post(path, json={"response": "yes"})).raise_for_status()

        await _few_at_once(one, list(asked.values()))
        gone = [each for asks in asked.values() for each in asks[: len(asks) - leave]]
        await self.asked(list(asked), but=gone)

    async def whole(self, graph: Graph, count: int, *, messages: int = 0) -> Cost:
        """Return what a run costs from its start to its end."""

        async def tell(run: str) -> None:
            for number in range(messages):
                body = {"text": f"message {number}"}
                (await self._http.post(f"/runs/{run}/steer", json=body)).raise_for_status()
                await asyncio.sleep(_LOOK_EVERY)

        before = self.stored() + await self.spent()
        names = await self.start(graph, count)
        await _few_at_once(tell, names)
        while asked := await self.asked(names):
            await self.answer(asked)
        after = await self.spent() + self.stored()
        return (after - before).times(1 / count) + await self.histories(names)

    async def answers(self, count: int) -> Cost:
        """Return what an answer costs that leaves another question open."""
        names = await self.start(graphs.at_once, count)
        kept, before = await self.histories(names), self.stored() + await self.spent()
        await self.answer(await self.asked(names), leave=1)
        after, kept = await self.spent() + self.stored(), await self.histories(names) - kept
        return ((after - before).times(1 / count) + kept).times(1 / (graphs.AT_ONCE - 1))

    async def ends(self, names: Sequence[str]) -> Cost:
        """Return what it costs, without the histories, that runs which ask are answered and end."""
        before = await self.spent()
        await self.answer(await self.asked(names))
        return (await self.spent() - before).times(1 / len(names))

    async def quiet(self, seconds: float) -> Cost:
        """Return what an hour costs in which nothing happens."""
        clock = asyncio.get_running_loop().time
        before, began = await self.spent(), clock()
        await asyncio.sleep(seconds)
        return (await self.spent() - before).times(3600 / (clock() - began))

    @asynccontextmanager
    async def viewers(self, path: str, count: int, *, until: str | None) -> AsyncIterator[None]:
        """People who follow events, and have had those until one of a type."""
        limits, timeout = httpx.Limits(max_connections=None), httpx.Timeout(_SECONDS)
        url = self._http.base_url
        async with (
            httpx.AsyncClient(
                base_url=url, limits=limits, timeout=timeout, trust_env=False
            ) as http,
            AsyncExitStack() as streams,
        ):
            following = []
            for number in range(count):
                headers = {**_AS_STREAM, SUBJECT_HEADER: f"viewer-{number}"}
                asked = http.stream("GET", path, headers=headers)
                response = await streams.enter_async_context(asked)
                lines = response.raise_for_status().aiter_lines()
                while until is not None and await anext(lines) != f"event: {until}":
                    pass
                # The stream ends with the last reference to it.
                following.append(lines)
            yield

    async def page(self, times: int, *, of: str | None = None) -> Cost:
        """Return what a page of the inbox costs, or only the question `of` that id."""
        self._records.execute("ANALYZE")
        before = await self.spent()
        for _ in range(times):
            params = {"limit": PAGE} if of is None else {"id": of}
            found = await self._http.get("/interrupts", params=params)
            assert len(found.raise_for_status().json()["items"]) == (PAGE if of is None else 1)
        return (await self.spent() - before).times(1 / times)

    def list_more(self, run: str, first: int, count: int) -> None:
        """Record copies of a run that waits, and of its question."""
        for sql in _COPIES:
            self._records.execute(sql, [_FAR + first, _FAR + first + count - 1, run])


async def measured(folder: Path, plan: Plan) -> Mapping[str, Cost]:
    """Return what each unit costs. Raises if a run ends otherwise than it should, or not in time."""
    async with AsyncExitStack() as opened:
        server = await opened.enter_async_context(temporal_server(folder))
        url, database = await opened.enter_async_context(postgres(folder))
        os.environ["ABEYANCE_DATABASE_URL"] = url
        records = opened.enter_context(psycopg.connect(url, autocommit=True))
        records.execute("CREATE EXTENSION pgstattuple")
        first = opened.enter_context(ExitStack())
        pid = first.enter_context(worker(server, OURS, folder, app=_APP))
        serving = await opened.enter_async_context(api(server, folder, app=_APP))
        temporal = await connected(server.address)
        measuring = Measuring(server, serving.http, temporal, records)
        pids = {"temporal": server.pid, "api": serving.pid, "records": database}
        measuring.processes = Processes(**pids, worker=pid)
        # What a process does once does not count.
        await measuring.whole(graphs.one_gate, plan.runs)
        rounds = [await _scenes(measuring, plan.runs) for _ in range(plan.rounds)]
        found = _units({name: folded([each[name] for each in rounds]) for name in rounds[0]})
        waiting = [await measuring.start(graphs.one_gate, plan.runs) for _ in range(2)]
        found |= await _quiet(measuring, plan, waiting[0][0])
        found |= await _pages(measuring, plan, waiting[0][0])
        warm = await measuring.ends(waiting[0])
        # So that Temporal no longer sends anything to it.
        os.kill(pid, signal.SIGTERM)
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        first.close()
        pid = opened.enter_context(worker(server, OURS, folder, app=_APP))
        measuring.processes = Processes(**pids, worker=pid)
        await measuring.whole(graphs.one_gate, 1)
        found["waking"] = await measuring.ends(waiting[1]) - warm
        return {name: _not_below_zero(cost) for name, cost in found.items()}


async def _scenes(measuring: Measuring, count: int) -> Mapping[str, Cost]:
    alike = {**graphs.chains, **graphs.gates, "unread": graphs.reads}
    return {
        **{name: await measuring.whole(graph, count) for name, graph in alike.items()},
        "read": await measuring.whole(graphs.reads, count, messages=_MESSAGES),
        "answer": await measuring.answers(count),
    }


def _units(scenes: Mapping[str, Cost]) -> dict[str, Cost]:
    few, many = (scenes[name] for name in graphs.chains)
    one, several = (scenes[name] for name in graphs.gates)
    node = (many - few).times(1 / (graphs.NODES[1] - graphs.NODES[0]))
    asked = (several - one).times(1 / (graphs.QUESTIONS[1] - graphs.QUESTIONS[0]))
    return {
        "start": few - node.times(graphs.NODES[0]),
        "node": node,
        "question": asked - scenes["answer"],
        "answer": scenes["answer"],
        "message": (scenes["read"] - scenes["unread"]).times(1 / _MESSAGES),
    }


async def _quiet(measuring: Measuring, plan: Plan, run: str) -> Mapping[str, Cost]:
    nobody = await measuring.quiet(plan.quiet)
    found = {"waiting": Cost(rpcs=nobody.rpcs / (2 * plan.runs))}
    since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    for name, path, until in (
        ("inbox", f"{_INBOX}&since={since}", None),
        ("follower", f"/runs/{run}/events", "run.awaiting_input"),
    ):
        async with measuring.viewers(path, plan.viewers, until=until):
            looked = await measuring.quiet(plan.quiet)
        found[name] = (looked - nobody).times(1 / plan.viewers)
    return found


async def _pages(measuring: Measuring, plan: Plan, run: str) -> Mapping[str, Cost]:
    more = _MORE_LISTED * LISTED
    measuring.list_more(run, 1, _FEW_LISTED)
    few = folded([await measuring.page(plan.runs) for _ in range(plan.rounds)])
    measuring.list_more(run, 1 + _FEW_LISTED, more)
    many = folded([await measuring.page(plan.runs) for _ in range(plan.rounds)])
    # The rest of a page is as long as before.
    listed = Cost(records=(many - few).records / _MORE_LISTED)
    (asked,) = (await measuring.asked([run]))[run]
    times = _READ_OFTEN * plan.runs
    one = folded([await measuring.page(times, of=asked) for _ in range(plan.rounds)])
    # Neither Temporal nor the worker has to do with it.
    found = {"change": one, "page": few}
    return {
        **{name: Cost(api=cost.api, records=cost.records) for name, cost in found.items()},
        "listed": listed,
    }


def folded(costs: Sequence[Cost]) -> Cost:
    """Return what is typical of some costs: the median of the times, and the least of the counts.

    A busy machine delays what is recorded, which adds events and calls, and never leaves any out.
    """
    return Cost(**{n: _FOLDS.get(n, min)(getattr(cost, n) for cost in costs) for n in NAMES})


def _not_below_zero(cost: Cost) -> Cost:
    # The difference of two times that are nearly equal may be anything small.
    return Cost(**{name: max(0.0, getattr(cost, name)) for name in NAMES})


async def _few_at_once(how: Callable[[S], Awaitable[T]], them: Sequence[S]) -> list[T]:
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(each: S) -> T:
        async with free:
            return await how(each)

    return await asyncio.gather(*map(one, them))


def _rpcs(metrics: str) -> float:
    """Return how many calls Temporal has answered that were about a run; a task counts with its poll."""
    total = 0.0
    for labels, count in re.findall(r"^service_requests\{(.*)\} (\S+)$", metrics, re.MULTILINE):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if of["service_name"] == "frontend" and not _OF_THE_DEPLOYMENT.fullmatch(of["operation"]):
            total += float(count) * (2 if of["operation"] in _OF_TASKS else 1)
    return total
