"""Run a graph in memory: the same core and the same node code, without a server and with its own clock.

A unit test of a graph takes milliseconds, and three days pass in one line. The core that decides is the
same module as on Temporal, so the run behaves the same; only crashes, races and other effects of
processes cannot be tested here.

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
from abeyance.authoring.context import Context, VisitRuntime
from abeyance.authoring.graph import Graph
from abeyance.authoring.journal import Journal
from abeyance.core import effects, events, idempotency, items, ledger, machine, messages
from abeyance.core.effects import VisitInput
from abeyance.core.events import CancelRequested, Control, Message, MessageSent, Paused, Resumed
from abeyance.core.events import Event as CoreEvent
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
from abeyance.views import (
    TERMINAL_EVENTS,
    ClosingRecord,
    Event,
    InterruptView,
    MessageReceipt,
    MessageView,
    RunView,
)

__all__ = ["InMemoryRun", "run"]

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
MAX_STEPS: Final = 100_000
_LONGEST_BACKOFF: Final = 60.0


_ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


class InMemoryRun:
    """A run that a test drives (`abeyance.RunHandle`). It changes only while one of its methods runs.

    `principal` defaults to `tester`, who has every capability.
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
        self._events: list[Event] = []
        self._moved = asyncio.Event()
        self._graph = graph
        self._now = now
        self._effects: deque[effects.Effect] = deque()
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

    @property
    def now(self) -> datetime:
        """The run's own clock."""
        return self._now

    @property
    def status(self) -> str:
        """The status that callers see."""
        return str(self._state.status)

    @property
    def reason(self) -> str | None:
        """The reason for which the run ends or ended; None while it runs."""
        ending = self._state.ending
        return None if ending is None else ending.reason

    @property
    def values(self) -> Mapping[str, Json]:
        """The values of the run's graph, as JSON."""
        return self._state.root.values

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._state.run_id

    @property
    def state(self) -> RunState:
        """The core's state of the run."""
        return self._state

    async def start(self) -> None:
        """Start the run, and continue until it needs an answer or the passing of time."""
        self._publish_start()
        await self._feed(events.Started(now=self._now))

    async def advance(self, by: Duration) -> None:
        """Move the clock, firing each deadline on the way."""
        until = self._now + timedelta(seconds=seconds(by))
        while await self._reach_deadline(until):
            pass

    async def _reach_deadline(self, until: datetime) -> bool:
        """Move the clock to the next deadline or `until`; return True if a deadline came first."""
        moment = self._state.next_deadline()
        is_first = moment is not None and moment <= until
        self._now = max(self._now, moment) if moment is not None and is_first else until
        await self._feed(events.Ticked(now=self._now))
        return is_first

    async def view(self) -> RunView:
        """Return the run as it is now."""
        return projections.run_view(self._state, self._start)

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or `all`: open ones first, in the order of opening."""
        entries = [
            *projections.open_interrupts(self._state),
            *projections.settled_interrupts(self._state),
        ]
        return [entry for entry in entries if status in ("all", entry.status)]

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return an interrupt by its id or, while it is open, its name; None if there is none."""
        try:
            return projections.interrupt(self._state, self._id_of(interrupt_id))
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
            raise Refusal(
                Code.INVALID_BODY, f"{after[:100]!r} is not the id of an event of this run."
            )
        return ids.index(after) + 1

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view once the status is in `until`, the run has ended, or `timeout` has passed.

        `timeout` is in seconds of the run's own clock, which moves at once.
        """
        end = self._now + timedelta(seconds=timeout)
        is_left = True
        while is_left and not (self.status in until or self._state.finished):
            # Other tasks act first.
            await asyncio.sleep(0)
            is_left = await self._reach_deadline(end)
        return await self.view()

    async def result(self) -> ClosingRecord:
        """Return the closing record. Raise the Refusal `not_finished` while the run is not over."""
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
        event = commands.responded(order, self._state.ledger, self._now, keys=self._state.keys)
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
        """Start no new work for at most `timeout`; then do `on_timeout`: `resume`, `halt`, `goto:<node>`.

        Sent as a signal: a refusal is published as the event `signal.refused`.
        """
        actor = principal or _ANYBODY
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        by = {"actor": actor.subject, "capabilities": tuple(actor.capabilities), "key": key}
        await self._signal(
            "pause", commands.control(order_of(wire.Pause, {**about, **by}), self._now)
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
        await self._signal("resume", commands.control(order_of(wire.Resume, about), self._now))

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
        await self._signal("cancel", commands.control(order, self._now))

    async def _signal(self, name: Control, event: Paused | Resumed | CancelRequested) -> None:
        if idempotency.earlier(self._state.keys, event) is not None:
            return
        self._refuse_ended()
        try:
            await self._feed(event)
        except Refusal as refusal:
            refused = events.SignalRefused(
                now=self._now, signal=name, code=str(refusal.code), reason=refusal.message
            )
            await self._feed(refused)

    def _refuse_ended(self) -> None:
        if self._state.finished:
            raise Refusal(Code.NOT_RUNNING, f"The run {self.run_id!r} has ended ({self.status}).")

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Send a message as a signal, and return its id.

        A rejection is published as the event `message.rejected`.
        """
        sent = self._message(text, fields, signalled=True)
        messages.refuse_empty(sent.message)
        self._refuse_ended()
        await self._feed(sent)
        return sent.message.message_id

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Send a message, and return its receipt. Raise the Refusal if the run refuses it."""
        sent = self._message(text, fields)
        is_duplicate = self._state.mailbox.knows(sent.message)
        await self._feed(sent)
        return MessageReceipt(
            message_id=sent.message.message_id,
            duplicate=is_duplicate,
            queue_depth=len(self._state.mailbox.queue),
        )

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and send a message that is read when it resumes.

        If the run refuses the message, it is not paused.
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
        """Return the unread messages, next first."""
        return [MessageView.of(message) for message in self._state.mailbox.queue]

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, publish that, and return their number."""
        actor = (principal or _ANYBODY).subject
        order = order_of(wire.ClearMessages, {"actor": actor, "key": key})
        event = commands.messages_cleared(order, self._now)
        if (earlier := idempotency.earlier(self._state.keys, event)) is not None:
            return int(earlier.receipt)
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
        """Patch the values of a run that is paused or waits for input.

        Raise the Refusal if they are no longer at `version` (None: the current one) or do not fit.
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
        await self._feed(commands.deadline_edited(order, self._now))

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return an agent's transcript, oldest first.

        `address` may be omitted if there is one agent. Raise the Refusal that the API would return.
        """
        heads = items.transcripts(self._state)
        agent = choose_address(self._state.run_id, heads, address)
        return transcript_items(await transcript.read(self._blobs, heads[agent]))

    def _id_of(self, id_or_name: str) -> str:
        opened = self._state.ledger.open.values()
        named = [entry.id for entry in opened if entry.name == id_or_name]
        if len(named) > 1:
            raise Refusal(
                Code.AMBIGUOUS_INTERRUPT,
                f"{len(named)} open interrupts are named {id_or_name!r}; name one by its id: "
                f"{', '.join(named)}.",
                interrupts=named,
            )
        return named[0] if named else id_or_name

    def take_message(self, visit: str, number: int) -> Message | None:
        """Return the n-th message that a running visit takes, counted from 0; None if there is none."""
        self._apply(events.MessagesTaken(now=self._now, visit=visit, upto=number + 1))
        taken = self._state.visits[visit].messages_taken
        return taken[number] if len(taken) > number else None

    async def _feed(self, event: CoreEvent) -> None:
        self._apply(event)
        for _ in range(MAX_STEPS):
            if self._effects:
                await self._perform(self._effects.popleft())
            elif (moment := self._state.next_deadline()) is not None and moment <= self._now:
                # The deadline passed while code ran, or before the interrupt was opened.
                self._apply(events.Ticked(now=self._now))
            else:
                return
        message = (
            f"the run took {MAX_STEPS} steps without coming to rest: is there an endless loop?"
        )
        raise RuntimeError(message)

    def _apply(self, event: CoreEvent) -> None:
        self._state, effects_ = machine.advance(self._state, event)
        self._effects.extend(effects_)

    async def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.RunNode(input=visit_input):
                # A copy: code that changes its values must not change the run.
                await self._visit(deepcopy(visit_input))
            case effects.Publish():
                self._publish(effect.type, effect.address, effect.actor, effect.data)
            case effects.Yield():
                self._apply(events.TaskBegan(now=self._now))
            case effects.Finish():
                self._publish_end()
            case effects.StopNode():
                # Visits run one after another here, so no other visit is running.
                pass
            case _:
                assert_never(effect)

    async def _visit(self, visit_input: VisitInput) -> None:
        if visit_input.kind == "visit":
            self._publish(
                event_translation.visit_started(visit_input.address).type, visit_input.address
            )
        steps: dict[str, Json] = dict(visit_input.journal or {})

        async def write(finished: Mapping[str, Json]) -> None:
            steps.update(finished)

        for attempt in range(1, visit_input.retries + 2):
            journal = Journal(steps, None if visit_input.local else write, lambda: self._now)
            context = Context(
                input=visit_input,
                attempt=attempt,
                logger=logging.LoggerAdapter(logging.getLogger("abeyance.node")),
                is_cancelled=lambda: False,
                runtime=VisitRuntime(
                    journal=journal,
                    channel=_MemoryChannel(self, visit_input.address),
                    send_heartbeat=lambda: None,
                    blobs=self._blobs,
                ),
            )
            try:
                graph = graph_for(visit_input, {self._graph.name: self._graph})
                outcome = await run_visit(graph, context)
            except Blocked:
                raise
            except Exception as error:  # noqa: BLE001 any exception of an author's code is a failed attempt
                outcome = Failed(
                    code=FailureCode.NODE_FAILED,
                    message=described(error),
                    journal=steps or None,
                    patch=journal.partial_patch,
                )
                if attempt <= visit_input.retries:
                    self._now += timedelta(seconds=min(2.0 ** (attempt - 1), _LONGEST_BACKOFF))
                    continue
            break
        if visit_input.kind == "visit":
            for event in event_translation.visit_reported(
                visit_input.address, {"outcome": asdict(outcome)}
            ):
                self._publish(event.type, event.address, data=event.data)
        self._apply(events.VisitEnded(now=self._now, visit=visit_input.address, outcome=outcome))

    def _publish_start(self) -> None:
        data = {
            "graph": self._state.spec.name,
            "graph_version": self._graph.build().version,
            "conversation_id": None,
            "session_type": "agent",
        }
        self._publish("run.started", None, "tester", data)

    def _publish_end(self) -> None:
        view = run_view(self._state, self._start)
        data: dict[str, Json] = {"reason": view.reason}
        if view.error is not None:
            data |= {"code": view.error.code, "message": view.error.message}
        address = None if view.error is None else view.error.address
        self._publish(f"run.{view.status}", address, view.cancelled_by, data)

    def _publish(
        self,
        type_: str,
        address: str | None,
        actor: str | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> None:
        self._events.append(
            Event(
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


class _MemoryChannel:
    """A visit's channel to a run in memory, in which nothing else happens meanwhile."""

    def __init__(self, trial: InMemoryRun, visit: str) -> None:
        self._trial = trial
        self._visit = visit

    async def take(self, number: int) -> Message | None:
        return self._trial.take_message(self._visit, number)

    async def wait_if_paused(self, timeout: float | None) -> bool:  # noqa: ARG002 the run is never paused meanwhile
        return True


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
