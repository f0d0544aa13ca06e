"""`Context`, the second argument of a node's function, and what a node may return besides a patch."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from abeyance.authoring.interrupts import (
    GuardedCoroutine,
    Interrupt,
    Misread,
    QuestionOptions,
    Suspended,
    lowered,
    typed_answer,
)
from abeyance.authoring.journal import Journal
from abeyance.core.address import below
from abeyance.core.approvals import Grant, Wanted
from abeyance.core.bounds import Attempts
from abeyance.core.effects import VisitInput
from abeyance.core.events import Message
from abeyance.core.json import Json, rfc3339
from abeyance.core.ledger import content_digest, interrupt_id
from abeyance.core.outcome import Asked, Call
from abeyance.duration import Duration, seconds
from abeyance.errors import Fatal
from abeyance.storage import run_files
from abeyance.storage.blobs import Blobs
from abeyance.util import inbox_url

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goto:
    """Return this from a node to go to `node` instead of following its edges; `patch` is merged first.

    Declare the targets with `to=[...]` on the node that returns it. `node` may also be a list of `Send`.
    """

    node: str | Sequence[Send]
    patch: Mapping[str, Any] | None = None

    def __init__(self, node: str | Sequence[Send], patch: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "patch", patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Return a list of these from a node to start one visit of `node` for each `item` (`ctx.item`).

    Declare the targets with `to=[...]` on the node that returns them.
    """

    node: str
    item: Any = None

    def __init__(self, node: str, item: Any = None) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "item", item)


class RunChannel(Protocol):
    """A running visit's connection to its run."""

    async def take(self, number: int) -> Message | None:
        """Return the visit's message `number`, counted from 0; None if there is none yet."""

    async def wait_if_paused(self, timeout: float | None) -> bool:
        """Wait until the run is not paused. Return True, or False if the run is cancelled.

        `timeout` is in seconds; None takes the service's `default_timeout`. Raises StillPaused.
        """


async def _nothing() -> None:
    pass


def _must_be_awaited(
    method: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Context, P], Coroutine[Any, Any, T]]:
    """Fail the visit if its code calls this method without `await`."""
    name = f"ctx.{method.__name__}"

    @wraps(method)
    def guarded(self: Context, /, *args: P.args, **kwargs: P.kwargs) -> GuardedCoroutine[T]:
        first = next(iter((*args, *kwargs.values())), None)
        shown = repr(first) if isinstance(first, str) else ""
        fault = (
            f"{name}({shown}) is not awaited, so it did nothing: write `await {name}(...)`, in an "
            "`async def`"
        )
        return self.runtime.journal.guarded(fault, partial(method, self, *args, **kwargs))

    return guarded


class FindGrant(Protocol):
    """Finds the grant that lets a call run unasked."""

    async def __call__(self, call: Wanted, *, takes: bool) -> Grant | None:
        """Return the grant that covers a call, None without one. `takes` counts a use of it, once for
        each call.
        """


async def nothing_is_granted(call: Wanted, *, takes: bool) -> Grant | None:  # noqa: ARG001
    """Find no grant: the default, where no approvals are remembered."""
    return None


def _unheard(turn: int, said: Callable[[], str]) -> None:
    del turn, said


@dataclass(frozen=True, kw_only=True)
class VisitRuntime:
    """The services behind a `Context`; authors do not use them.

    `attempts` returns the attempts that count if the present one fails now. `blobs` stores large data
    outside the history. `begin` is called right before the author's code: from then on a blocked visit is
    not blocked any more. `links_base` is the address at which people reach the API. `speak(turn, said)`
    shows watchers the text of a model's turn: `said()` is the whole text so far, until the visit ends or
    speaks again. `find_grant` finds the grant that lets a call of a tool run unasked.
    """

    journal: Journal
    channel: RunChannel
    send_heartbeat: Callable[[], None]
    blobs: Blobs | None = None
    attempts: Callable[[], Attempts] = lambda: Attempts(count=1)
    begin: Callable[[], Awaitable[None]] = _nothing
    speak: Callable[[int, Callable[[], str]], None] = _unheard
    links_base: str = "http://127.0.0.1:8000"
    find_grant: FindGrant = nothing_is_granted


