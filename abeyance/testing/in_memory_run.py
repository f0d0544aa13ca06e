"""`InMemoryRun`, the handle of a run in memory, and `run`, which runs a graph to its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from abeyance import commands, projections, wire
from abeyance.authoring.graph import Graph
from abeyance.commands import as_events
from abeyance.core import events, idempotency, machine, mailbox, messages, replies
from abeyance.core.delegations import Delegations, Wanted
from abeyance.core.json import Json
from abeyance.core.ledger import Receipt
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.state import Limits, RunState
from abeyance.duration import Duration, seconds
from abeyance.errors import Code, Refusal
from abeyance.history.after_the_end import (
    edit_after_the_end,
    not_running,
    respond_after_the_end,
)
from abeyance.orders import SIGNALS, order_of
from abeyance.runtime import answering, graph_today, retries
from abeyance.schemas.requests import checked_limits
from abeyance.schemas.state_model import ValuesError
from abeyance.testing.driver import MAX_STEPS, Driver
from abeyance.testing.reader import InMemoryReader
from abeyance.util import as_names, checked_run_id
from abeyance.views import InterruptView, MessageReceipt, MessageView, Migration, Rewind

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


class InMemoryRun(InMemoryReader):
    """A run that a test drives (`abeyance.RunHandle`). It changes only while one of its methods runs.

    An open interrupt may be given by its name. The current graph is the one that was deployed last.
    `principal` defaults to `tester`, who has every capability. While a visit is blocked, each method
    that changes the run retries it. If it is still blocked, the methods that wait for the run raise
    `abeyance.errors.Blocked`: `start`, `advance` and `wait`. All others return what they return on a
    server, and `(await run.view()).blocked` says why the run does not go on.
    """

    caller = ANYBODY

    def __init__(
        self,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        *,
        run_id: str = "test",
        limits: Limits | None = None,
        now: datetime = EPOCH,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
        started_by: str = "temporal",
        on_behalf_of: str | None = None,
    ) -> None:
        order_of(commands.StartFields, {"on_behalf_of": on_behalf_of})
        person = started_by if on_behalf_of is None else on_behalf_of
        start = wire.StartRun(
            run_id=checked_run_id(run_id),
            started_by=person,
            sent_by=started_by if person != started_by else None,
            graph_version=graph.build().version,
            interrupt_before=as_names(interrupt_before),
            interrupt_after=as_names(interrupt_after),
            on_error=on_error,
        )
        spec = graph_today.spec_of_run(graph, interrupt_before, interrupt_after, on_error)
        state = machine.new_run(
            run_id=run_id,
            spec=graph_today.pinned(spec),
            limits=checked_limits(limits or Limits()),
            values=graph.states.initial(input or {}),
            now=now,
            started_by=person,
        )
        self._sent = 0
        # The digests of messages by their ids, as far as they were sent by signals.
        self._steered: dict[str, str] = {}
        self._delegations = Delegations()
        self._graph = graph
        self._start = start
        self._driver = Driver(graph, state, start)

    @property
    def reason(self) -> str | None:
        """The reason for which the run ends or ended; None while it runs."""
        ending = self.state.ending
        return None if ending is None else ending.reason

    @property
    def values(self) -> Mapping[str, Json]:
        """The values of the run's graph, as JSON."""
        return self.state.root.values

    async def start(self) -> None:
        """Start the run, once, and continue until it needs an answer or has to wait for a time.

        Raise Blocked if a visit is blocked then.
        """
        await self._driver.start()

    async def advance(self, by: Duration) -> None:
        """Move the clock, firing each deadline on the way. Raise Blocked if a visit is blocked then."""
        if (span := seconds(by)) < 0:
            raise ValueError(f"the clock of a run goes forward, and not by {by!r}")
        until = self.now + timedelta(seconds=span)
        while await self._driver.reach_deadline(until):
            pass
        self._driver.raise_blocked()

    async def control(self, order: commands.Order) -> None:
        event = as_events.control(order, self.now)
        if idempotency.earlier(self.state.keys, event) is not None:
            return
        self._refuse_ended()
        try:
            await self._driver.feed(event)
        except Refusal as refusal:
            refused = events.SignalRefused(
                now=self.now,
                signal=SIGNALS[type(order)],
                code=str(refusal.code),
                reason=refusal.message,
            )
            await self._driver.feed(refused)

    def _refuse_ended(self) -> None:
        if self.state.finished:
            view = self._record().view
            raise not_running(self.run_id, view.status, view.ended_at)

    async def signal_message(self, message: commands.SteerMessage) -> str:
        sent = self._sent_message(message, signalled=True)
        messages.refuse_empty(sent.message)
        self._refuse_ended()
        id_, digest = sent.message.message_id, mailbox.digest(sent.message)
        if self._steered.setdefault(id_, digest) != digest:
            raise mailbox.conflict(id_)
        await self._driver.feed(sent)
        return sent.message.message_id

    async def send_message(self, message: commands.SteerMessage) -> MessageReceipt:
        self._refuse_ended()
        sent = self._sent_message(message)
        is_duplicate = self.state.mailbox.knows(sent.message)
        await self._driver.feed(sent)
        return MessageReceipt(
            message_id=sent.message.message_id,
            duplicate=is_duplicate,
            queue_depth=len(self.state.mailbox.queue),
        )

    async def pause_and_send_message(
        self, message: commands.SteerMessage, pause: commands.Pause
    ) -> MessageReceipt:
        self._refuse_ended()
        sent = self._sent_message(message)
        machine.check(self.state, sent)
        await self.control(pause)
        named = {"message_id": sent.message.message_id}
        return await self.send_message(message.model_copy(update=named))

    def _sent_message(
        self, order: commands.SteerMessage, *, signalled: bool = False
    ) -> events.MessageSent:
        self._sent += 1
        return as_events.message_sent(order, self.now, f"m{self._sent}", signalled=signalled)

    async def messages(self) -> list[MessageView]:
        return [MessageView.of(message) for message in self.state.mailbox.queue]

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        actor = (principal or ANYBODY).subject
        order = order_of(commands.ClearMessages, {"actor": actor, "key": key})
        event = as_events.event(events.MessagesCleared, order, self.now)
        if (earlier := idempotency.earlier(self.state.keys, event)) is not None:
            return int(earlier.receipt)
        self._refuse_ended()
        count = messages.unread(self.state, self.now)
        await self._driver.feed(event)
        return count

    async def respond_to(self, order: commands.Respond) -> list[Receipt]:
        named: dict[str, Any] = {
            "digests": {self._id_of(name): digest for name, digest in order.digests.items()}
        }
        if order.interrupt_id is not None:
            named["interrupt_id"] = self._id_of(order.interrupt_id)
        if order.responses is not None:
            answers = order.responses.items()
            named["responses"] = {self._id_of(name): answer for name, answer in answers}
        order = order.model_copy(update=named)
        lent = self._delegations.of(order.principal.subject, self.now)
        order = order.model_copy(update={"delegations": lent})
        if self.state.finished:
            return respond_after_the_end(self._record(), self.state.keys, order)
        event = as_events.responded(order, self.state.ledger, self.now, keys=self.state.keys)
        if (called := idempotency.earlier(self.state.keys, event)) is not None:
            return idempotency.receipts_again(called)
        replies.refuse_strays(event)
        graphs = {self._graph.name: self._graph}
        event = answering.typed(self.state, event, partial(answering.take, graphs))
        machine.check(self.state, event)
        receipts = idempotency.receipts(self.state.ledger, event)
        if not all(receipt.replayed for receipt in receipts):
            await self._driver.feed(event)
        return receipts

    async def checked_patch(self, patch: Mapping[str, Any]) -> dict[str, Json]:
        try:
            return self._graph.states.edit(patch)
        except ValuesError as error:
            self._refuse_ended()
            raise error.refusal() from error

    async def edit(self, order: commands.Edit) -> None:
        if not isinstance(order, commands.EditValues):
            order = order.model_copy(update={"interrupt_id": self._id_of(order.interrupt_id)})
        if isinstance(order, commands.Claim):
            lent = self._delegations.of(order.principal.subject, self.now)
            order = order.model_copy(update={"delegations": lent})
        event = as_events.edited(order, self.now)
        if idempotency.earlier(self.state.keys, event) is not None:
            return
        if self.state.finished and isinstance(order, commands.EditDeadline):
            raise edit_after_the_end(self._record(), order)
        self._refuse_ended()
        await self._driver.feed(event)

    def delegate(
        self,
        by: Principal,
        to: str,
        *,
        capabilities: Sequence[str] | None = None,
        until: Duration = "30d",
    ) -> None:
        """Let `to` answer in the place of `by`, for the duration `until`, by the run's clock.

        Raise the Refusal if `by` cannot lend that.
        """
        self._delegations = self._delegations.made(
            Wanted(
                id=f"d{len(self._delegations.all) + 1}",
                maker=by,
                to=to,
                capabilities=None if capabilities is None else tuple(capabilities),
                until=self.now + timedelta(seconds=seconds(until)),
            ),
            self.now,
        )

    def deploy(self, graph: Graph) -> None:
        """Run the code of another version of the graph from now on, as after a deploy.

        The run keeps the graph that it was started with, until it is migrated, or retried with the
        current one.
        """
        self._graph = graph
        self._driver.deploy(graph)

    async def migrate_by(self, order: commands.Migrate) -> Migration:
        today = self._today(self.state, patch=order.patch, renames=order.map)
        versions = (self._start.graph_version, today.version)
        event = as_events.migrated(
            order, self.now, spec=today.spec, patch=today.patch, versions=versions
        )
        if not order.dry_run and idempotency.earlier(self.state.keys, event) is not None:
            version = self._start.graph_version
            return Migration(run_id=self.run_id, before=version, after=version)
        self._refuse_ended()
        outcome = graph_today.migration(
            self.state, self._start, today, event, dry_run=order.dry_run
        )
        if not order.dry_run:
            self._begin({"graph_version": today.version})
            await self._driver.feed(event)
        return outcome

    async def retry_by(
        self, order: commands.RetryBody, *, principal: Principal, key: str | None = None
    ) -> None:
        mark = retries.mark(order, principal, key)
        if retries.was_retried(self._start.retry_keys, mark, key):
            return
        if not self.state.finished:
            raise retries.not_finished(self.run_id, self.status)
        state, version = retries.retried(
            self.state, self._start, order, self._graph, principal=principal, now=self.now
        )
        marks = retries.marked(self._start.retry_keys, mark)
        self._begin({"graph_version": version, "retry_keys": marks})
        await self._driver.go_on(state)

    async def rewind_by(
        self, order: commands.RewindBody, *, principal: Principal, key: str | None = None
    ) -> Rewind:
        """Raise `gone`: a run in memory has no history to go back in."""
        del principal, key
        raise Refusal(
            Code.GONE,
            f"A run in memory keeps no history, so it cannot be rewound to {order.to!r}. Test that with "
            "a run over Temporal (`abeyance dev`).",
            run_id=self.run_id,
        )

    def _today(
        self, state: RunState, *, patch: Mapping[str, Json], renames: Mapping[str, str]
    ) -> wire.GraphToday:
        order = graph_today.order_of(state, self._start, patch=patch, renames=renames)
        return graph_today.read_graph(self._graph, order)

    def _begin(self, changes: Mapping[str, Any]) -> None:
        self._start = self._start.model_copy(update=changes)
        self._driver.begin(self._start)


