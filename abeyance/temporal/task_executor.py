"""The executor of workflow tasks: short ones run on the loop of the worker, all others in threads.

The SDK gives every task to a thread, so that it notices a hanging task. A task of a run that is small and
in memory takes a millisecond or two, and the way to a thread and back a third of that
(docs/internals/adr/0019-short-tasks-run-on-the-loop.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from typing import Final, ParamSpec, TypeVar

from temporalio.bridge.proto.workflow_activation import WorkflowActivation

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = 100
_SMALL: Final = 256_000
"""In bytes of history. The state of a run is part of it, so a task of a larger run may take long."""
_FEW: Final = 20


def is_short(task: object) -> bool:
    """Return whether a task takes some milliseconds at most: it replays nothing, and its run is small."""
    return (
        isinstance(task, WorkflowActivation)
        and not task.is_replaying
        and task.history_size_bytes < _SMALL
        and len(task.jobs) <= _FEW
    )


class TaskExecutor(ThreadPoolExecutor):
    """Runs short tasks on the running loop, and others in threads."""

    def __init__(self) -> None:
        super().__init__(max_workers=_THREADS, thread_name_prefix="workflow")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not is_short(args[0] if args else None):
            return super().submit(fn, *args, **kwargs)
        loop = asyncio.get_running_loop()
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 as the pool's own threads do
                done.set_exception(error)
            finally:
                # A workflow runs as a loop of its own, and unsets the running loop at its end.
                asyncio._set_running_loop(loop)  # noqa: SLF001

        # As in a thread, no other asyncio task may be under way: use a step and a context of its own.
        loop.call_soon(run, context=Context())
        return done