@dataclass(frozen=True, kw_only=True)
class Context:
    """The current visit of a node: its place in the run, its answers, and what its code can call.

    `attempt` counts from 1 and grows with each retry. `input` and `runtime` are internal.
    """

    input: VisitInput
    attempt: int
    logger: logging.LoggerAdapter[logging.Logger]
    is_cancelled: Callable[[], bool]
    runtime: VisitRuntime

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.input.run_id

    @property
    def graph(self) -> str:
        """The name of the graph that contains the node."""
        return self.input.graph

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.input.node

    @property
    def address(self) -> str:
        """The address of the visit in events, the inbox and logs."""
        return self.input.address

    @property
    def values(self) -> Mapping[str, Any]:
        """The values at the start of the visit, as JSON."""
        return self.input.values

    @property
    def answers(self) -> Mapping[str, Any]:
        """All answers in this graph so far, by interrupt name.

        This visit's own answers take precedence. A tool call sees only the answers to its own code.
        """
        # Answers to a tool call's hooks or approval have a "/" in their key: the tool's code did not ask.
        is_call = self.input.call is not None
        own = [(key, value) for key, value in self.targets.items() if not (is_call and "/" in key)]
        return {**self.input.answers, **{key.rpartition("/")[2]: value for key, value in own}}

    def answered_by(self, name: str) -> dict[str, str | None] | None:
        """Return who last answered the question `name`, as `{"by": ..., "on_behalf_of": ...}`.

        The question of the same fan-out item counts, else that of this graph, else of the graphs around
        it. None if nobody has answered it. If the deadline gave the answer, `by` is `timeout`.
        """
        found = self.input.answerers.get(name)
        return None if found is None else {"by": found.by, "on_behalf_of": found.on_behalf_of}

    def votes(self, name: str) -> list[dict[str, Any]]:
        """Return the votes on the question `name`, which is found as in `answered_by`, in order: each as
        `{"by", "on_behalf_of", "at", "answer", "note"}`. Empty if the question has no votes.
        """
        found = self.input.answerers.get(name)
        return [
            {
                "by": vote.by,
                "on_behalf_of": vote.on_behalf_of,
                "at": rfc3339(vote.at),
                "answer": vote.answer,
                "note": vote.note,
            }
            for vote in (() if found is None else found.votes)
        ]

    @property
    def targets(self) -> Mapping[str, Any]:
        """The answers to this visit's own interrupts, by name (`process/name` if a process asked)."""
        return self.input.own_answers

    @property
    def resumed(self) -> bool:
        """True if this visit asked before and was re-entered."""
        return self.input.interrupted

    @property
    def saved_state(self) -> Any:
        """The `state` that the visit passed with its last interrupt."""
        return self.input.user_state

    @property
    def item(self) -> Any:
        """The fan-out item that this visit processes."""
        return self.input.item

    @property
    def results(self) -> Any:
        """The items of a fan-out in order, each `{item, status}`, after the join behind it."""
        return self.input.results

    @property
    def inbox(self) -> Sequence[Message]:
        """The messages that were waiting when the visit started.

        Filled only if the function has a parameter `inbox` or uses `ctx.inbox` in its own body.
        """
        return list(self.input.inbox)

    @property
    def outcome(self) -> str | None:
        """How the run ended; None outside a `finally` node."""
        return self.input.outcome

    @property
    def call(self) -> Call | None:
        """The tool call that this visit executes, or None."""
        return self.input.call

    @property
    def cancelled(self) -> bool:
        """True once the run has asked this visit to stop.

        Code in a thread must check this and raise any exception to stop; if it returns, the visit counts
        as finished. A coroutine is also cancelled at its next `await`.
        """
        return self.is_cancelled()

    def heartbeat(self) -> None:
        """Send a heartbeat now.

        Visits send one about every second on their own. Call this from a coroutine that has blocked the
        event loop for long.
        """
        self.runtime.send_heartbeat()

    @property
    def idempotency_key(self) -> str:
        """32 hex digits, the same in every attempt and re-entry of this visit, even after a migration has
        renamed its node, and different for every other visit. Pass it to services that deduplicate
        requests.
        """
        origin = self.input.origin or self.input.execution
        identity = f"{self.run_id}|{origin}|{self.input.first_address or self.address}"
        return hashlib.sha256(identity.encode()).hexdigest()[:32]

    @overload
    async def step(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...

    @overload
    async def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @_must_be_awaited
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call `function` once in this visit, record its result, and return the result.

        A retry, or a re-entry after an answer, returns the recorded result without calling the function.
        The result must be JSON and is parsed as the function's return type. `name` must be unique in
        the visit. Raise what the function raises; raise Fatal if the result is not JSON, the name is
        used twice, the node is local, or the call is not awaited.
        """
        return await self.runtime.journal.step(name, function, *args, **kwargs)

    @_must_be_awaited
    async def file(self, name: str, data: bytes, type: str | None = None) -> dict[str, str]:  # noqa: A002
        """Store a picture or a document of this run, and return the reference to it, which is JSON.

        If the payload or the reason of a question has the reference, the inbox shows pictures (PNG,
        JPEG, GIF, WebP), and offers other files for download. `name` is the name of the file; `type` is
        its media type, which is guessed from the name if it is None. At most 10 MB. Storing the same
        file again has no effect. The file is erased with the run. Raise Fatal for an invalid name or
        type, or too many bytes, and Unavailable.
        """
        if self.runtime.blobs is None:
            raise Fatal("files cannot be stored here: this visit has no storage")
        return await run_files.store(self.runtime.blobs, self.run_id, name, data, type)

    @overload
    def interrupt(
        self,
        name: str,
        *,
        response: type[T],
        state: Json = None,
        process: str | None = None,
        **options: Unpack[QuestionOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def interrupt(
        self,
        name: str,
        *,
        response: Any = None,
        state: Json = None,
        process: str | None = None,
        **options: Unpack[QuestionOptions],
    ) -> Coroutine[Any, Any, Any]: ...

    def interrupt(
        self,
        name: str,
        *,
        response: Any = None,
        state: Json = None,
        process: str | None = None,
        **options: Unpack[QuestionOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Ask a person, and return the answer as the type `response`. Must be awaited.

        The visit ends here. Once the interrupt is answered, the function runs again from its beginning,
        and this call and the steps before it return at once. For the parameters see `Interrupt`.
        """
        question = Interrupt(name, response=response, process=process, **options)
        return self._asking(f"the interrupt {name!r}", partial(self._answer, question, state))

    def interrupts(
        self, interrupts: Sequence[Interrupt], *, state: Json = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask several questions at once. Return the answers by name (`process/name` if a process asks)
        once all are answered. Must be awaited.
        """
        return self._asking("the list of interrupts", partial(self._answers, interrupts, state))

    def _asking(
        self, label: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> GuardedCoroutine[T]:
        fault = (
            f"{label} is not awaited, so nobody was asked: write `await ctx.interrupt(...)`, or in a "
            "plain function `raise Interrupt(...)`"
        )
        return self.runtime.journal.guarded(fault, begin)

    async def _answer(self, interrupt: Interrupt, state: Json) -> Any:
        return (await self._answers([interrupt], state))[interrupt.key]

    async def _answers(self, interrupts: Sequence[Interrupt], state: Json) -> dict[str, Any]:
        unanswered: list[Asked] = []
        answers: dict[str, Any] = {}
        for interrupt, question in [(each, lowered(each)) for each in interrupts]:
            self.runtime.journal.ask(question.key)
            if not self._is_answered(question):
                unanswered.append(question)
                continue
            try:
                answers[question.key] = typed_answer(interrupt, self.targets[question.key])
            except Misread as misread:
                unanswered.append(replace(question, misfit=str(misread)))
        if unanswered:
            self.runtime.journal.unanswered += [question.key for question in unanswered]
            own = next((asked.state for asked in interrupts if asked.state is not None), None)
            raise Suspended(unanswered, state if state is not None else own)
        return answers

    def _is_answered(self, asked: Asked) -> bool:
        # People approved the values that were shown: with other values it is another question.
        shown = self.input.shown_hashes.get(asked.key)
        return asked.key in self.targets and shown in {None, content_digest(asked.question)}

    @_must_be_awaited
    async def gather(self, *processes: Awaitable[Any]) -> list[Any]:
        """Run awaitables concurrently, and return their results in order.

        If some of them ask, the others still run to their end. The visit then waits for the answers, and
        each answer re-enters it: everything but recorded steps runs again.
        """
        ended = await asyncio.gather(*map(_result_or_error, processes))
        for _, error in ended:
            if error is not None and not isinstance(error, Suspended):
                raise error
        waiting = [error for _, error in ended if isinstance(error, Suspended)]
        if waiting:
            asked = [question for error in waiting for question in error.asked]
            state = next((error.state for error in waiting if error.state is not None), None)
            raise Suspended(asked, state, composite=True)
        return [value for value, _ in ended]

    @_must_be_awaited
    async def check_interrupt(self) -> Message | None:
        """Return the next message for this visit, or None.

        Each message is returned once. A retry or re-entry reads the same messages again, in order.
        """
        journal = self.runtime.journal
        journal.require_durable("read messages")
        message = await self.runtime.channel.take(journal.messages_read)
        if message is not None:
            journal.messages_read += 1
        return message

    @_must_be_awaited
    async def wait_if_paused(self, timeout: Duration | None = None) -> bool:
        """Wait while the run is paused. Return True once it is running, False if it is being cancelled.

        `timeout` None is the service's `default_timeout`. Raise StillPaused, a TimeoutError, after that
        time.
        """
        self.runtime.journal.require_durable("wait while the run is paused")
        return await self.runtime.channel.wait_if_paused(
            None if timeout is None else seconds(timeout)
        )

    def link(self, name: str, *, process: str | None = None) -> str:
        """Return the URL in the inbox of the question that this visit asks under `name`.

        The URL is the same before the question is asked, while it is open and after its answer. Its
        host is the `links.base` of the notifications file, else `ABEYANCE_PUBLIC_URL` or
        `ABEYANCE_URL`.
        """
        visit, key = self.input, name if process is None else f"{process}/{name}"
        address = visit.address if process is None else below(visit.address, "process", process)
        ordinal = visit.ordinals.get(key, 1)
        id_ = interrupt_id(visit.run_id, address, name, ordinal, salt=visit.salt)
        return inbox_url(self.runtime.links_base, id_)

    def emit(self, event: str, data: Json = None) -> None:
        """Publish the event `user.<event>` when the visit ends or asks. The prefix may be left out.

        Code that asks runs again after the answer, and emits again: inside a `step`, it emits only once.
        """
        self.runtime.journal.emit(event, data)


async def _result_or_error(process: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await process, None
    except (Exception, Suspended) as error:  # noqa: BLE001 the caller raises it once all have ended
        return None, error
