"""The claims of runs on their conversations.

A claim is void if its start failed, or if its run ended without releasing it. The next start that a void
claim blocks releases it, so it blocks a conversation for a minute at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.errors import Refusal
from abeyance.records import claims
from abeyance.records.claims import Claim
from abeyance.temporal.retry import NotFound
from abeyance.util import gather_limited

_UNSTARTED: Final = timedelta(seconds=60)
"""How long a claim without a run is valid: longer than a start is retried."""
_SWEEPS: Final = 3


class Claims:
    """The claims on one deployment's conversations. `settle` records the end of a run by Temporal."""

    def __init__(
        self,
        line: WorkflowRpc,
        records: Records,
        settle: Callable[[WorkflowExecutionInfo], Awaitable[object]],
    ) -> None:
        self._line = line
        self._records = records
        self._settle = settle

    async def claim(self, conversation_id: str, claim: Claim) -> None:
        """Claim a place in a conversation for a run that is about to start.

        Raises `conversation_busy` with the id of the run that is active, `too_many_runs`, and
        RecordsUnavailable.
        """
        for _ in range(_SWEEPS):
            try:
                return await self._records.write(claims.make, conversation_id, claim)
            except Refusal:
                held = await self._records.read(claims.of_conversation, conversation_id)
                void = await self._void(conversation_id, held)
                if not void:
                    raise
                await self.release([each.token for each in void])
        return await self._records.write(claims.make, conversation_id, claim)

    async def release(self, tokens: Sequence[str]) -> None:
        """Release the claims of starts that have failed. Raises RecordsUnavailable."""
        await self._records.write(claims.release, tokens)

    async def _void(self, conversation_id: str, held: Sequence[Claim]) -> list[Claim]:
        async def is_void(claim: Claim) -> bool:
            now = datetime.now(UTC)
            try:
                run = await self._line.describe(claim.run_id)
            except NotFound:
                return now - claim.claimed_at > _UNSTARTED
            # Another run may have the id by now, and not every process can read to which conversation a
            # run belongs.
            is_its = (
                run.unreadable is not None or run.start.get("conversation_id") == conversation_id
            )
            if run.is_running and is_its:
                return False
            if run.ended_at is None or run.ended_at < claim.claimed_at:
                return now - claim.claimed_at > _UNSTARTED
            await self._settle(run.info)
            return True

        found = await gather_limited(held, is_void)
        return [claim for claim, is_one in zip(held, found, strict=True) if is_one]
