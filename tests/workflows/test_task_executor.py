"""Where workflow tasks run: short ones on the loop of the worker, others in threads."""

from __future__ import annotations

import asyncio
import threading

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

from abeyance.temporal.task_executor import TaskExecutor


def _task(*, jobs: int = 1, **fields: int | bool) -> WorkflowActivation:
    task = WorkflowActivation(**fields)  # type: ignore[arg-type]
    for _ in range(jobs):
        task.jobs.add()
    return task


def _where(task: WorkflowActivation) -> int:
    """Return the thread in which the task runs, with a loop of its own, as a workflow has one."""
    assert isinstance(task, WorkflowActivation)
    loop = asyncio.new_event_loop()
    try:
        asyncio._set_running_loop(loop)
        return threading.get_ident()
    finally:
        asyncio._set_running_loop(None)
        loop.close()


@pytest.mark.parametrize(
    ("task", "is_on_the_loop"),
    [
        pytest.param(_task(), True, id="short"),
        pytest.param(_task(is_replaying=True), False, id="replayed"),
        pytest.param(_task(history_size_bytes=1_000_000), False, id="large"),
        pytest.param(_task(jobs=100), False, id="many-jobs"),
    ],
)
async def test_a_task_that_may_take_long_leaves_the_loop_free(
    task: WorkflowActivation, is_on_the_loop: bool
) -> None:
    loop = asyncio.get_running_loop()
    with TaskExecutor() as executor:
        where = await loop.run_in_executor(executor, _where, task)

        assert (where == threading.get_ident()) is is_on_the_loop
        assert asyncio.get_running_loop() is loop


async def test_an_error_of_a_short_task_reaches_its_caller() -> None:
    def failing(task: WorkflowActivation) -> None:
        raise ValueError(task.run_id)

    with TaskExecutor() as executor, pytest.raises(ValueError, match="r-1"):
        await asyncio.get_running_loop().run_in_executor(
            executor, failing, WorkflowActivation(run_id="r-1")
        )
