"""How a run that has ended leaves its conversation."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from abeyance import wire

_TIMEOUT: Final = timedelta(seconds=3)
_TWICE: Final = RetryPolicy(maximum_attempts=2)


async def leave_conversation(start: wire.StartRun) -> None:
    """Tell the conversation of a run, if it has one, that the run has ended."""
    if start.conversation_id is None or start.claim is None:
        return
    try:
        # Not a signal of the workflow's own: the server drops what a run sends in its last task, and
        # a task more would be a time in which the run is over and still takes messages (tried). A
        # local activity belongs to the last task.
        await workflow.execute_local_activity(
            wire.RELEASE_ACTIVITY,
            wire.Release(conversation_id=start.conversation_id, tokens=[start.claim]),
            start_to_close_timeout=_TIMEOUT,
            retry_policy=_TWICE,
        )
    except ActivityError:
        # The next one who looks finds that the run has ended.
        workflow.logger.warning("conversation=%s | was not told of the end", start.conversation_id)
