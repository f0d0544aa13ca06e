"""`ConversationWorkflow`: tracks the active runs of a conversation.

Visibility is too slow, because a run must be found right after its start. The first claim starts the
workflow, and it ends after some time without claims; the next claim starts it again. Its handlers never
await, so they cannot interleave.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from abeyance import names, wire
    from abeyance.core.conversation import Claim, Conversation
    from abeyance.errors import Refusal
    from abeyance.workflows.activity_calls import LocalFailed, local_result
    from abeyance.workflows.requests import Signals, refusals_as_application_errors

_TIMEOUT: Final = timedelta(seconds=3)
_TWICE: Final = RetryPolicy(maximum_attempts=2)
_IDLE: Final = timedelta(minutes=10)
_MOST_EVENTS: Final = 1_000


@workflow.defn(name=names.CONVERSATION_WORKFLOW)
class ConversationWorkflow:
    """A conversation. `carried` is its state: new, or from the previous history."""

    @workflow.init
    def __init__(self, carried: Conversation) -> None:
        self._conversation = carried
        self._is_changed = False
        self._signals = Signals()

    @workflow.run
    async def run(self, carried: Conversation) -> None:
        """Wait until the conversation is idle, or continue as new."""
        del carried
        while True:
            idle = None if self._conversation.claims else _IDLE
            try:
                await workflow.wait_condition(
                    lambda: self._is_changed,
                    timeout=idle,
                    timeout_summary="idle: no run of the conversation is active",
                )
            except TimeoutError:
                # A claim may arrive at the moment of the timeout.
                if not self._conversation.claims:
                    break
            self._is_changed = False
            if workflow.info().get_current_history_length() >= _MOST_EVENTS:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._conversation)
        await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.update(description="Internal: a run is about to start.")
    async def claim(self, claim: Claim) -> None:
        with refusals_as_application_errors():
            self._set(self._conversation.claimed(claim, workflow.now()))

    @claim.validator
    def _check_claim(self, claim: Claim) -> None:
        with refusals_as_application_errors():
            self._conversation.check(claim)

    @workflow.signal(description="Internal: runs have ended, or never started.")
    def release(self, tokens: RawValue) -> None:
        try:
            released = self._signals.value(tokens, list[str])
        except Refusal as refusal:
            # The next reader of a stale claim releases it.
            workflow.logger.warning("code=%s | signal refused: %s", refusal.code, refusal)
            return
        self._set(self._conversation.released(released or []))

    @workflow.query(description="The runs known to be active, oldest first.")
    def active(self) -> list[Claim]:
        return list(self._conversation.claims)

    def _set(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._is_changed = True


async def leave_conversation(start: wire.StartRun) -> None:
    """Release the claim of an ended run, if it belongs to a conversation."""
    if start.conversation_id is None or start.claim is None:
        return
    try:
        # The server drops a signal that a workflow sends in its last task, and during one more task the
        # ended run would still accept messages (tested). A local activity runs within the last task.
        await local_result(
            workflow.start_local_activity(
                names.RELEASE_ACTIVITY,
                wire.Release(conversation_id=start.conversation_id, tokens=[start.claim]),
                start_to_close_timeout=_TIMEOUT,
                retry_policy=_TWICE,
            )
        )
    except LocalFailed:
        # The next reader notices that the run has ended.
        workflow.logger.warning(
            "conversation=%s | the claim was not released", start.conversation_id
        )
