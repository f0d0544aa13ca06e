"""Running a graph in memory: the same core, the same code of nodes, no server, and a clock of its own.

A unit test of a graph takes milliseconds, three days are one line, and what it shows is what a run on
Temporal would do, because the rules are the same module. What it cannot show are crashes, races and
everything else that has to do with processes.

    ended = await abeyance.testing.run(graph, {"amount": 250}, answers={"approve": {"approved": True}})
    assert ended.values["log"] == ["assessed", "paid"]
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, assert_never

from abeyance import schema, transcript, wire
from abeyance.blobs import MemoryBlobs
from abeyance.core import effects, events, machine, recall
from abeyance.core.address import Address
from abeyance.core.canonical import Json
from abeyance.core.ledger import Interrupt
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.state import Limits, RunState, Status
from abeyance.dialogue import TranscriptItem, shown
from abeyance.dialoguepage import chosen
from abeyance.duration import Duration, seconds
from abeyance.errors import Blocked, FailureCode
from abeyance.graph import Graph
from abeyance.notebook import Notebook
from abeyance.outcome import visit_ended
from abeyance.visit import context_of, describe, graph_for, run_visit

_BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_STEPS: Final = 100_000
_LONGEST_BACKOFF: Final = 60.0
_ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One thing that a run told: the `type` is one of the event feed's."""

    time: datetime
    type: str
    address: str | None
    actor: str | None
    data: Mapping[str, Json]


