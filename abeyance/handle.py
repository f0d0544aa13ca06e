"""One run, for whoever calls it: the same protocol over Temporal, over HTTP and in memory.

    async def approve(run: RunHandle) -> None:
        for asked in await run.interrupts():
            await run.respond(asked.id, {"approved": True})

`abeyance.Client.run` gives one over Temporal, `abeyance.http.HttpClient.run` one over HTTP, and a run of
`abeyance.testing` is one. What a run refuses is raised as a `Refusal`, what cannot be reached as
`Unavailable`, by all three.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from abeyance import wire
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.duration import Duration
from abeyance.errors import Code, Refusal
from abeyance.schemas.answers import answers_as_json
from abeyance.schemas.state_model import at_pointer
from abeyance.wire import ClosingRecord, Event, InterruptView, MessageReceipt, MessageView, RunView

R = TypeVar("R", bound=wire.Request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs; what is empty or None does not matter. Of `statuses` one, of `labels` all."""

    statuses: frozenset[str] = frozenset()
    graph: str | None = None
    conversation_id: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    """Which interrupts; what is empty or None does not matter. Of `capabilities` one; `before` is a time
    that a deadline comes before.
    """

    capabilities: frozenset[str] = frozenset()
    graph: str | None = None
    conversation_id: str | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run that a start led to; `created` is False if the same start had created it before."""

    run_id: str
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """The run of a conversation that got a message, and the id of the message."""

    run_id: str
    message_id: str


class MessageFields(TypedDict, total=False):
    """The fields of a message, beside its text.

    `action` makes it a directive (`continue`, `rerun`, `go_back`, `skip`, `pause`, `defer`,
    `update_state`), or is a word of the graph's own; `params` belong to it. `target` is the address or
    the name of the node that it is for. `ttl` is how long it may stay unread. The same `message_id` again
    is the same message.
    """

    message_id: str | None
    parts: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any]
    action: str | None
    params: Mapping[str, Any]
    target: str | None
    priority: Literal["high", "normal", "low"]
    ttl: Duration | None
    principal: Principal | None


class RunHandle(Protocol):
    """One run: to read it, to answer it, to control it.

    `principal` is who does something; None is a caller without a name and without capabilities. Over HTTP
    it has to be None, because the bearer token says who it is. The same `key` again has no second effect.
    """

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    async def view(self) -> RunView:
        """Return the run as it is now."""
        ...

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or of `all`, the open ones first."""
        ...

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return one interrupt, open or settled; None if the run has no such one."""
        ...

    def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Yield what has happened, in order, after the event with the id `after`.

        With `follow` also what happens from then on, until the run has ended.
        """
        ...

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view as soon as the status is one of `until`, or the run has ended, or `timeout`
        seconds are over.
        """
        ...

    async def result(self) -> ClosingRecord:
        """Return what the ended run left behind. Raises `not_finished` while it runs."""
        ...

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
        """Answer interrupts: several by their ids, all or nothing; one by its id; or the only open one.

        The same answer again gets the first receipt, also after the run has ended. `digests` are those of
        what was shown to the person who answers. Raises the refusals of the respond table.
        """
        ...

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
        """Start no new work, for `timeout` at most; then `on_timeout`: `resume`, `halt` or `goto:<node>`.

        It is a signal: it returns when it is sent, and what comes of it is in the view and the events.
        Raises `unknown_run` and `not_running`.
        """
        ...

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Go on after a pause. A signal, as `pause`."""
        ...

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """End the run in good order; `grace` is how long nodes may take to stop. A signal, as `pause`."""
        ...

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Put a message into the mailbox by a signal, as `pause`, and return its id.

        A message that the run rejects is in its events (`message.rejected`).
        """
        ...

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Put a message into the mailbox, and return the receipt of the run itself.

        Raises `invalid_message`, `action_not_allowed`, `unknown_node`, `message_conflict`, `queue_full`,
        `not_running` and `unknown_run`.
        """
        ...

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and put a message into the mailbox, which is read when the run goes on.

        A message that is refused pauses nothing. Raises as `send`.
        """
        ...

    async def messages(self) -> list[MessageView]:
        """Return the unread messages, in the order of reading."""
        ...

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, which are reported, and return how many there were."""
        ...

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`.

        Without a version, as they are now; a call with a `key` names one. Raises `invalid_input`,
        `not_stopped`, `stale`, `capability_required`, `unknown_run` and `not_running`.
        """
        ...

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

        Give a time, or a `timeout` from now; None as either removes the deadline. Raises
        `unknown_interrupt`, `already_answered`, `withdrawn`, `capability_required`, `unknown_node`,
        `invalid_body` and `unknown_run`.
        """
        ...

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return what was said to an agent of the run, and by it, oldest first.

        `address` is that of the agent, or of something in it; None in a run with one transcript.
        """
        ...


def respond_order(
    answers: Mapping[str, Any] | str | None,
    response: Any = ...,
    *,
    principal: Principal,
    note: str | None = None,
    digests: Mapping[str, str] | None = None,
    key: str | None = None,
) -> wire.Respond:
    """Answers by the ids of their interrupts, one `response` by the id of its interrupt, or one to the
    only open interrupt.

    Raises the Refusals `invalid_answer` for an answer that is no JSON, and `invalid_body` for what is
    no order.
    """
    forms = answers_as_json(answers, response)
    about = {"principal": principal, "note": note, "digests": dict(digests or {})}
    about |= {} if key is None else {"key": key}
    return order_of(wire.Respond, {**forms, **about}, fault="This answers nothing")


def message_order(text: str, fields: MessageFields, *, principal: Principal) -> wire.SteerMessage:
    """A message of somebody. Raises the Refusal `invalid_body` for what is none."""
    given = {name: value for name, value in fields.items() if name != "principal"}
    by = {"sender": principal.subject, "capabilities": tuple(principal.capabilities)}
    return order_of(wire.SteerMessage, {"text": text, **given, **by})


def deadline_order(
    interrupt_id: str,
    *,
    deadline: datetime | EllipsisType | None,
    timeout: Duration | EllipsisType | None,
    on_timeout: str | None,
    principal: Principal,
    key: str | None,
) -> wire.EditDeadline:
    """An edit of a deadline. Raises the Refusal `invalid_body` for what is none."""
    moved = {"deadline": deadline, "timeout": timeout}
    given = {name: value for name, value in moved.items() if value is not ...}
    about = {"interrupt_id": interrupt_id, "on_timeout": on_timeout, "principal": principal}
    about |= {} if key is None else {"key": key}
    return order_of(wire.EditDeadline, {**given, **about})


def order_of(
    kind: type[R], given: Mapping[str, Any], *, fault: str = "The request cannot be used"
) -> R:
    """What a caller gives, as an order. Raises the Refusal `invalid_body` for what is none."""
    try:
        return kind(**given)
    except ValidationError as error:
        errors = at_pointer(error, given)
        listed = "; ".join(f"{each['pointer'] or 'it'}: {each['message']}" for each in errors)
        raise Refusal(Code.INVALID_BODY, f"{fault}: {listed}.", errors=errors) from error
