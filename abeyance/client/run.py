"""`RunHandle` over Temporal.

Every call is bounded in time, and a repeated call (a retry, or one with the same `key`) has no second
effect. A run's refusal is raised as a `Refusal` with its code; if Temporal or a worker cannot be reached,
`Unavailable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import EllipsisType
from typing import Any, Final, Literal, TypeAlias, Unpack

from temporalio.exceptions import ApplicationError

from abeyance import commands, names, views, wire
from abeyance.authoring.graph import Graph
from abeyance.client import snapshots
from abeyance.client.deployment import Deployment
from abeyance.client.executions import UNBOUNDED, Room
from abeyance.client.mailbox import RunMailbox, order_of_message, with_id
from abeyance.client.rpc import RunEnded
from abeyance.commands import as_events
from abeyance.core import idempotency, ledger
from abeyance.core.events import Control, Keyed
from abeyance.core.json import Json
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import GraphSpec
from abeyance.duration import Duration
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.handle import Forked, MessageFields
from abeyance.history.closing_record import edit_after_the_end, respond_after_the_end
from abeyance.orders import deadline_order, migrate_order, order_of, respond_order, retry_order
from abeyance.schemas.state_model import ValuesError
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.update_limiter import Turn
from abeyance.util import as_names

_SIGNALS: Final[Mapping[type[commands.Order], Control]] = {
    commands.Pause: "pause",
    commands.Resume: "resume",
    commands.Cancel: "cancel",
}


Edit: TypeAlias = (
    commands.EditValues
    | commands.EditDeadline
    | commands.TakeBack
    | commands.Claim
    | commands.ReleaseClaim
    | commands.Reassign
)
"""What changes an open run or one of its questions, and has no receipt."""


class TemporalRun(RunMailbox):
    """One run over Temporal (`abeyance.RunHandle`).

    Without a `principal` the caller is `temporal`, without capabilities. Methods that take a command
    (`commands.Respond`, ...) are for callers that have one already, as the API has.
    """

    def __init__(self, deployment: Deployment, run_id: str, graph: Graph | None = None) -> None:
        super().__init__(deployment, run_id)
        self._graph = graph

    async def respond(
        self,
        answers: Mapping[str, Any] | str | None = None,
        response: Any = ...,
        *,
        principal: Principal | None = None,
        note: str | None = None,
        digests: Mapping[str, str] | None = None,
        on_behalf_of: str | None = None,
        key: str | None = None,
    ) -> list[ledger.Receipt]:
        """Answer interrupts: several by their ids, all or nothing; one by its id; or the only open one.

        An answer is JSON, or an instance of the question's `response` type. The same answer again gets
        the first receipt, also after the run has ended. Raises the refusals of the respond table; nothing
        of a refused call is applied.
        """
        order = respond_order(
            answers,
            response,
            principal=principal or TEMPORAL,
            note=note,
            digests=digests,
            on_behalf_of=on_behalf_of,
            key=key,
        )
        return await self.respond_to(order)

    async def respond_to(
        self, order: commands.Respond, *, as_delegate: bool = True
    ) -> list[ledger.Receipt]:
        """Answer interrupts by a command; with `as_delegate` also in the place of others."""
        if not as_delegate:
            return await self._respond(order)
        return await self._deployment.delegations.with_standing(order, self._respond)

    async def _respond(self, order: commands.Respond) -> list[ledger.Receipt]:
        if is_all_sealed(self._line.temporal.data_converter):
            order = await self._bound(order)
        try:
            receipts = await self._line.update(
                self.run_id, "respond", order, views.Receipts, Turn.RESPOND
            )
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
            receipts = views.Receipts.model_validate(error.details[0])
        except RunEnded as ended:
            return respond_after_the_end(await self._line.record(ended.described), order)
        return receipts.receipts

    async def _bound(self, order: commands.Respond) -> commands.Respond:
        """The command, stamped with the digests of the interrupts that are open now."""
        digests = {entry.id: entry.digest or "" for entry in await self.interrupts()}
        answered = set(order.responses or filter(None, [order.interrupt_id]))
        if not answered and len(digests) == 1:
            answered = set(digests)
        shown = {id_: order.digests.get(id_, digests[id_]) for id_ in answered if id_ in digests}
        return order.stamped(wire.Stamp(order="respond", shown=shown))

    async def pause(
        self,
        reason: str | None = None,
        *,
        mode: Literal["after-node", "now"] = "after-node",
        timeout: Duration | None = None,
        on_timeout: str = "resume",
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Start no new work, for `timeout` at most; then `on_timeout`: `resume`, `halt`, `goto:<node>`.

        `pause`, `resume`, `cancel` and `steer` return once Temporal has the signal. If the run refuses
        it, its events have a `signal.refused` or `message.rejected`. A repeated `key` has no further
        effect. A key that was used for another call is an `idempotency_conflict`, raised if this client
        made that call. Raises `unknown_run` and `not_running`.
        """
        caller = principal or TEMPORAL
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        by = {"actor": caller.subject, "capabilities": caller.capabilities, "key": key}
        await self.control(order_of(commands.Pause, {**about, **by}))

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Resume after a pause. Raises `unknown_run` and `not_running`."""
        actor = (principal or TEMPORAL).subject
        about = {"reason": reason, "actor": actor, "key": key}
        await self.control(order_of(commands.Resume, about))

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Cancel the run; `grace` is how long nodes may take to stop.

        Raises `unknown_run` and `not_running`.
        """
        actor = (principal or TEMPORAL).subject
        about = {"reason": reason, "mode": mode, "grace": grace, "actor": actor, "key": key}
        await self.control(order_of(commands.Cancel, about))

    async def control(self, order: commands.Order) -> None:
        """Pause, resume or cancel by a command. Raises as `pause`."""
        event = as_events.control(order, datetime.now(UTC))
        try:
            await self._line.signal(
                self.run_id,
                _SIGNALS[type(order)],
                order,
                key=order.key,
                digest=idempotency.digest(event),
            )
        except RunEnded as ended:
            if await self._earlier(ended, event) is None:
                raise ended.described.not_running() from ended

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`.

        Without a version the current values are edited. The patch is validated by the state model of the
        graph that `Client.run` got. Raises
        `invalid_input`, `not_stopped`, `stale`, `capability_required`, `unknown_run` and `not_running`;
        and ValueError without a graph.
        """
        if self._graph is None:
            raise ValueError("editing values needs the run's graph: client.run(run_id, graph)")
        try:
            checked = self._graph.states.patch(patch)
        except ValuesError as error:
            described = await self._line.described(self.run_id)
            if not described.is_running:
                raise described.not_running() from error
            raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error
        current = (await self.view()).version if version is None else version
        about = {"patch": checked, "version": current, "principal": principal or TEMPORAL}
        await self.edit(order_of(commands.EditValues, {**about, "key": key}))

    async def edit_deadline(
        self,
        interrupt_id: str,
        *,
        deadline: datetime | EllipsisType | None = ...,
        timeout: Duration | EllipsisType | None = ...,
        on_timeout: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Move the deadline of an open interrupt, or change what happens then (`halt`, `goto:<node>`).

        None as `deadline` or `timeout` removes it. Raises `unknown_interrupt`, `already_answered`,
        `withdrawn`, `capability_required`, `unknown_node`, `invalid_body`, `unknown_run`. In an ended
        run the status of the interrupt decides.
        """
        order = deadline_order(
            interrupt_id,
            deadline=deadline,
            timeout=timeout,
            on_timeout=on_timeout,
            principal=principal or TEMPORAL,
            key=key,
        )
        await self.edit(order)

    async def claim(
        self,
        interrupt_id: str,
        *,
        for_: Duration = commands.ONE_CLAIM,
        on_behalf_of: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Keep an open question for the caller. Raises as `RunHandle.claim`."""
        about = {"for_": for_, "on_behalf_of": on_behalf_of, "principal": principal or TEMPORAL}
        await self.edit(
            order_of(commands.Claim, {"interrupt_id": interrupt_id, "key": key, **about})
        )

    async def release(
        self, interrupt_id: str, *, principal: Principal | None = None, key: str | None = None
    ) -> None:
        """End the claim of a question. Raises as `RunHandle.release`."""
        about = {"principal": principal or TEMPORAL, "key": key}
        await self.edit(order_of(commands.ReleaseClaim, {"interrupt_id": interrupt_id, **about}))

    async def reassign(
        self,
        interrupt_id: str,
        to: str | Sequence[str],
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Replace whom a question is for. Raises as `RunHandle.reassign`."""
        about = {"to": as_names(to), "note": note, "principal": principal or TEMPORAL, "key": key}
        await self.edit(order_of(commands.Reassign, {"interrupt_id": interrupt_id, **about}))

    async def take_back(
        self,
        interrupt_id: str,
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Take back a yes while its question is held. Raises as `RunHandle.take_back`."""
        by = {"interrupt_id": interrupt_id, "principal": principal or TEMPORAL, "key": key}
        await self.edit(order_of(commands.TakeBack, {"note": note, **by}))

    async def edit(self, order: Edit) -> None:
        """Edit values, a deadline or whose a question is, or take an answer back, by a command.

        Raises as these do.
        """
        if isinstance(order, commands.Claim):
            await self._deployment.delegations.with_standing(order, self._edit)
        else:
            await self._edit(order)

    async def _edit(self, order: Edit) -> None:
        now = datetime.now(UTC)
        event: Keyed
        match order:
            case commands.EditValues():
                name, event = "edit_values", as_events.values_edited(order, now)
            case commands.EditDeadline():
                name, event = "edit_deadline", as_events.deadline_edited(order, now)
            case commands.TakeBack():
                name, event = "take_back", as_events.taken_back(order, now)
            case commands.Claim():
                name, event = "claim", as_events.claimed(order, now)
            case commands.ReleaseClaim():
                name, event = "release", as_events.released(order, now)
            case commands.Reassign():
                name, event = "reassign", as_events.reassigned(order, now)
        try:
            await self._line.update(self.run_id, name, order, None, Turn.RESPOND)
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
        except RunEnded as ended:
            record = await self._line.record(ended.described)
            if idempotency.earlier(record.keys, event) is not None:
                return
            if isinstance(order, commands.EditDeadline):
                raise edit_after_the_end(record, order) from ended
            raise ended.described.not_running() from ended

    async def migrate(
        self,
        *,
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        dry_run: bool = False,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> views.Migration:
        """Move the open run to the graph that its worker has today, and return what that does.

        A handle with a graph (`Client.run`) is refused with `versions_differ` if the worker has another
        version of it. Raises as `RunHandle.migrate`.
        """
        order = migrate_order(
            patch=patch,
            renames=renames,
            dry_run=dry_run,
            principal=principal or TEMPORAL,
            key=key,
            version=None if self._graph is None else self._graph.build().version,
        )
        return await self.migrate_by(order)

    async def migrate_by(self, order: commands.Migrate) -> views.Migration:
        """Migrate by a command."""
        try:
            return await self._line.update(
                self.run_id, "migrate", order, views.Migration, Turn.RESPOND
            )
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
            return views.Migration.model_validate(error.details[0])
        except RunEnded as ended:
            # Today's graph is no part of the call.
            event = as_events.migrated(order, datetime.now(UTC), spec=GraphSpec(name=""), patch={})
            if order.dry_run or await self._earlier(ended, event) is None:
                raise ended.described.not_running() from ended
            version = (await self._line.record(ended.described)).view.graph_version
            return views.Migration(run_id=self.run_id, before=version, after=version)

    async def retry(
        self,
        *,
        graph: Literal["pinned", "today"] = "pinned",
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Let a run that failed, was halted or was cancelled go on from where it ended, under its id.

        Today's graph is that of the handle (`Client.run`). Raises as `RunHandle.retry`; and ValueError
        without a graph, if a patch or today's graph is wanted.
        """
        order = retry_order(graph=graph, patch=patch, renames=renames)
        await self.retry_by(order, principal=principal or TEMPORAL, key=key)

    async def retry_by(
        self,
        order: commands.RetryBody,
        *,
        principal: Principal,
        key: str | None = None,
        room: Room = UNBOUNDED,
    ) -> None:
        """Retry by a command."""
        about = (self._deployment, self.run_id, order)
        await snapshots.retry(*about, self._graph, principal=principal, key=key, room=room)

    async def fork(
        self, *, back: int = 0, run_id: str | None = None, principal: Principal | None = None
    ) -> Forked:
        """Start a new run with the past of this one, open or ended, which stays as it is.

        Raises as `RunHandle.fork`.
        """
        order = order_of(commands.ForkBody, {"back": back, "run_id": run_id})
        started = await self.fork_by(order, principal=principal or TEMPORAL)
        run = TemporalRun(self._deployment, started.run_id, self._graph)
        asked = started.interrupts if started.created else await run.interrupts()
        return Forked(run=run, interrupts=asked)

    async def fork_by(
        self,
        order: commands.ForkBody,
        *,
        principal: Principal,
        request: str | None = None,
        room: Room = UNBOUNDED,
    ) -> snapshots.ForkStarted:
        """Fork by a command. `request` is as in `Client.runs.start`."""
        about = (self._deployment, self.run_id, order)
        return await snapshots.fork(*about, principal=principal, request=request, room=room)

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

        `journal` are its finished steps, `unread` is whether the worker could not read them. An ended run
        is not told. Raises Unavailable.
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

    async def notification_failed(self, failed: wire.NotificationFailed) -> bool:
        """Tell the run whom a notification did not reach, and return whether it is open.

        Raises `unknown_run`.
        """
        try:
            await self._line.signal(self.run_id, "notification_failed", failed)
        except RunEnded:
            return False
        return True

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> views.MessageReceipt:
        """Pause the run, and put a message into the mailbox, to be read after the pause.

        A refused message pauses nothing. Raises as `send`. Without a worker both are sent as signals.
        """
        actor = (fields.get("principal") or TEMPORAL).subject
        return await self.pause_and_send_message(
            order_of_message(text, fields), commands.Pause(actor=actor)
        )

    async def pause_and_send_message(
        self, message: commands.SteerMessage, pause: commands.Pause | None = None
    ) -> views.MessageReceipt:
        """Pause and send by commands. Raises also `unknown_node` and
        `idempotency_conflict` of the pause.
        """
        pause = pause or commands.Pause()
        message = with_id(message)
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
