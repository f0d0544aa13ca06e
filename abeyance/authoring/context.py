"""What the code of a node may know and do: the `Context` that it is handed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from abeyance.authoring.interrupts import Interrupt, OnTimeout, Suspended, lowered, typed_answer
from abeyance.authoring.journal import Journal
from abeyance.core.effects import VisitInput
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.ledger import content_digest
from abeyance.core.outcome import Asked, Call
from abeyance.duration import Duration, seconds
from abeyance.storage.blobs import Blobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Goto:
    """Returned by a node: go to this node, in place of the edges, after merging the patch.

    The node has to be declared with `to=[...]` naming the target. In place of one node there may be a
    list of `Send`.
    """

    node: str | Sequence[Send]
    patch: Mapping[str, Any] | None = None

    def __init__(self, node: str | Sequence[Send], patch: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "patch", patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Returned by a node in a list: one visit of `node` that reads `item` as `ctx.item`.

    The node that returns it has to be declared with `to=[...]` naming the target.
    """

    node: str
    item: Any = None

    def __init__(self, node: str, item: Any = None) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "item", item)


class RunChannel(Protocol):
    """How a visit reaches the run that it is a part of, while it runs."""

    async def take(self, number: int) -> Message | None:
        """The visit's n-th message, counted from 0; None if there is none yet."""

    async def wait_if_paused(self, timeout: float | None) -> bool:
        """Wait until the run is not paused. True when it goes on, False when it is cancelled.

        `timeout` is in seconds; None takes the service's `default_timeout`. Raises StillPaused.
        """


