"""Let a workflow task take nearly as long as the server waits for it.

The SDK (1.35.0 at least) fails a task after two seconds, because its code may hang, and has no option for
this limit. On a busy machine, a task that begins thousands of visits takes longer in every attempt, so
its run would never go on.
"""

from __future__ import annotations

from typing import Final

from temporalio.worker import Worker

_SECONDS: Final = 8
"""The server waits for ten."""


def allow_long_tasks(worker: Worker) -> Worker:
    """Let the workflow tasks of a worker take eight seconds, and return the worker."""
    workflows = worker._workflow_worker  # noqa: SLF001
    if workflows is None:
        raise ValueError("the worker runs no workflows")
    workflows._deadlock_timeout_seconds = _SECONDS  # noqa: SLF001
    return worker
