"""`Conversation`: the workflow that knows which runs of a conversation are active.

Visibility would know it too late: a run must be found in the moment after its start. It is started
by the first claim, is small, and ends when it has held no claim for a while; the next claim starts it
anew. Its handlers never wait, so no two of them interleave.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core.conversation import Claim, Conversation
    from abeyance.errors import Refusal
    from abeyance.workflows.requests import Signals, refusals_as_application_errors

_TIMEOUT: Final = timedelta(seconds=3)
_TWICE: Final = RetryPolicy(maximum_attempts=2)
_IDLE: Final = timedelta(minutes=10)
_MOST_EVENTS: Final = 1_000


@workflow.defn(name=wire.CONVERSATION_WORKFLOW)
class ConversationWorkflow:
    """A conversation. `carried` is what its last history held, or a new one."""

    @workflow.init
    def __init__(self, carried: Conversation) -> None:
        self._held = carried
        self._is_changed = False
        self._signals = Signals()

    @workflow.run
    async def run(self, carried: Conversation) -> None:
        """Wait until it has been idle, or until the history is long."""
        del carried
        while True:
            idle = None if self._held.claims else _IDLE
            try:
                await workflow.wait_condition(
                    lambda: self._is_changed,
                    timeout=idle,
                    timeout_summary="ends, as no run of the conversation is active",
                )
            except TimeoutError:
                # A claim may have come in the same moment.
                if not self._held.claims:
                    break
            self._is_changed = False
            if workflow.info().get_current_history_length() >= _MOST_EVENTS:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._held)
        await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.update(description="Not for people: a run is about to start.")
    async def claim(self, wanted: Claim) -> None:
        with refusals_as_application_errors():
            self._hold(self._held.claimed(wanted, workflow.now()))

    @claim.validator
    def _check_claim(self, wanted: Claim) -> None:
        with refusals_as_application_errors():
            self._held.check(wanted)

    @workflow.signal(description="Not for people: runs have ended, or never started.")
    def release(self, tokens: RawValue) -> None:
        try:
            released = self._signals.value(tokens, list[str])
        except Refusal as refusal:
            # Whoever meets a claim that is void gives it back.
            workflow.logger.warning("code=%s | signal refused: %s", refusal.code, refusal)
            return
        self._hold(self._held.released(released or []))

    @workflow.query(description="The runs that are active, as far as is known, oldest first.")
    def active(self) -> list[Claim]:
        return list(self._held.claims)

    def _hold(self, conversation: Conversation) -> None:
        self._held = conversation
        self._is_changed = True


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