@dataclass(frozen=True, kw_only=True)
class Context:
    """Who and where a visit is, what people said so far, and whether it should stop.

    `input` is all that the visit is given. `attempt` counts from 1 and grows when the visit is tried
    again; `excused` is how many of the attempts before were nobody's fault, as where a worker was shut
    down. `blobs` is where large things are kept outside the history.
    """

    input: VisitInput
    attempt: int
    logger: logging.LoggerAdapter[logging.Logger]
    is_cancelled: Callable[[], bool]
    beat: Callable[[], None]
    notebook: Journal
    mail: RunChannel
    excused: int = 0
    blobs: Blobs | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.input.run_id

    @property
    def execution(self) -> str:
        """What tells this run from an earlier one that had the same id."""
        return self.input.execution

    @property
    def graph(self) -> str:
        """The name of the graph that the node is of."""
        return self.input.graph

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.input.node

    @property
    def address(self) -> str:
        """What names the visit in the history, the inbox and the log."""
        return self.input.address

    @property
    def values(self) -> Mapping[str, Any]:
        """The values that the visit was started with, as JSON."""
        return self.input.values

    @property
    def answers(self) -> Mapping[str, Any]:
        """What people answered in this graph so far, by the name of the interrupt.

        This visit's own answers go before others; a tool call has only those to what its own code asked.
        """
        # What hooks asked about a tool call, or its approval, its code has not asked under that name.
        is_call = self.input.call is not None
        own = [(key, value) for key, value in self.targets.items() if not (is_call and "/" in key)]
        return {**self.input.answers, **{key.rpartition("/")[2]: value for key, value in own}}

    @property
    def targets(self) -> Mapping[str, Any]:
        """The answers to the visit's own questions, by name (`process/name` where a process asked)."""
        return self.input.own

    @property
    def resumed(self) -> bool:
        """Whether this visit has asked people before and was re-entered."""
        return self.input.interrupted

    @property
    def saved_state(self) -> Any:
        """The last state that the visit gave when it asked."""
        return self.input.saved

    @property
    def item(self) -> Any:
        """The item of a fan-out that the visit is for."""
        return self.input.item

    @property
    def results(self) -> Any:
        """After a join that gathered a fan-out: its items in order, each `{item, status}`."""
        return self.input.results

    @property
    def inbox(self) -> Sequence[Message]:
        """The messages that were there for the visit when it started, if its function has a parameter of
        that name, or says `ctx.inbox` itself.
        """
        return list(self.input.inbox)

    @property
    def guidance(self) -> str | None:
        """What a person said who had the visit done again."""
        return self.input.guidance

    @property
    def outcome(self) -> str | None:
        """How the run ended, in a `finally` node, else None."""
        return self.input.outcome

    @property
    def call(self) -> Call | None:
        """Of which tool call the visit is."""
        return self.input.call

    @property
    def cancelled(self) -> bool:
        """Whether the run wants this visit to stop. Code in a thread has to look, and raise (whatever
        it likes) to be stopped: what returns has finished. A coroutine is also cancelled at its next
        await.
        """
        return self.is_cancelled()

    def heartbeat(self) -> None:
        """Say now that the code is alive. Visits say so by themselves about once a second; call it
        where a coroutine has blocked the event loop for long.
        """
        self.beat()

    @property
    def idempotency_key(self) -> str:
        """32 hex digits that name this visit: the same in every attempt and re-entry, different for
        every other visit. Hand it to a service that must not do a thing twice.
        """
        return hashlib.sha256(
            f"{self.run_id}|{self.execution}|{self.address}".encode()
        ).hexdigest()[:32]

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do a thing once in this visit: call the function, record what it returns, and return that.

        A later attempt, or a re-entry after an answer, gets what was recorded, and the function is not
        called. The result is JSON, read as the function's return type says. `name` is unique in the
        visit. Raises what the function raises, and Fatal if the result is not JSON, the name is used
        twice or the node is local.
        """
        return await self.notebook.step(name, function, *args, **kwargs)

    def interrupt(
        self,
        name: str,
        *,
        prompt: str | None = None,
        reason: Json = None,
        payload: Json = None,
        response: Any = None,
        state: Json = None,
        requested_capability: str | None = None,
        timeout: Duration | None = None,
        deadline: datetime | None = None,
        on_timeout: OnTimeout = "halt",
        process: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Ask a person, and return the answer, as the type that `response` is. To be awaited.

        The visit ends here and is re-entered from its beginning when it is answered; this call then
        returns at once, and so do the steps before it. The parameters are those of `Interrupt`.
        """
        asked = Interrupt(
            name,
            prompt=prompt,
            reason=reason,
            payload=payload,
            response=response,
            requested_capability=requested_capability,
            timeout=timeout,
            deadline=deadline,
            on_timeout=on_timeout,
            process=process,
        )
        return self.notebook.promised(repr(name), partial(self._answer, asked, state))

    def interrupts(
        self, asked: Sequence[Interrupt], *, state: Json = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask several things at once, and return the answers by name (`process/name` for a process's)
        when all are there. To be awaited.
        """
        return self.notebook.promised("a list", partial(self._answers, asked, state))

    async def _answer(self, asked: Interrupt, state: Json) -> Any:
        return (await self._answers([asked], state))[asked.key]

    async def _answers(self, asked: Sequence[Interrupt], state: Json) -> dict[str, Any]:
        questions = [lowered(each) for each in asked]
        for question in questions:
            self.notebook.ask(question.key)
        open_ = [question for question in questions if not self._is_answered(question)]
        if open_:
            self.notebook.unanswered += [question.key for question in open_]
            kept = next((each.state for each in asked if each.state is not None), None)
            raise Suspended(open_, state if state is not None else kept)
        return {each.key: typed_answer(each, self.targets[each.key]) for each in asked}

    def _is_answered(self, asked: Asked) -> bool:
        # What was approved is what was shown: of other values the question is another.
        shown = self.input.bound.get(asked.key)
        return asked.key in self.targets and shown in {None, content_digest(asked.question)}

    async def gather(self, *processes: Awaitable[Any]) -> list[Any]:
        """Run processes side by side, and return what they return, in order.

        If some of them ask people, the others go on to their end; then the visit waits for all that was
        asked, and every answer re-enters it. What a process has done before is done again, but for its
        steps.
        """
        ended = await asyncio.gather(*map(_settled, processes))
        for _, error in ended:
            if error is not None and not isinstance(error, Suspended):
                raise error
        waiting = [error for _, error in ended if isinstance(error, Suspended)]
        if waiting:
            asked = [question for error in waiting for question in error.asked]
            state = next((error.state for error in waiting if error.state is not None), None)
            raise Suspended(asked, state, composite=True)
        return [value for value, _ in ended]

    async def check_interrupt(self) -> Message | None:
        """The next message that is for this visit, or None. Each is given once; a visit that is tried
        again, or re-entered, gets those that it took once more, in the same order.
        """
        self.notebook.demand_keeping("read messages")
        message = await self.mail.take(self.notebook.messages)
        if message is not None:
            self.notebook.messages += 1
        return message

    async def wait_if_paused(self, timeout: Duration | None = None) -> bool:
        """Wait here while the run is paused: True when it goes on, or was not paused; False when it is
        being cancelled.

        `timeout` None takes the service's `default_timeout`. Raises StillPaused, a TimeoutError, that
        says for which run, how long, and which calls let it go on.
        """
        self.notebook.demand_keeping("wait while the run is paused")
        return await self.mail.wait_if_paused(None if timeout is None else seconds(timeout))

    def emit(self, event: str, data: Json = None) -> None:
        """Tell followers of the run an event `user.<event>`. It is told when the visit ends or asks.

        `user.` may be written or left out.
        """
        self.notebook.emit(event, data)


async def _settled(process: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await process, None
    except (Exception, Suspended) as error:  # noqa: BLE001 the caller raises it, when all have ended
        return None, error
