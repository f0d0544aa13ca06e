"""Conversations: finding and controlling all active runs of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from abeyance import commands
from abeyance.client.rpc import DELETED
from abeyance.client.run import TemporalRun
from abeyance.core.policy import ALL_RUNS, TEMPORAL, Principal, ReadRights
from abeyance.errors import Code, Refusal
from abeyance.handle import ConversationsHandle, MessageFields, Steered
from abeyance.orders import control_order, message_order, order_of
from abeyance.records import runs
from abeyance.records.claims import EXCLUSIVE
from abeyance.util import gather_limited

if TYPE_CHECKING:
    from abeyance.client.client import Client

_MAX_LISTED: Final = 20
_GONE: Final = DELETED | {Code.NOT_RUNNING}


class Conversations(ConversationsHandle):
    """The conversations of one deployment."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def runs(
        self,
        conversation_id: str,
        *,
        session_type: str | None = None,
        reads: ReadRights = ALL_RUNS,
    ) -> list[str]:
        """Return the ids of the active runs, oldest first, of one session type or of all, as far as
        `reads` lets a caller see them.

        Runs that were started a moment ago are included. No worker has to be up. Raises `invalid_body`.
        """
        order_of(commands.OfConversation, {"conversation_id": conversation_id})
        return await self._client.records.read(
            runs.of_conversation, conversation_id, session_type=session_type, reads=reads
        )

    async def _send(
        self,
        conversation_id: str,
        kind: type[commands.Order],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> list[str]:
        return await self.control(
            conversation_id, control_order(kind, about, principal or TEMPORAL, key)
        )

    async def control(
        self, conversation_id: str, order: commands.Order, *, reads: ReadRights = ALL_RUNS
    ) -> list[str]:
        """Send a command to each active run of a conversation that `reads` includes, and return their
        ids.
        """

        async def reached(run_id: str) -> bool:
            try:
                await TemporalRun(self._client, run_id).control(order)
            except Refusal as refusal:
                if refusal.code not in _GONE:
                    raise
                return False
            return True

        active = await self.runs(conversation_id, reads=reads)
        done = await gather_limited(active, reached)
        return [run_id for run_id, was_reached in zip(active, done, strict=True) if was_reached]

    async def steer(
        self, conversation_id: str, text: str = "", **fields: Unpack[MessageFields]
    ) -> Steered:
        """Steer the only active run of an agent in a conversation.

        Raises `no_active_run`, `ambiguous_run` with the runs, and the refusals of a run's `steer`.
        """
        message = message_order(text, fields, principal=fields.get("principal") or TEMPORAL)
        return await self.signal_message(conversation_id, message)

    async def signal_message(
        self,
        conversation_id: str,
        message: commands.SteerMessage,
        *,
        reads: ReadRights = ALL_RUNS,
    ) -> Steered:
        agents = await self.runs(conversation_id, session_type=EXCLUSIVE, reads=reads)
        if not agents:
            raise _no_active_run(conversation_id)
        if len(agents) > 1:
            raise Refusal(
                Code.AMBIGUOUS_RUN,
                f"The conversation {conversation_id!r} has {len(agents)} active runs of agents: "
                f"{', '.join(agents[:_MAX_LISTED])}. Steer one of them by its own id.",
                conversation_id=conversation_id,
                runs=agents[:_MAX_LISTED],
                actual=len(agents),
            )
        try:
            sent = await TemporalRun(self._client, agents[0]).signal_message(message)
            return Steered(run_id=agents[0], message_id=sent)
        except Refusal as refusal:
            if refusal.code not in _GONE:
                raise
            raise _no_active_run(conversation_id) from refusal


def _no_active_run(conversation_id: str) -> Refusal:
    return Refusal(
        Code.NO_ACTIVE_RUN,
        f"The conversation {conversation_id!r} has no active run of an agent: start one.",
        conversation_id=conversation_id,
    )
