"""Schedules in which the simulation found a fault, each made as short as possible."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.service import RPCError

from abeyance import START, Graph, Refusal, commands
from abeyance.client import Client
from abeyance.core.policy import Principal
from abeyance.records.batch import Batch, Written
from tests.simulation.chance import Chance
from tests.simulation.clock import virtual_time
from tests.simulation.graphs import State
from tests.simulation.runner import QUEUE
from tests.simulation.schedule import Site
from tests.simulation.service import connected
from tests.simulation.worker import task_factory


def test_an_outcome_counts_if_the_run_is_cancelled_in_its_task() -> None:
    with virtual_time() as loop:
        loop.set_task_factory(task_factory)
        site = Site(loop, Chance(0, []))
        site.server.is_calm = True
        site.graph = graph = Graph("g", state=State)

        def cancel() -> None:
            execution = site.server.execution("r")
            assert execution is not None
            job = Job()
            job.cancel_workflow.SetInParent()
            execution.arrived([job])

        @graph.node
        async def work(state: State) -> dict[str, Any]:
            # The cancel comes before the result, and the next workflow task brings both.
            loop.call_later(0.0005, cancel)
            return {"log": ["done"]}

        graph.edge(START, "work")

        async def main() -> None:
            site.worker_comes()
            temporal, _ = connected(site.server)
            await Client(temporal, task_queue=QUEUE).runs.start(graph, run_id="r")
            await asyncio.sleep(5)

        try:
            site.run(main())
        finally:
            site.close()
    state = site.promises.state

    assert state is not None
    assert (state.status, state.root.values["log"]) == ("cancelled", ["done"])


def test_records_of_a_lost_task_are_taken_back() -> None:
    told: list[list[str]] = []
    with virtual_time() as loop:
        loop.set_task_factory(task_factory)
        site = Site(loop, Chance(0, []))
        server, site.graph = site.server, Graph("g", state=State)
        server.is_calm = True
        site.graph.interrupt("ask", prompt="Go on?")
        site.graph.edge(START, "ask")
        write = server.records._write

        def types() -> list[str]:
            return [type_ for _, _, type_, *_ in server.records.kept().events]

        def dying(batch: Batch) -> Written:
            written = write(batch)
            if len(server.workers) == 1 and types()[-1] == "message.queued":
                told.append(types())
                execution = server.execution("r")
                assert execution is not None
                server.workers[0].kill()
                for update in [*execution.updates.values()]:
                    execution._forget(update)
                site.worker_comes()
            return written

        async def main() -> None:
            site.worker_comes()
            temporal, _ = connected(server)
            records: Any = server.records
            client = Client(temporal, task_queue=QUEUE, records=records)
            client.records._writer = records
            await client.runs.start(site.graph, run_id="r")
            await asyncio.sleep(5)
            server.records._write = dying  # type: ignore[method-assign]
            order = commands.SendMessage(message_id="m", text="hello", sender="ada")
            with pytest.raises(RPCError, match="closing"):
                await temporal.get_workflow_handle("r").execute_update("send_message", order)
            # This call starts a workflow task, but changes nothing.
            await client.run("r").resume()
            await asyncio.sleep(30)
            told.append(types())

        try:
            site.run(main())
        finally:
            site.close()

    assert told[0] == [*told[1], "message.queued"]
    assert told[1][-1] == "run.awaiting_input"


def test_events_after_the_end_are_readable_while_a_call_is_under_way() -> None:
    with virtual_time() as loop:
        loop.set_task_factory(task_factory)
        site = Site(loop, Chance(0, []))
        site.server.is_calm = True
        graph = Graph("g", state=State)
        graph.interrupt("ask", prompt="Go on?")
        graph.edge(START, "ask")
        # The worker lacks this graph, so it looks for the target of the migration again and again.
        site.graph = Graph("another", state=State)
        told: list[str] = []

        async def main() -> None:
            site.worker_comes()
            temporal, _ = connected(site.server)
            records: Any = site.server.records
            client = Client(temporal, task_queue=QUEUE, records=records)
            client.records._writer = records
            await client.runs.start(graph, run_id="r")
            run = client.run("r")
            migrating = asyncio.create_task(
                run.migrate(principal=Principal(subject="ada", capabilities=("*",)))
            )
            await asyncio.sleep(1)
            await run.cancel()
            await run.signal_message(commands.SteerMessage(message_id="m", text="hello"))
            await asyncio.sleep(1)
            execution = site.server.execution("r")
            assert execution is not None
            assert execution.is_open
            told.extend(type_ for _, _, type_, *_ in site.server.records.kept().events)
            with pytest.raises(Refusal):
                await migrating

        try:
            site.run(main())
        finally:
            site.close()

    assert told[-2:] == ["run.cancelled", "message.rejected"]


def test_a_run_is_recorded_as_ended_only_with_the_event_of_its_end() -> None:
    with virtual_time() as loop:
        loop.set_task_factory(task_factory)
        site = Site(loop, Chance(0, []))
        server, site.graph = site.server, Graph("g", state=State)
        server.is_calm = True
        site.graph.interrupt("ask", prompt="Go on?")
        site.graph.edge(START, "ask")

        async def main() -> None:
            site.worker_comes()
            temporal, _ = connected(server)
            await Client(temporal, task_queue=QUEUE).runs.start(site.graph, run_id="r")
            await asyncio.sleep(5)
            server.workers[0].kill()
            server.records._away_until = loop.time() + 60
            await temporal.get_workflow_handle("r").cancel()
            # The new worker replays the run, and then gets the cancel.
            site.worker_comes()
            await asyncio.sleep(100)

        try:
            site.run(main())
            kept = server.records.kept()
            execution = server.execution("r")
        finally:
            site.close()

    assert execution is not None
    assert not execution.is_open
    assert kept.view is not None
    told = [type_ for _, _, type_, *_ in kept.events]
    assert (kept.view.ended_at is not None) == ("run.cancelled" in told)


@pytest.mark.parametrize("again", ["retried", "rewound"])
def test_a_retry_goes_on_from_the_latest_end_which_was_not_recorded(again: str) -> None:
    with virtual_time() as loop:
        loop.set_task_factory(task_factory)
        site = Site(loop, Chance(0, []))
        server, site.graph = site.server, Graph("g", state=State)
        server.is_calm, ran = True, list[str]()

        @site.graph.node(retries=0)
        async def work(state: State) -> None:
            ran.append("work")
            if len(ran) < 3:
                raise RuntimeError("not yet")

        site.graph.edge(START, "work")

        async def main() -> None:
            site.worker_comes()
            temporal, _ = connected(server)
            records: Any = server.records
            client = Client(temporal, task_queue=QUEUE, records=records)
            client.records._writer = records
            await client.runs.start(site.graph, run_id="r")
            run, ada = client.run("r"), Principal(subject="ada", capabilities=("*",))
            await asyncio.sleep(5)
            server.workers[0].kill()
            if again == "retried":
                await run.retry(principal=ada)
            else:
                await run.rewind(to="start", principal=ada)
            server.records._away_until = loop.time() + 60
            site.worker_comes()
            await asyncio.sleep(100)
            await run.retry(principal=ada)
            await asyncio.sleep(5)

        try:
            site.run(main())
            kept = server.records.kept()
        finally:
            site.close()

    told = [(type_, actor) for _, _, type_, _, actor, *_ in kept.events if type_[:4] == "run."]
    assert [each for each in told if each[0] != "run.started"] == [
        *(("run.failed", None), (f"run.{again}", "ada")),
        *(("run.failed", None), ("run.retried", "ada"), ("run.completed", None)),
    ]