async def run(
    graph: Graph,
    input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
    *,
    answers: Mapping[str, Any | Callable[[InterruptView], Any]] | None = None,
    principal: Principal = ANYBODY,
    limits: Limits | None = None,
    skip_time: bool = True,
    run_id: str = "test",
    now: datetime = EPOCH,
    interrupt_before: str | Sequence[str] = (),
    interrupt_after: str | Sequence[str] = (),
    on_error: str | None = None,
) -> InMemoryRun:
    """Run a graph until it ends or waits for an answer that `answers` does not have.

    `answers` maps the name or id of an interrupt to a value, or to a function of the interrupt, which
    may be async. The clock moves to the deadline of an interrupt without an answer, unless `skip_time`
    is False. The other parameters are those of a start. Raise the Refusal if the run refuses an answer,
    and Blocked if the run goes on no further because a visit is blocked.
    """
    trial = InMemoryRun(
        graph,
        input,
        run_id=run_id,
        limits=limits,
        now=now,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        on_error=on_error,
    )
    await trial.start()
    for _ in range(MAX_STEPS):
        if trial.state.finished:
            break
        if not await _answer_one(trial, answers or {}, principal):
            moment = trial.state.next_deadline()
            if moment is None or not skip_time:
                await trial.advance(timedelta())
                break
            await trial.advance(max(moment - trial.now, timedelta()))
    return trial


async def _answer_one(
    trial: InMemoryRun,
    answers: Mapping[str, Any | Callable[[InterruptView], Any]],
    principal: Principal,
) -> bool:
    for entry in trial.state.ledger.open.values():
        key = entry.id if entry.id in answers else entry.name
        if key not in answers:
            continue
        answer = answers[key]
        if callable(answer):
            answer = answer(projections.interrupt(trial.state, entry.id))
            if inspect.isawaitable(answer):
                answer = await answer
        await trial.respond(entry.id, answer, principal=principal)
        return True
    return False
