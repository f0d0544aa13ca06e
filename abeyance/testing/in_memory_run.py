"""A run in memory as callers have it, and a function that answers its questions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import EllipsisType
from typing import Any, Final, Literal, Unpack

from pydantic import BaseModel

from abeyance import commands, projections, wire
from abeyance.agents import transcript
from abeyance.agents.transcript_view import TranscriptItem, transcript_items
from abeyance.authoring.graph import Graph
from abeyance.core import events, idempotency, items, ledger, machine, messages
from abeyance.core.events import CancelRequested, Control, MessageSent, Paused, Resumed
from abeyance.core.json import Json
from abeyance.core.ledger import Receipt
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.state import Limits, RunState
from abeyance.core.text import truncate
from abeyance.duration import Duration, seconds
from abeyance.errors import Code, Refusal
from abeyance.handle import (
    MessageFields,
    deadline_order,
    message_order,
    order_of,
    respond_order,
)
from abeyance.history.transcripts import choose_address
from abeyance.schemas import answers as limits_
from abeyance.schemas.state_model import ValuesError
from abeyance.testing.driver import MAX_STEPS, Driver
from abeyance.views import (
    TERMINAL_EVENTS,
    ClosingRecord,
    Event,
    InterruptView,
    MessageReceipt,
    MessageView,
    RunView,
)

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


class InMemoryRun:
    """A run that a test drives (`abeyance.RunHandle`). It changes only while one of its methods runs.

    `principal` defaults to `tester`, who has every capability. While a visit is blocked, each method that
    changes the run tries it again, and raises `abeyance.errors.Blocked` after the change if it still is.
    """

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
    ) -> None:
        self._sent = 0
        self._graph = graph
        self._start = wire.StartRun(run_id=run_id, graph_version=graph.build().version)
        state = machine.new_run(
            run_id=run_id,
            spec=graph.build_for(
                interrupt_before=interrupt_before,
                interrupt_after=interrupt_after,
                on_error=on_error,
            ),
            limits=limits_.checked_limits(limits or Limits()),
            values=graph.states.initial(input or {}),
            now=now,
        )
        self._driver = Driver(graph, state, self._start)

    @property
    def now(self) -> datetime:
        """The run's own clock."""
        return self._driver.now

    @property
    def status(self) -> str:
        """The status that callers see."""
        return str(self.state.status)

    @property
    def reason(self) -> str | None:
        """The reason for which the run ends or ended; None while it runs."""
        ending = self.state.ending
        return None if ending is None else ending.reason

    @property
    def values(self) -> Mapping[str, Json]:
        """The values of the run's graph, as JSON."""
        return self.state.root.values

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.state.run_id

    @property
    def state(self) -> RunState:
        """The core's state of the run."""
        return self._driver.state

    async def start(self) -> None:
        """Start the run, and continue until it needs an answer or the passing of time."""
        await self._driver.start()

    async def advance(self, by: Duration) -> None:
        """Move the clock, firing each deadline on the way. Raise Blocked if a visit is blocked then."""
        until = self.now + timedelta(seconds=seconds(by))
        while await self._driver.reach_deadline(until):
            pass
        self._driver.raise_blocked()

    async def view(self) -> RunView:
        """Return the run as it is now."""
        return projections.run_view(self.state, self._start)

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or `all`: open ones first, in the order of opening."""
        entries = [
            *projections.open_interrupts(self.state),
            *projections.settled_interrupts(self.state),
        ]
        return [entry for entry in entries if status in ("all", entry.status)]

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return an interrupt by its id or, while it is open, its name; None if there is none."""
        try:
            return projections.interrupt(self.state, self._id_of(interrupt_id))
        except KeyError:
            return None

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Yield the events after the one with the id `after`, in order.

        With `follow`, continue with new events until the run has ended.
        """
        place = 0 if after is None else self._place_after(after)
        while True:
            moved = self._driver.moved
            for event in self._driver.events[place:]:
                yield event
                place += 1
                if event.type in TERMINAL_EVENTS:
                    return
            if not follow:
                return
            if place == len(self._driver.events):
                await moved.wait()

    def _place_after(self, after: str) -> int:
        ids = [event.id for event in self._driver.events]
        if after not in ids:
            raise Refusal(
                Code.INVALID_BODY,
                f"{truncate(after, 100)!r} is not the id of an event of this run.",
            )
        return ids.index(after) + 1

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view once the status is in `until`, the run has ended, or `timeout` has passed.

        `timeout` is in seconds of the run's own clock, which moves at once. Raise Blocked if it has
        passed and a visit is blocked; with `blocked` in `until` the view is returned instead.
        """
        end = self.now + timedelta(seconds=timeout)
        is_left = True
        while not (view := await self.view()).is_awaited(until):
            if not is_left:
                self._driver.raise_blocked()
                break
            # Other tasks act first.
            await asyncio.sleep(0)
            is_left = await self._driver.reach_deadline(end)
        return view

    async def result(self) -> ClosingRecord:
        """Return the closing record. Raise the Refusal `not_finished` while the run is not over."""
        if not self.state.finished:
            raise Refusal(
                Code.NOT_FINISHED,
                f"The run {self.run_id!r} is {self.status} and has no result yet.",
                run_status=self.status,
            )
        record = projections.closing_record(self.state, self._start)
        return record.model_copy(update={"view": await self.view()})

    async def respond(
        self,
        answers: Mapping[str, Any] | str | None = None,
        response: Any = ...,
        *,
        principal: Principal | None = None,
        note: str | None = None,
        digests: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> list[Receipt]:
        """Answer several interrupts (all or none), one, or the only open one, by id or name.

        `digests` bind an answer to the content that was shown. Raise the Refusal if an answer is refused.
        """
        if isinstance(answers, str):
            answers = self._id_of(answers)
        elif answers is not None:
            answers = {self._id_of(name): answer for name, answer in answers.items()}
        digests = {self._id_of(name): digest for name, digest in (digests or {}).items()}
        order = respond_order(
            answers, response, principal=principal or _ANYBODY, note=note, digests=digests, key=key
        )
        event = commands.responded(order, self.state.ledger, self.now, keys=self.state.keys)
        if (called := idempotency.earlier(self.state.keys, event)) is not None:
            return idempotency.receipts_again(called)
        ledger.refuse_strays(event)
        machine.check(self.state, event)
        receipts = idempotency.receipts(self.state.ledger, event)
        if not all(receipt.replayed for receipt in receipts):
            await self._driver.feed(event)
        return receipts

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
        """Start no new work for at most `timeout`; then do `on_timeout`: `resume`, `halt`, `goto:<node>`.

        Sent as a signal: a refusal is published as the event `signal.refused`.
        """
        actor = principal or _ANYBODY
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        by = {"actor": actor.subject, "capabilities": tuple(actor.capabilities), "key": key}
        await self._signal(
            "pause", commands.control(order_of(wire.Pause, {**about, **by}), self.now)
        )

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """End a pause."""
        about = {"reason": reason, "actor": (principal or _ANYBODY).subject, "key": key}
        await self._signal("resume", commands.control(order_of(wire.Resume, about), self.now))

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Cancel the run; `grace` is how long its nodes may take to stop."""
        actor = (principal or _ANYBODY).subject
        about = {"reason": reason, "mode": mode, "grace": grace, "actor": actor, "key": key}
        order = order_of(wire.Cancel, about)
        await self._signal("cancel", commands.control(order, self.now))

    async def _signal(self, name: Control, event: Paused | Resumed | CancelRequested) -> None:
        if idempotency.earlier(self.state.keys, event) is not None:
            return
        self._refuse_ended()
        try:
            await self._driver.feed(event)
        except Refusal as refusal:
            refused = events.SignalRefused(
                now=self.now, signal=name, code=str(refusal.code), reason=refusal.message
            )
            await self._driver.feed(refused)

    def _refuse_ended(self) -> None:
        if self.state.finished:
            raise Refusal(Code.NOT_RUNNING, f"The run {self.run_id!r} has ended ({self.status}).")

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Send a message as a signal, and return its id.

        A rejection is published as the event `message.rejected`.
        """
        sent = self._message(text, fields, signalled=True)
        messages.refuse_empty(sent.message)
        self._refuse_ended()
        await self._driver.feed(sent)
        return sent.message.message_id

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Send a message, and return its receipt. Raise the Refusal if the run refuses it."""
        sent = self._message(text, fields)
        is_duplicate = self.state.mailbox.knows(sent.message)
        await self._driver.feed(sent)
        return MessageReceipt(
            message_id=sent.message.message_id,
            duplicate=is_duplicate,
            queue_depth=len(self.state.mailbox.queue),
        )

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and send a message that is read when it resumes.

        If the run refuses the message, it is not paused.
        """
        sent = self._message(text, fields)
        machine.check(self.state, sent)
        await self.pause(principal=fields.get("principal"))
        fields["message_id"] = sent.message.message_id
        return await self.send(text, **fields)

    def _message(self, text: str, fields: MessageFields, *, signalled: bool = False) -> MessageSent:
        self._sent += 1
        order = message_order(text, fields, principal=fields.get("principal") or _ANYBODY)
        return commands.message_sent(order, self.now, f"m{self._sent}", signalled=signalled)

    async def messages(self) -> list[MessageView]:
        """Return the unread messages, next first."""
        return [MessageView.of(message) for message in self.state.mailbox.queue]

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, publish that, and return their number."""
        actor = (principal or _ANYBODY).subject
        order = order_of(wire.ClearMessages, {"actor": actor, "key": key})
        event = commands.messages_cleared(order, self.now)
        if (earlier := idempotency.earlier(self.state.keys, event)) is not None:
            return int(earlier.receipt)
        count = len(self.state.mailbox.queue)
        await self._driver.feed(event)
        return count

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Patch the values of a run that is paused or waits for input.

        Raise the Refusal if they are no longer at `version` (None: the current one) or do not fit.
        """
        try:
            checked = self._graph.states.patch(patch)
        except ValuesError as error:
            raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error
        read = self.state.root.version if version is None else version
        about = {"patch": checked, "version": read, "principal": principal or _ANYBODY}
        order = order_of(wire.EditValues, {**about, "key": key})
        await self._driver.feed(commands.values_edited(order, self.now))

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
        """Change the deadline of an open interrupt, by id or name, or its `on_timeout`.

        None as `deadline` or `timeout` removes the deadline. Raise the Refusal if the run refuses.
        """
        order = deadline_order(
            self._id_of(interrupt_id),
            deadline=deadline,
            timeout=timeout,
            on_timeout=on_timeout,
            principal=principal or _ANYBODY,
            key=key,
        )
        await self._driver.feed(commands.deadline_edited(order, self.now))

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return an agent's transcript, oldest first.

        `address` may be omitted if there is one agent. Raise the Refusal that the API would return.
        """
        heads = items.transcripts(self.state)
        agent = choose_address(self.state.run_id, heads, address)
        return transcript_items(await transcript.read(self._driver.blobs, heads[agent]))

    def _id_of(self, id_or_name: str) -> str:
        opened = self.state.ledger.open.values()
        named = [entry.id for entry in opened if entry.name == id_or_name]
        if len(named) > 1:
            raise Refusal(
                Code.AMBIGUOUS_INTERRUPT,
                f"{len(named)} open interrupts are named {id_or_name!r}; name one by its id: "
                f"{', '.join(named)}.",
                interrupts=named,
            )
        return named[0] if named else id_or_name


async def run(
    graph: Graph,
    input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
    *,
    answers: Mapping[str, Any | Callable[[InterruptView], Any]] | None = None,
    principal: Principal = _ANYBODY,
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
    is False. The other parameters are those of a start. Raise the Refusal if the run refuses an answer.
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