class InMemoryRun:
    """A run that a test drives. Nothing happens in it between the calls of its methods."""

    def __init__(
        self,
        graph: Graph,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        run_id: str = "test",
        limits: Limits | None = None,
        now: datetime = _BEGINNING,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
    ) -> None:
        self.events: list[Happened] = []
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
            limits=limits or Limits(),
            values=graph.states.initial(input or {}),
            now=now,
        )

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
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The open interrupts, in the order in which they were opened."""
        return tuple(self._state.ledger.open.values())

    @property
    def state(self) -> RunState:
        """All that is true of the run."""
        return self._state

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """What the agent at an address was told, said and did, oldest first.

        Without one it is the only agent that there is. Raises the Refusal that the API would answer with.
        """
        heads = recall.transcripts(self._state)
        agent = chosen(self._state.run_id, heads, address)
        return shown(await transcript.read(self._blobs, heads[agent]))

    async def start(self) -> None:
        """Begin, and go on until nothing can happen without an answer or the passing of time."""
        await self._feed(events.Started(now=self._now))

    async def respond(
        self, interrupt: str, answer: Json, *, principal: Principal = _ANYBODY
    ) -> None:
        """Answer an open interrupt by its name or id, and go on. Raises the Refusal that it gets."""
        id_ = self._id_of(interrupt)
        asked = self._state.ledger.open.get(id_)
        faults = {}
        if asked is not None and asked.response_schema is not None:
            faults = {id_: schema.faults_of(asked.response_schema, answer)}
        await self._feed(
            events.Responded(
                now=self._now, principal=principal, answers={id_: answer}, schema_faults=faults
            )
        )

    async def advance(self, by: Duration) -> None:
        """Let time pass, and with it every deadline on the way."""
        until = self._now + timedelta(seconds=seconds(by))
        while (moment := self._state.next_deadline()) is not None and moment <= until:
            self._now = max(self._now, moment)
            await self._feed(events.Ticked(now=self._now))
        self._now = until
        await self._feed(events.Ticked(now=self._now))

    async def pause(self, reason: str | None = None) -> None:
        """Start no new work."""
        await self._feed(events.Paused(now=self._now, actor="tester", reason=reason))

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._feed(events.Resumed(now=self._now, actor="tester"))

    async def send(self, text: str = "", **about: Any) -> None:
        """Put a message into the mailbox, and go on. `about` are the other fields of a message: `action`,
        `params`, `target`, `priority`, `ttl` (in seconds), `sender`, ... Raises the Refusal that it gets.
        """
        await self._feed(events.MessageSent(now=self._now, message=self._message(text, about)))

    async def signal(self, text: str = "", **about: Any) -> None:
        """The same as `send`, but by a signal, whose sender hears of no refusal: it is recorded."""
        message = self._message(text, about)
        await self._feed(events.MessageSent(now=self._now, message=message, signalled=True))

    def _message(self, text: str, about: Mapping[str, Any]) -> events.Message:
        self._sent += 1
        given = {"message_id": f"m{self._sent}", "sender": "tester", "capabilities": (EVERYTHING,)}
        return events.Message(text=text, **{**given, **about})

    async def cancel(self, reason: str | None = None) -> None:
        """End the run in good order."""
        await self._feed(events.CancelRequested(now=self._now, actor="tester", reason=reason))

    def take(self, visit: str, number: int) -> events.Message | None:
        """The n-th message that a running visit takes, counted from 0; None if there is none."""
        self._apply(events.MessagesTaken(now=self._now, visit=visit, upto=number + 1))
        taken = self._state.visits[visit].taken
        return taken[number] if len(taken) > number else None

    def _id_of(self, interrupt: str) -> str:
        named = [entry.id for entry in self.interrupts if entry.name == interrupt]
        return named[0] if len(named) == 1 else interrupt

    async def _feed(self, event: events.Event) -> None:
        self._apply(event)
        for _ in range(_MOST_STEPS):
            if not self._wanted:
                return
            await self._perform(self._wanted.popleft())
        message = (
            f"the run did {_MOST_STEPS} things without coming to rest: a loop without a way out"
        )
        raise RuntimeError(message)

    def _apply(self, event: events.Event) -> None:
        self._state, wanted = machine.advance(self._state, event)
        self._wanted.extend(wanted)

    async def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.RunNode():
                await self._visit(effect)
            case effects.DecideRoutes():
                order = self._order("routes", effect)
                await self._attempt(order, retries=0)
            case effects.Publish():
                self._tell(effect.type, effect.address, effect.actor, effect.data)
            case effects.Yield():
                self._apply(events.TaskBegan(now=self._now))
            case effects.StopNode() | effects.Finish():
                # Visits run one after another here, so none is under way when something else happens.
                pass
            case _:
                assert_never(effect)

    async def _visit(self, effect: effects.RunNode) -> None:
        self._tell(f"{_what(effect.visit)}.started", effect.visit)
        order = self._order(
            "visit",
            effect,
            own=dict(effect.own),
            journal=effect.journal,
            saved=effect.saved,
            interrupted=effect.interrupted,
            item=effect.item,
            results=effect.results,
            inbox=effect.inbox,
            guidance=effect.guidance,
            outcome=effect.outcome,
            local=effect.node.local,
            call=effect.call,
        )
        await self._attempt(order, retries=effect.node.retries)

    def _order(
        self,
        kind: Literal["visit", "routes"],
        effect: effects.RunNode | effects.DecideRoutes,
        **more: Any,
    ) -> wire.VisitOrder:
        graph, node = effect.graph, effect.node.id
        return wire.VisitOrder(
            kind=kind,
            run_id=self._state.run_id,
            graph=graph.name,
            root=self._graph.name,
            path=effect.path,
            node=node,
            address=effect.visit,
            values=dict(effect.values),
            answers=dict(effect.answers),
            rules=graph.rules_on(node) if graph.has_clips_on(node) else (),
            **more,
        )

    async def _attempt(self, order: wire.VisitOrder, *, retries: int) -> None:
        steps: dict[str, Json] = dict(order.journal or {})

        async def write(finished: Mapping[str, Json]) -> None:
            steps.update(finished)

        for attempt in range(1, retries + 2):
            book = Notebook(steps, None if order.local else write, lambda: self._now)
            context = context_of(
                order,
                notebook=book,
                mail=_MemoryMail(self, order.address),
                attempt=attempt,
                logger=logging.LoggerAdapter(logging.getLogger("abeyance.node")),
                is_cancelled=lambda: False,
                beat=lambda: None,
                blobs=self._blobs,
            )
            try:
                graph = graph_for(order, {self._graph.name: self._graph})
                outcome = await run_visit(graph, order, context)
            except Blocked:
                raise
            except Exception as error:  # noqa: BLE001 whatever an author's code raises is a failed attempt
                outcome = wire.Failed(
                    code=FailureCode.NODE_FAILED, message=describe(error), journal=steps or None
                )
                if attempt <= retries:
                    self._now += timedelta(seconds=min(2.0 ** (attempt - 1), _LONGEST_BACKOFF))
                    continue
            break
        self._visit_ended(order, outcome)

    def _visit_ended(self, order: wire.VisitOrder, outcome: wire.VisitOutcome) -> None:
        address = order.address
        if isinstance(outcome, wire.Finished | wire.Interrupted):
            self._tell_emitted(address, outcome.emitted)
        if isinstance(outcome, wire.Finished) and order.kind == "visit":
            self._tell(f"{_what(address)}.finished", address)
            if outcome.turn is not None:
                self._tell("model.turn", address, data=outcome.turn)
        if isinstance(outcome, wire.Failed):
            self._tell(
                f"{_what(address)}.failed",
                address,
                code=outcome.code,
                message=outcome.message,
            )
        self._apply(visit_ended(address, outcome, self._now))

    def _tell_emitted(self, address: str, emitted: tuple[wire.Emitted, ...]) -> None:
        for each in emitted:
            self._tell(f"user.{each.name}", address, data={"data": each.data})

    def _tell(
        self,
        type_: str,
        address: str | None,
        actor: str | None = None,
        data: Mapping[str, Json] | None = None,
        **more: Json,
    ) -> None:
        told = {**(data or {}), **more}
        self.events.append(
            Happened(time=self._now, type=type_, address=address, actor=actor, data=told)
        )


def _what(address: str) -> str:
    return "tool" if Address.parse(address).is_call else "node"


class _MemoryMail:
    """The mail of a visit in memory, where nothing else happens while it runs."""

    def __init__(self, trial: InMemoryRun, visit: str) -> None:
        self._trial = trial
        self._visit = visit

    async def take(self, number: int) -> events.Message | None:
        return self._trial.take(self._visit, number)

    async def wait_if_paused(self, timeout: float | None) -> bool:  # noqa: ARG002 nobody waits
        return True


async def run(
    graph: Graph,
    input: Mapping[str, Any] | None = None,  # noqa: A002
    *,
    answers: Mapping[str, Json | Callable[[Interrupt], Json]] | None = None,
    principal: Principal = _ANYBODY,
    limits: Limits | None = None,
    skip_time: bool = True,
) -> InMemoryRun:
    """Run a graph until it has ended, or waits for an answer that nobody gives.

    `answers` are by name or id of the interrupt: a value, or a function that is asked with the
    interrupt (and may be async). A question that has none is left to its deadline, if it has one:
    time is moved on to it, unless `skip_time` is False. Raises the Refusal of an answer that the run
    does not accept.
    """
    trial = InMemoryRun(graph, input, limits=limits)
    await trial.start()
    for _ in range(_MOST_STEPS):
        if trial.status in {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.HALTED}:
            break
        if not await _answer_one(trial, answers or {}, principal):
            moment = trial.state.next_deadline()
            if moment is None or not skip_time:
                break
            await trial.advance(moment - trial.now)
    return trial


async def _answer_one(
    trial: InMemoryRun,
    answers: Mapping[str, Json | Callable[[Interrupt], Json]],
    principal: Principal,
) -> bool:
    for entry in trial.interrupts:
        for key in (entry.id, entry.name):
            if key in answers:
                answer = answers[key]
                if callable(answer):
                    answer = answer(entry)
                    if inspect.isawaitable(answer):
                        answer = await answer
                await trial.respond(entry.id, answer, principal=principal)
                return True
    return False
