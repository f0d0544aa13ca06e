"""Schedules in which the simulation found a fault, each as short as it came to be."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job

from abeyance import START, Graph
from abeyance.client import Client
from tests.simulation.chance import Chance
from tests.simulation.clock import virtual_time
from tests.simulation.graphs import State
from tests.simulation.runner import QUEUE
from tests.simulation.schedule import Site
from tests.simulation.service import connected
from tests.simulation.worker import task_factory


def test_what_a_visit_came_to_counts_where_its_run_is_cancelled_in_the_same_task() -> None:
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
            # It comes before the result, and after the time at which the next task would begin without.
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
