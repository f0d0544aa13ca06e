"""`RunHandle` over Temporal.

Every call is bounded in time, and a repeated call (a retry, or one with the same `key`) has no second
effect. A run's refusal is raised as a `Refusal` with its code. If Temporal or a worker cannot be reached,
`Unavailable` is raised.

A retry starts from the snapshot of the run, which is recorded with its end.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from temporalio.exceptions import ApplicationError

from abeyance import commands, names, views, wire
from abeyance.authoring.graph import Graph
from abeyance.client import rewinds
from abeyance.client.eviction import UNBOUNDED, Room
from abeyance.client.reader import RunReader
from abeyance.client.start import StartPlan, retry_marks
from abeyance.commands import as_events
from abeyance.core import idempotency, ledger, mailbox, messages, policy, run_retry
from abeyance.core.events import Keyed, Message, MessagesCleared
from abeyance.core.json import Json, why_not_json
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Called
from abeyance.errors import Code, RecordsUnavailable, Refusal, Unavailable
from abeyance.history.after_the_end import edit_after_the_end, respond_after_the_end
from abeyance.history.description import RunEnded
from abeyance.orders import SIGNALS, order_of
from abeyance.records import events, outside
from abeyance.runtime import retries
from abeyance.schemas.state_model import ValuesError
from abeyance.storage.converter import is_all_sealed

if TYPE_CHECKING:
    from abeyance.client.client import Client

R = TypeVar("R", views.Receipts, views.MessageReceipt, views.Cleared, views.Migration)

_EDITS: Final[Mapping[type[commands.Edit], str]] = {
    commands.EditValues: "edit_values",
    commands.EditDeadline: "edit_deadline",
    commands.TakeBack: "take_back",
    commands.Claim: "claim",
    commands.ReleaseClaim: "release",
    commands.Reassign: "reassign",
}
"""The updates that change an open run or one of its questions, and have no receipt."""
_MICROSECONDS: Final = 1_000_000
_RECORDED_WITHIN: Final = 2.0
_RECORDED_POLL: Final = 0.05
_REFUSED: Final = frozenset({"signal.refused", "message.rejected"})


class TemporalRun(RunReader):
    """One run over Temporal (`abeyance.RunHandle`).

    Without a `principal` the caller is `temporal`, without capabilities. The graph is the one given to
    `Client.run`: its state model validates a patch of the values, a migration is refused with
    `versions_differ` if the worker has another version of it, and a retry can continue with it. Without a
    graph, `edit_values` raises ValueError, and so does a retry with a patch or the current graph.
    """

    caller = TEMPORAL

    def __init__(self, client: Client, run_id: str, graph: Graph | None = None) -> None:
        super().__init__(client, run_id)
        self._graph = graph

    async def was_started_by(self, request: str) -> bool:
        """Return whether this call has started the run, True if that is unreadable. `request` is as in
        `Client.runs.start`. Raises `unknown_run`.
        """
        start = (await self._line.described(self.run_id)).start
        return start.get("request") in (None, request)

    async def respond_to(
        self, order: commands.Respond, *, as_delegate: bool = True
    ) -> list[ledger.Receipt]:
        """Answer interrupts by a command; with `as_delegate` also on behalf of others."""
        order = await self._client.grants.counted(order)
        if not as_delegate:
            return await self._answer(order)
        return await self._client.delegations.with_standing(order, self._answer, self.labels)

    async def _answer(self, order: commands.Respond) -> list[ledger.Receipt]:
        if order.key is None and is_all_sealed(self._line.temporal.data_converter):
            order = await self._bound(order)
        try:
            receipts = await self._receipt("respond", order, views.Receipts)
        except RunEnded as ended:
            kept = await self._ended(ended.described)
            return respond_after_the_end(kept.record, kept.keys, order)
        return receipts.receipts

    async def _bound(self, order: commands.Respond) -> commands.Respond:
        """Return the command with the digests of the interrupts that are open now, so that a copy of it
        answers no later version of them. A command with a key needs none: the run recognises a copy.
        """
        try:
            digests = {entry.id: entry.digest or "" for entry in await self.interrupts()}
        except RecordsUnavailable:
            # With a key the run recognises a copy, but not after a rewind.
            return order.model_copy(update={"key": uuid.uuid4().hex})
        answered = set(order.responses or filter(None, [order.interrupt_id]))
        if not answered and len(digests) == 1:
            answered = set(digests)
        # A question that is not open now has no digest, and is stale if it is open when the answer
        # arrives.
        shown = {id_: digests.get(id_, "") for id_ in answered}
        return order.model_copy(update={"digests": {**shown, **order.digests}})

    async def control(self, order: commands.Order) -> None:
        """Pause, resume or cancel by a command.

        Returns once Temporal has the signal. If the run refuses it, its events have a `signal.refused`. A
        repeated `key` has no further effect. A key that was used for another call is an
        `idempotency_conflict`, raised if this client made that call. Raises `unknown_run`, `not_running`,
        and `queue_full` if the run has not processed hundreds of earlier signals.
        """
        event = as_events.control(order, datetime.now(UTC))
        try:
            await self._line.signal(
                self.run_id,
                SIGNALS[type(order)],
                order,
                key=order.key,
                digest=idempotency.digest(event),
            )
        except RunEnded as ended:
            if await self._earlier(ended, event) is None:
                raise ended.described.not_running() from ended

    async def present(self) -> int | None:
        """Return the number of the latest event that is recorded, None if the records are away."""
        try:
            part = await self._client.records.read(events.part_of_run, self.run_id, limit=1)
        except RecordsUnavailable:
            return None
        return 0 if part is None else part.newest

    async def is_processed(self, since: int, about: Mapping[str, str], *, seconds: float) -> bool:
        """Wait until the run has processed a signal, and raise the refusal if the run refused it.

        `since` is from before the signal was sent. `about` identifies it in the event of a refusal, by
        `signal` or by `message_id`. Return False if no worker has processed it within so many seconds.
        Raises RecordsUnavailable if its outcome is not recorded two seconds later.
        """
        described, is_done = await self._line.processed(self.run_id, seconds=seconds)
        if not is_done:
            return False
        until = time.monotonic() + _RECORDED_WITHIN
        while described.is_running and described.is_being_recorded:
            if time.monotonic() > until:
                raise RecordsUnavailable(
                    f"the run {self.run_id!r} has the call, but the events that say whether it was "
                    "refused are not recorded yet"
                )
            await asyncio.sleep(_RECORDED_POLL)
            described = await self._line.described(self.run_id)
        for event in await self._client.records.read(events.of_run, self.run_id, after=since):
            if event.type in _REFUSED and about.items() <= event.data.items():
                raise Refusal(Code(event.data["code"]), event.data["reason"])
        return True

    async def checked_patch(self, patch: Mapping[str, Any]) -> dict[str, Json]:
        if self._graph is None:
            raise ValueError("editing values needs the run's graph: client.run(run_id, graph)")
        cached = await self._line.cached_run(self.run_id)
        if cached.graph not in (None, self._graph.name):
            raise ValueError(
                f"the run {self.run_id!r} is one of the graph {cached.graph!r}, not of "
                f"{self._graph.name!r}: client.run(run_id, graph)"
            )
        try:
            return self._graph.states.edit(patch)
        except ValuesError as error:
            if why_not_json(patch) is not None:
                raise error.refusal() from error
            # The worker decides: it may have another version of the model.
            return dict(patch)

    async def edit(self, order: commands.Edit) -> None:
        if isinstance(order, commands.Claim):
            await self._client.delegations.with_standing(order, self._edit, self.labels)
        else:
            await self._edit(order)

    async def _edit(self, order: commands.Edit) -> None:
        event = as_events.edited(order, datetime.now(UTC))
        try:
            await self._line.update(self.run_id, _EDITS[type(order)], order, None)
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
        except RunEnded as ended:
            kept = await self._ended(ended.described)
            if idempotency.earlier(kept.keys, event) is not None:
                return
            if isinstance(order, commands.EditDeadline):
                raise edit_after_the_end(kept.record, order) from ended
            raise ended.described.not_running() from ended

    @property
    def graph_version(self) -> str | None:
        return None if self._graph is None else self._graph.build().version

    async def migrate_by(self, order: commands.Migrate) -> views.Migration:
        try:
            return await self._receipt("migrate", order, views.Migration)
        except RunEnded as ended:
            # Today's graph is not part of the call.
            event = as_events.migrated(order, datetime.now(UTC), spec=GraphSpec(name=""), patch={})
            if order.dry_run or await self._earlier(ended, event) is None:
                raise ended.described.not_running() from ended
            version = (await self._ended(ended.described)).record.view.graph_version
            return views.Migration(run_id=self.run_id, before=version, after=version)

    async def retry_by(
        self,
        order: commands.RetryBody,
        *,
        principal: Principal,
        key: str | None = None,
        room: Room = UNBOUNDED,
    ) -> None:
        described = await self._line.described(self.run_id)
        mark = retries.mark(order, principal, key)
        if retries.was_retried(retry_marks(described), mark, key):
            return
        if described.is_running:
            raise retries.not_finished(self.run_id, described.shown_status)
        ended = await self._ended(described)
        run_retry.refuse_completed(ended.record.outcome)
        snapshot = await self._snapshot(ended)
        state, start = snapshot.joined(), snapshot.start
        now = datetime.now(UTC)
        retried, version = retries.retried(
            state, start, order, self._graph, principal=principal, now=now
        )
        ended_at = described.ended_at or now
        plan = StartPlan.going_on(
            retried,
            start.model_copy(
                update={
                    "graph_version": version,
                    # Later than every event of the executions before, whatever the clocks say.
                    "generation": int(max(now, ended_at).timestamp() * _MICROSECONDS) + 1,
                    "claim": None,
                    "used": (),
                    "retry_of": described.execution,
                    "origin": start.origin or described.first,
                    "retry_keys": retries.marked(start.retry_keys, mark),
                }
            ),
        )
        async with self._client.erasures.none_of(self.run_id):
            await self._client.executions.again(plan, described, mark, room)

    async def rewind_by(
        self,
        order: commands.RewindBody,
        *,
        principal: Principal,
        key: str | None = None,
        room: Room = UNBOUNDED,
    ) -> views.Rewind:
        """Rewind by a command. Raises also `natively_paused`, and Unavailable."""
        if order.dry_run:
            policy.demand_only(
                principal, policy.READ, doing="try a rewind of the run", why="It reads the run."
            )
            patch = await self._rewinding_patch(order)
            plan = await rewinds.planned(self._client, self.run_id, order.to, patch=patch)
            return plan.view.model_copy(update={"dry_run": True})
        asked = [entry.requested_capability for entry in await self.interrupts()]
        guards = await self.guarded_by(anew=True)
        policy.demand_by(principal, guards, filter(None, asked), "rewind the run")
        mark = None if key is None else retries.mark(order, principal, key)
        patch = await self._rewinding_patch(order)
        done = views.Rewind(run_id=self.run_id, to=order.to)
        by = principal.subject
        while not await rewinds.was_done(self._client, self.run_id, mark, key):
            plan = await rewinds.planned(self._client, self.run_id, order.to, patch=patch)
            await rewinds.refuse(self._client, plan)
            first = patch if order.to == commands.REWIND_TO_START else {}
            if await rewinds.carry_out(self._client, plan, first, by=by, mark=mark, room=room):
                done = plan.view
                break
        if patch and order.to != commands.REWIND_TO_START:
            await self._patch_rewound(order.to, patch, principal, mark)
        return done

    async def _rewinding_patch(self, order: commands.RewindBody) -> Mapping[str, Json]:
        self._line.check_size(order)
        patch = await self.checked_patch(order.patch) if order.patch else {}
        if patch and self._graph is not None:
            # The worker would refuse it only after the run was rewound.
            try:
                self._graph.states.edit(order.patch)
            except ValuesError as error:
                raise error.refusal() from error
        return patch

    async def _patch_rewound(
        self, to: str, patch: Mapping[str, Json], principal: Principal, mark: str | None
    ) -> None:
        view = await self.view()
        if view.degraded:
            raise Unavailable(
                f"no worker has rewound the run {self.run_id!r} yet, so its values are not set: repeat "
                "the call with the same key"
            )
        if to not in [entry.id for entry in view.interrupts]:
            # This is a repeated call, and somebody has answered since.
            return
        about = {"patch": patch, "version": view.version, "principal": principal, "key": mark}
        try:
            await self.edit(order_of(commands.EditValues, about))
        except Refusal as refusal:
            # The edit was done before, and has changed the version.
            if mark is None or refusal.code is not Code.IDEMPOTENCY_CONFLICT:
                raise

    async def report_blocked(
        self,
        visit: str,
        code: str | None,
        message: str,
        journal: Mapping[str, Json],
        *,
        unread: bool = False,
    ) -> None:
        """Tell the run that a visit is blocked, or with None as `code` that it is not. For workers only.

        `journal` has its finished steps, `unread` says that the worker could not read them. An ended run
        ignores the call. Raises Unavailable.
        """
        order = wire.VisitBlocked(
            visit=visit, code=code, message=message, journal=dict(journal), unread=unread
        )
        with suppress(RunEnded):
            await self._line.signal(self.run_id, "visit_blocked", order)

    async def worker_started(self) -> None:
        """Tell the run that a worker has started, so that blocked visits are tried again at once."""
        with suppress(RunEnded):
            await self._line.signal(self.run_id, "worker_started", wire.WorkerStarted())

    async def notification_failed(self, failed: wire.NotificationFailed, at: datetime) -> None:
        """Tell the run the receivers that a notification did not reach. If the run has ended, record
        them, once for each `at`.

        Raises `unknown_run`, and RecordsUnavailable.
        """
        try:
            await self._line.signal(self.run_id, "notification_failed", failed)
        except RunEnded:
            await self._client.records.write(outside.undelivered, self.run_id, failed, at=at)

    async def send_message(self, message: commands.SteerMessage) -> views.MessageReceipt:
        """Send a message by a command. The same message again (by its id) is a duplicate."""
        message = _with_id(message)
        try:
            return await self._receipt("send_message", message, views.MessageReceipt)
        except RunEnded as ended:
            raise ended.described.not_running() from ended

    async def signal_message(self, message: commands.SteerMessage) -> str:
        """Steer by a command. Raises also `message_conflict` if this client has sent another message
        under the id.
        """
        message = _with_id(message)
        event = as_events.message_sent(message, datetime.now(UTC), "")
        messages.refuse_empty(event.message)
        id_ = event.message.message_id
        try:
            await self._line.signal(
                self.run_id,
                "steer",
                message,
                key=f"message {id_}",
                digest=mailbox.digest(event.message),
            )
        except RunEnded as ended:
            raise ended.described.not_running() from ended
        except Refusal as refusal:
            if refusal.code is not Code.IDEMPOTENCY_CONFLICT:
                raise
            raise mailbox.conflict(id_) from refusal
        return id_

    async def take_messages(self, order: commands.TakeMessages) -> list[Message]:
        """Take the messages of a visit. Only for the code of nodes."""
        try:
            return await self._line.update(self.run_id, "take_messages", order, list[Message])
        except ApplicationError as error:
            if error.type != names.EMPTY:
                raise
            return []
        except RunEnded as ended:
            raise ended.described.not_running() from ended

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        actor = (principal or self.caller).subject
        order = order_of(commands.ClearMessages, {"actor": actor, "key": key})
        try:
            cleared = await self._receipt("clear_messages", order, views.Cleared)
        except RunEnded as ended:
            called = await self._earlier(
                ended, as_events.event(MessagesCleared, order, datetime.now(UTC))
            )
            if called is None:
                raise ended.described.not_running() from ended
            return int(called.receipt)
        return cleared.cleared

    async def pause_and_send_message(
        self, message: commands.SteerMessage, pause: commands.Pause | None = None
    ) -> views.MessageReceipt:
        """Pause and send by commands; without a worker both are sent as signals. Raises also
        `idempotency_conflict` of the pause.
        """
        pause = pause or commands.Pause()
        message = _with_id(message)
        try:
            return await self.send_message(commands.SendMessage(**dict(message), pause=pause))
        except Unavailable:
            pass
        except Refusal as refusal:
            if refusal.code is not Code.NATIVELY_PAUSED:
                raise
        await self.control(pause)
        sent = await self.signal_message(message)
        return views.MessageReceipt(message_id=sent, duplicate=False, queue_depth=None)

    async def _receipt(self, name: str, order: wire.Request, kind: type[R]) -> R:
        """Return the receipt of an update, or the earlier receipt if the same call was made before."""
        try:
            return await self._line.update(self.run_id, name, order, kind)
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
            return kind.model_validate(error.details[0])

    async def _earlier(self, ended: RunEnded, event: Keyed) -> Called | None:
        """Return the same call under its key, if the run accepted it before it ended."""
        if event.key is None:
            return None
        return idempotency.earlier((await self._ended(ended.described)).keys, event)


def _with_id(message: commands.SteerMessage) -> commands.SteerMessage:
    """Return the message with an id, a new one if it has none, so that a retry sends the same message."""
    if message.message_id is not None:
        return message
    return message.model_copy(update={"message_id": uuid.uuid4().hex})
