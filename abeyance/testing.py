"""Running a graph in memory: the same core, the same code of nodes, no server, and a clock of its own.

A unit test of a graph takes milliseconds, three days are one line, and what it shows is what a run on
Temporal would do, because the rules are the same module. What it cannot show are crashes, races and
everything else that has to do with processes.

    ended = await abeyance.testing.run(graph, {"amount": 250}, answers={"approve": {"approved": True}})
    assert ended.values["log"] == ["assessed", "paid"]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel

from abeyance import arrivals, wire
from abeyance.agents import transcript
from abeyance.agents.transcriptitem import TranscriptItem, shown
from abeyance.core import events, ledger, recall
from abeyance.core.canonical import Json
from abeyance.core.ledger import Interrupt
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.state import Limits, RunState, Status
from abeyance.duration import Duration, seconds
from abeyance.errors import Code, Refusal
from abeyance.graphs.graph import Graph
from abeyance.histories.transcripts import chosen
from abeyance.rehearsal import BEGINNING, MOST_STEPS, Happened, Rehearsal
from abeyance.values.answers import respond_order
from abeyance.values.statemodel import ValuesError

__all__ = ["Happened", "InMemoryRun", "run"]

_ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


class InMemoryRun(Rehearsal):
    """A run that a test drives. Nothing happens in it between the calls of its methods."""

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
        self._tell_beginning()
        await self._feed(events.Started(now=self._now))

    async def respond(
        self,
        interrupt: str,
        answer: Any,
        *,
        principal: Principal = _ANYBODY,
        digest: str | None = None,
    ) -> None:
        """Answer an open interrupt by its name or id, and go on. Raises the Refusal that it gets.

        `digest` is that of what was shown, for an answer to nothing else.
        """
        id_ = self._id_of(interrupt)
        digests = {} if digest is None else {id_: digest}
        await self.respond_all({id_: answer}, principal=principal, digests=digests)

    async def respond_all(
        self,
        answers: Mapping[str, Any],
        *,
        principal: Principal = _ANYBODY,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """Answer several open interrupts, by their names or ids: all of them or, with the Refusal that
        is raised, none.
        """
        by_id = {self._id_of(each): answer for each, answer in answers.items()}
        shown_ = {self._id_of(each): digest for each, digest in (digests or {}).items()}
        order = respond_order(by_id, principal=principal, digests=shown_)
        event = arrivals.responded(order, self._state.ledger, self._now)
        ledger.refuse_strays(event)
        await self._feed(event)

    async def advance(self, by: Duration) -> None:
        """Let time pass, and with it every deadline on the way."""
        until = self._now + timedelta(seconds=seconds(by))
        while (moment := self._state.next_deadline()) is not None and moment <= until:
            self._now = max(self._now, moment)
            await self._feed(events.Ticked(now=self._now))
        self._now = until
        await self._feed(events.Ticked(now=self._now))

    async def pause(self, reason: str | None = None, **about: Any) -> None:
        """Start no new work. `about` are the other fields of a pause: `mode`, `timeout`, `on_timeout`,
        `actor`, `capabilities`.
        """
        given = {"actor": "tester", "capabilities": (EVERYTHING,)}
        order = wire.Pause(reason=reason, **{**given, **about})
        await self._feed(arrivals.paused(order, self._now))

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._feed(events.Resumed(now=self._now, actor="tester"))

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal = _ANYBODY,
    ) -> None:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`;
        without one, as they are now. Raises the Refusal that it gets.
        """
        try:
            checked = self._graph.states.patch(patch)
        except ValuesError as error:
            raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error
        version = self._state.root.version if version is None else version
        order = wire.EditValues(patch=checked, version=version, principal=principal)
        await self._feed(arrivals.values_edited(order, self._now))

    async def edit_deadline(
        self, interrupt: str, *, principal: Principal = _ANYBODY, **moved: Any
    ) -> None:
        """Move the deadline of an open interrupt, by its name or id: `timeout` from now or `deadline`, of
        which None removes it, and `on_timeout`. Raises the Refusal that it gets.
        """
        order = wire.EditDeadline(interrupt_id=self._id_of(interrupt), principal=principal, **moved)
        await self._feed(arrivals.deadline_edited(order, self._now))

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

    async def cancel(self, reason: str | None = None, **about: Any) -> None:
        """End the run in good order. `about` are the other fields of a cancel: `mode`, `grace`."""
        order = wire.Cancel(reason=reason, actor="tester", **about)
        await self._feed(arrivals.cancel_requested(order, self._now))

    def _id_of(self, interrupt: str) -> str:
        named = [entry.id for entry in self.interrupts if entry.name == interrupt]
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
    answers: Mapping[str, Any | Callable[[Interrupt], Any]] | None = None,
    principal: Principal = _ANYBODY,
    limits: Limits | None = None,
    skip_time: bool = True,
    run_id: str = "test",
    now: datetime = BEGINNING,
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
    for _ in range(MOST_STEPS):
        if trial.status in {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.HALTED}:
            break
        if not await _answer_one(trial, answers or {}, principal):
            moment = trial.state.next_deadline()
            if moment is None or not skip_time:
                break
            await trial.advance(max(moment - trial.now, timedelta()))
    return trial


async def _answer_one(
    trial: InMemoryRun,
    answers: Mapping[str, Any | Callable[[Interrupt], Any]],
    principal: Principal,
) -> bool:
    for entry in trial.interrupts:
        key = entry.id if entry.id in answers else entry.name
        if key not in answers:
            continue
        answer = answers[key]
        if callable(answer):
            answer = answer(entry)
            if inspect.isawaitable(answer):
                answer = await answer
        await trial.respond(entry.id, answer, principal=principal)
        return True
    return False
