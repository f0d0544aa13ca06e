"""Running a graph in memory: the same core, the same code of nodes, no server, and a clock of its own.

A unit test of a graph takes milliseconds, three days are one line, and what it shows is what a run on
Temporal would do, because the rules are the same module. What it cannot show are crashes, races and
everything else that has to do with processes.

    ended = await abeyance.testing.run(graph, {"amount": 250}, answers={"approve": {"approved": True}})
    assert ended.values["log"] == ["assessed", "paid"]
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from types import EllipsisType
from typing import Any, Final, Literal, Unpack, assert_never

from pydantic import BaseModel

from abeyance import commands, projections, wire
from abeyance.agents import transcript
from abeyance.agents.tool_errors import described
from abeyance.agents.transcript_view import TranscriptItem, transcript_items
from abeyance.authoring.context import Context
from abeyance.authoring.graph import Graph
from abeyance.authoring.journal import Journal
from abeyance.core import effects, events, idempotency, items, ledger, machine
from abeyance.core.effects import VisitInput
from abeyance.core.events import CancelRequested, Control, MessageSent, Paused, Resumed
from abeyance.core.json import Json
from abeyance.core.ledger import Receipt
from abeyance.core.outcome import Failed
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.state import Limits, RunState
from abeyance.duration import Duration, seconds
from abeyance.errors import Blocked, Code, FailureCode, Refusal
from abeyance.handle import (
    MessageFields,
    deadline_order,
    message_order,
    order_of,
    respond_order,
)
from abeyance.history import event_translation
from abeyance.history.transcripts import choose_address
from abeyance.projections import run_view
from abeyance.runtime.node_runner import graph_for, run_visit
from abeyance.schemas import answers as limits_
from abeyance.schemas.state_model import ValuesError
from abeyance.storage.blobs import MemoryBlobs
from abeyance.wire import (
    TERMINAL_EVENTS,
    ClosingRecord,
    Event,
    InterruptView,
    MessageReceipt,
    MessageView,
    RunView,
)

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
MAX_STEPS: Final = 100_000
_LONGEST_BACKOFF: Final = 60.0


class Rehearsal:
    """A run that goes on until nothing can happen in it without an answer or the passing of time."""

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
        self._events: list[wire.Event] = []
        self._moved = asyncio.Event()
        self._graph = graph
        self._now = now
        self._wanted: deque[effects.Effect] = deque()
        self._sent = 0
        self._blobs = MemoryBlobs()
        self._state = machine.new_run(
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
        self._start = wire.StartRun(run_id=run_id, graph_version=graph.build().version)

    def take(self, visit: str, number: int) -> events.Message | None:
        """The n-th message that a running visit takes, counted from 0; None if there is none."""
        self._apply(events.MessagesTaken(now=self._now, visit=visit, upto=number + 1))
        taken = self._state.visits[visit].messages_taken
        return taken[number] if len(taken) > number else None

    async def _feed(self, event: events.Event) -> None:
        self._apply(event)
        for _ in range(MAX_STEPS):
            if self._wanted:
                await self._perform(self._wanted.popleft())
            elif (moment := self._state.next_deadline()) is not None and moment <= self._now:
                # It has passed while code ran, or before it was asked.
                self._apply(events.Ticked(now=self._now))
            else:
                return
        message = f"the run did {MAX_STEPS} things without coming to rest: a loop without a way out"
        raise RuntimeError(message)

    def _apply(self, event: events.Event) -> None:
        self._state, wanted = machine.advance(self._state, event)
        self._wanted.extend(wanted)

    async def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.RunNode(input=visit_input):
                # Code that changes what it is given must not change the run.
                await self._visit(deepcopy(visit_input))
            case effects.Publish():
                self._tell(effect.type, effect.address, effect.actor, effect.data)
            case effects.Yield():
                self._apply(events.TaskBegan(now=self._now))
            case effects.Finish():
                self._tell_end()
            case effects.StopNode():
                # Visits run one after another here, so none is under way when something else happens.
                pass
            case _:
                assert_never(effect)

    async def _visit(self, visit_input: VisitInput) -> None:
        if visit_input.kind == "visit":
            self._tell(
                event_translation.visit_started(visit_input.address).type, visit_input.address
            )
        steps: dict[str, Json] = dict(visit_input.journal or {})

        async def write(finished: Mapping[str, Json]) -> None:
            steps.update(finished)

        for attempt in range(1, visit_input.retries + 2):
            book = Journal(steps, None if visit_input.local else write, lambda: self._now)
            context = Context(
                input=visit_input,
                notebook=book,
                mail=_MemoryMail(self, visit_input.address),
                attempt=attempt,
                logger=logging.LoggerAdapter(logging.getLogger("abeyance.node")),
                is_cancelled=lambda: False,
                beat=lambda: None,
                blobs=self._blobs,
            )
            try:
                graph = graph_for(visit_input, {self._graph.name: self._graph})
                outcome = await run_visit(graph, context)
            except Blocked:
                raise
            except Exception as error:  # noqa: BLE001 whatever an author's code raises is a failed attempt
                outcome = Failed(
                    code=FailureCode.NODE_FAILED,
                    message=described(error),
                    journal=steps or None,
                    patch=book.partial,
                )
                if attempt <= visit_input.retries:
                    self._now += timedelta(seconds=min(2.0 ** (attempt - 1), _LONGEST_BACKOFF))
                    continue
            break
        if visit_input.kind == "visit":
            for told in event_translation.visit_reported(
                visit_input.address, {"outcome": asdict(outcome)}
            ):
                self._tell(told.type, told.address, data=told.data)
        self._apply(events.VisitEnded(now=self._now, visit=visit_input.address, outcome=outcome))

    def _tell_beginning(self) -> None:
        told = {
            "graph": self._state.spec.name,
            "graph_version": self._graph.build().version,
            "conversation_id": None,
            "session_type": "agent",
        }
        self._tell("run.started", None, "tester", told)

    def _tell_end(self) -> None:
        view = run_view(self._state, self._start)
        told: dict[str, Json] = {"reason": view.reason}
        if view.error is not None:
            told |= {"code": view.error.code, "message": view.error.message}
        address = None if view.error is None else view.error.address
        self._tell(f"run.{view.status}", address, view.cancelled_by, told)

    def _tell(
        self,
        type_: str,
        address: str | None,
        actor: str | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> None:
        self._events.append(
            wire.Event(
                id=f"{len(self._events):09}",
                time=self._now,
                type=type_,
                run_id=self._state.run_id,
                address=address,
                actor=actor,
                data=dict(data or {}),
            )
        )
        self._moved.set()
        self._moved = asyncio.Event()


class _MemoryMail:
    """The mail of a visit in memory, where nothing else happens while it runs."""

    def __init__(self, trial: Rehearsal, visit: str) -> None:
        self._trial = trial
        self._visit = visit

    async def take(self, number: int) -> events.Message | None:
        return self._trial.take(self._visit, number)

    async def wait_if_paused(self, timeout: float | None) -> bool:  # noqa: ARG002 nobody waits
        return True


__all__ = ["InMemoryRun", "run"]

_ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


class InMemoryRun(Rehearsal):
    """A run that a test drives, as any other run (`abeyance.RunHandle`).

    Nothing happens in it between the calls of its methods. Without a `principal` it is the `tester` who
    does something, who may do everything.
    """

    @property
    def now(self) -> datetime:
        """The run's own time."""
        return self._now

    @property
    def status(self) -> str:
        """What the run is shown as."""
        return str(self._state.status)

    @property
    def reason(self) -> str | None:
        """Why the run ends, or ended."""
        ending = self._state.ending
        return None if ending is None else ending.reason

    @property
    def values(self) -> Mapping[str, Json]:
        """The values of the run's graph, as JSON."""
        return self._state.root.values

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._state.run_id

    @property
    def state(self) -> RunState:
        """All that is true of the run."""
        return self._state

    async def start(self) -> None:
        """Begin, and go on until nothing can happen without an answer or the passing of time."""
        self._tell_beginning()
        await self._feed(events.Started(now=self._now))

    async def advance(self, by: Duration) -> None:
        """Let time pass, and with it every deadline on the way."""
        until = self._now + timedelta(seconds=seconds(by))
        while await self._reach_deadline(until):
            pass

    async def _reach_deadline(self, until: datetime) -> bool:
        """Let time pass to the next deadline, or to `until`; returns whether a deadline came first."""
        moment = self._state.next_deadline()
        is_first = moment is not None and moment <= until
        self._now = max(self._now, moment) if moment is not None and is_first else until
        await self._feed(events.Ticked(now=self._now))
        return is_first

    async def view(self) -> RunView:
        """Return the run as it is now."""
        return projections.run_view(self._state, self._start)

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or of `all`: the open ones first, as they were opened."""
        found = [
            *projections.open_interrupts(self._state),
            *projections.settled_interrupts(self._state),
        ]
        return [entry for entry in found if status in ("all", entry.status)]

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return one interrupt, by its id or, while it is open, its name; None if there is none."""
        try:
            return projections.interrupt(self._state, self._id_of(interrupt_id))
        except KeyError:
            return None

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Yield what has happened, in order, after the event with the id `after`.

        With `follow` also what others make happen from then on, until the run has ended.
        """
        place = 0 if after is None else self._place_after(after)
        while True:
            moved = self._moved
            for event in self._events[place:]:
                yield event
                place += 1
                if event.type in TERMINAL_EVENTS:
                    return
            if not follow:
                return
            if place == len(self._events):
                await moved.wait()

    def _place_after(self, after: str) -> int:
        ids = [event.id for event in self._events]
        if after not in ids:
            raise Refusal(Code.INVALID_BODY, f"{after[:100]!r} is no id of an event of this run.")
        return ids.index(after) + 1

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view as soon as the status is one of `until`, or the run has ended, or `timeout`
        seconds of the run's own time are over: they pass at once.
        """
        end = self._now + timedelta(seconds=timeout)
        is_left = True
        while is_left and not (self.status in until or self._state.finished):
            # Whoever acts at the same time comes first.
            await asyncio.sleep(0)
            is_left = await self._reach_deadline(end)
        return await self.view()

    async def result(self) -> ClosingRecord:
        """Return what the ended run left behind. Raises `not_finished` while it runs."""
        if not self._state.finished:
            raise Refusal(
                Code.NOT_FINISHED,
                f"The run {self.run_id!r} is {self.status} and has no result yet.",
                run_status=self.status,
            )
        record = projections.closing_record(self._state, self._start)
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
        """Answer interrupts: several, all or nothing; one; or the only open one. Here each may also be
        called by its name. Raises the Refusal that it gets.

        `digests` are those of what was shown, for an answer to nothing else.
        """
        if isinstance(answers, str):
            answers = self._id_of(answers)
        elif answers is not None:
            answers = {self._id_of(each): answer for each, answer in answers.items()}
        shown_ = {self._id_of(each): digest for each, digest in (digests or {}).items()}
        order = respond_order(
            answers, response, principal=principal or _ANYBODY, note=note, digests=shown_, key=key
        )
        event = commands.responded(order, self._state.ledger, self._now, known=self._state.keys)
        if (called := idempotency.earlier(self._state.keys, event)) is not None:
            return idempotency.receipts_again(called)
        ledger.refuse_strays(event)
        machine.check(self._state, event)
        receipts = idempotency.receipts(self._state.ledger, event)
        if not all(receipt.replayed for receipt in receipts):
            await self._feed(event)
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
        """Start no new work, for `timeout` at most; then `on_timeout`: `resume`, `halt`, `goto:<node>`.

        As a signal: what the run refuses is in its events (`signal.refused`).
        """
        who = principal or _ANYBODY
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        by = {"actor": who.subject, "capabilities": tuple(who.capabilities), "key": key}
        await self._signal(
            "pause", commands.paused(order_of(wire.Pause, {**about, **by}), self._now)
        )

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Go on after a pause."""
        about = {"reason": reason, "actor": (principal or _ANYBODY).subject, "key": key}
        await self._signal("resume", commands.resumed(order_of(wire.Resume, about), self._now))

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """End the run in good order; `grace` is how long nodes may take to stop."""
        actor = (principal or _ANYBODY).subject
        about = {"reason": reason, "mode": mode, "grace": grace, "actor": actor, "key": key}
        order = order_of(wire.Cancel, about)
        await self._signal("cancel", commands.cancel_requested(order, self._now))

    async def _signal(self, name: Control, event: Paused | Resumed | CancelRequested) -> None:
        if idempotency.earlier(self._state.keys, event) is not None:
            return
        self._refuse_ended()
        try:
            await self._feed(event)
        except Refusal as refusal:
            told = events.SignalRefused(
                now=self._now, signal=name, code=str(refusal.code), reason=refusal.message
            )
            await self._feed(told)

    def _refuse_ended(self) -> None:
        if self._state.finished:
            raise Refusal(Code.NOT_RUNNING, f"The run {self.run_id!r} has ended ({self.status}).")

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Put a message into the mailbox as a signal, and return its id.

        A message that the run rejects is in its events (`message.rejected`).
        """
        sent = self._message(text, fields, signalled=True)
        self._refuse_ended()
        await self._feed(sent)
        return sent.message.message_id

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Put a message into the mailbox, and return its receipt. Raises the Refusal that it gets."""
        sent = self._message(text, fields)
        is_known = self._state.mailbox.knows(sent.message)
        await self._feed(sent)
        return MessageReceipt(
            message_id=sent.message.message_id,
            duplicate=is_known,
            queue_depth=len(self._state.mailbox.queue),
        )

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and put a message into the mailbox, which is read when the run goes on.

        A message that is refused pauses nothing.
        """
        sent = self._message(text, fields)
        machine.check(self._state, sent)
        await self.pause(principal=fields.get("principal"))
        fields["message_id"] = sent.message.message_id
        return await self.send(text, **fields)

    def _message(self, text: str, fields: MessageFields, *, signalled: bool = False) -> MessageSent:
        self._sent += 1
        order = message_order(text, fields, principal=fields.get("principal") or _ANYBODY)
        return commands.message_sent(order, self._now, f"m{self._sent}", signalled=signalled)

    async def messages(self) -> list[MessageView]:
        """Return the unread messages, in the order of reading."""
        return [MessageView.of(message) for message in self._state.mailbox.queue]

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, which are reported, and return how many there were."""
        actor = (principal or _ANYBODY).subject
        order = order_of(wire.ClearMessages, {"actor": actor, "key": key})
        event = commands.messages_cleared(order, self._now)
        if (called := idempotency.earlier(self._state.keys, event)) is not None:
            return int(called.receipt)
        count = len(self._state.mailbox.queue)
        await self._feed(event)
        return count

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`;
        without one, as they are now. Raises the Refusal that it gets.
        """
        try:
            checked = self._graph.states.patch(patch)
        except ValuesError as error:
            raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error
        read = self._state.root.version if version is None else version
        about = {"patch": checked, "version": read, "principal": principal or _ANYBODY}
        order = order_of(wire.EditValues, {**about, "key": key})
        await self._feed(commands.values_edited(order, self._now))

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
        """Move the deadline of an open interrupt, by its id or name, or change what happens then.

        None as `deadline` or `timeout` removes it. Raises the Refusal that it gets.
        """
        order = deadline_order(
            self._id_of(interrupt_id),
            deadline=deadline,
            timeout=timeout,
            on_timeout=on_timeout,
            principal=principal or _ANYBODY,
            key=key,
        )
        await self._feed(commands.deadline_edited(order, self._now))

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return what was said to an agent, and by it, oldest first.

        Without an address it is the only agent that there is. Raises the Refusal that the API would
        answer with.
        """
        heads = items.transcripts(self._state)
        agent = choose_address(self._state.run_id, heads, address)
        return transcript_items(await transcript.read(self._blobs, heads[agent]))

    def _id_of(self, interrupt: str) -> str:
        opened = self._state.ledger.open.values()
        named = [entry.id for entry in opened if entry.name == interrupt]
        if len(named) > 1:
            raise Refusal(
                Code.AMBIGUOUS_INTERRUPT,
                f"{len(named)} open interrupts are named {interrupt!r}; name one by its id: "
                f"{', '.join(named)}.",
                interrupts=named,
            )
        return named[0] if named else interrupt


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
    """Run a graph until it has ended, or waits for an answer that nobody gives.

    `answers` are by name or id of the interrupt: a value, or a function that is asked with the
    interrupt (and may be async). A question that has none is left to its deadline, if it has one:
    time is moved on to it, unless `skip_time` is False. What is not about answers is as for a start.
    Raises the Refusal of an answer that the run does not accept.
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
