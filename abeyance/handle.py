"""`RunHandle`: one run, over Temporal, over HTTP and in memory, with the same methods.

    async def approve(run: RunHandle) -> None:
        for interrupt in await run.interrupts():
            await run.respond(interrupt.id, {"approved": True})

`abeyance.Client.run` returns one over Temporal, `abeyance.http.HttpClient.run` one over HTTP, and a run
of `abeyance.testing` is one. All three raise a `Refusal` if the run refuses a call, and `Unavailable` if
the run cannot be reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal, TypedDict, Unpack

from abeyance import commands
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.duration import Duration
from abeyance.schemas.requests import answers_as_json, json_patch
from abeyance.util import as_names, checked_mapping, invalid, without_none
from abeyance.views import (
    ClosingRecord,
    Event,
    InterruptView,
    MessageReceipt,
    MessageView,
    Migration,
    Rewind,
    RunView,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A started run; `created` is False if the same start had created it before.

    `view` is the view at the end of the start's `wait`. Without a `wait` it is the view of a new run as
    it begins, by the caller's clock, and None if `created` is False.
    """

    run_id: str
    created: bool
    view: RunView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """The run of a conversation that a message was sent to, and the message's id."""

    run_id: str
    message_id: str


class MessageFields(TypedDict, total=False):
    """The fields of a message, beside its text.

    `action` is a word for the code that reads it; `params` are its parameters. `target` is the address or
    the name of the receiving node. `ttl` is how long the message may stay unread. A repeated `message_id`
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


class RunHandle(ABC):
    """One run: read it, answer its interrupts, and control it.

    `principal` is the caller; None is an anonymous caller without capabilities. Over HTTP it has to be
    None, because the bearer token names the caller. A repeated `key` has no second effect; it has 1 to
    200 visible ASCII characters. A value that cannot be sent is refused with `invalid_body`.
    """

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The id of the run."""

    @abstractmethod
    async def view(self) -> RunView:
        """Return the run as it is now."""

    @abstractmethod
    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        """Return the interrupts of one status, or of `all`, the open ones first.

        A status is `open`, `held`, `answered`, `expired`, `cancelled` or `superseded`. Raises
        `invalid_body` for any other.
        """

    @abstractmethod
    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        """Return one interrupt, open or settled; None if the run has no such interrupt."""

    @abstractmethod
    def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Yield the events after the one with the id `after`, in order.

        With `follow`, continue with new events until the run has ended.
        """

    @abstractmethod
    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view as soon as the status is one of `until`, or the run has ended, or `timeout`
        seconds are over.

        `blocked` in `until` means a blocked run of any status. Raises `invalid_body` for a text that is
        not a status.
        """

    @abstractmethod
    async def result(self) -> ClosingRecord:
        """Return the closing record of the ended run. Raises `not_finished` while it runs.

        Over HTTP it has neither `keys` nor `snapshot`, which only Abeyance itself reads.
        """

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
    ) -> list[Receipt]:
        """Answer interrupts: several by their ids, all or nothing; one by its id; or the only open one.

        The same answer to an interrupt named by its id, or with the same `key`, returns the first
        receipt, even after the run has ended. `digests` are the digests of the interrupts as the approver
        saw them. `on_behalf_of` names the person for whom the principal answers by a delegation; without
        it, a principal who may answer does so in their own right. Raises the refusals of the respond
        table.
        """
        about = answers_as_json(answers, response) | without_none(
            note=note,
            digests=None if digests is None else checked_mapping(digests, "/digests"),
            on_behalf_of=on_behalf_of,
        )
        receipts: list[Receipt] = await self._send(commands.Respond, about, principal, key)
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
        """Start no new work, for `timeout` at most; then `on_timeout`: `resume`, `halt` or `goto:<node>`.

        A signal: the call returns once it is sent; its effect is in the view and the events.
        Raises `unknown_run` and `not_running`.
        """
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        await self._send(commands.Pause, about, principal, key)

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Resume after a pause. A signal, as `pause`."""
        await self._send(commands.Resume, {"reason": reason}, principal, key)

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Cancel the run; `grace` is how long nodes may take to stop. A signal, as `pause`."""
        about = {"reason": reason, "mode": mode, "grace": grace}
        await self._send(commands.Cancel, about, principal, key)

    @abstractmethod
    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Put a message into the mailbox by a signal, as `pause`, and return its id.

        A rejected message has an event (`message.rejected`).
        """

    @abstractmethod
    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Put a message into the mailbox, and return the run's receipt.

        Raises `invalid_message`, `action_not_allowed`, `unknown_node`, `message_conflict`, `queue_full`,
        `not_running` and `unknown_run`.
        """

    @abstractmethod
    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and put a message into the mailbox, to be read after the pause.

        A refused message pauses nothing. Raises as `send`.
        """

    @abstractmethod
    async def messages(self) -> list[MessageView]:
        """Return the unread messages, in the order of reading."""

    @abstractmethod
    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, report them as undelivered, and return their number."""

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`.

        Without a version the current values are edited; a call with a `key` needs a version. Raises
        `invalid_input`, `not_stopped`, `stale`, `capability_required`, `unknown_run` and `not_running`.
        """
        if key is not None and version is None:
            # A repeat of the call would edit the version that the first call has made.
            raise invalid([{"pointer": "/version", "message": "is required with a key"}])
        fields = checked_mapping(patch, "/patch")
        read = (await self.view()).version if version is None else version
        await self._send(commands.EditValues, {"patch": fields, "version": read}, principal, key)

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

        Pass a time, or a `timeout` from now; None for either removes the deadline. A question with a
        calendar accepts business time, as in `timeout="2bd"`. Raises `unknown_interrupt`,
        `already_answered`, `withdrawn`, `capability_required`, `unknown_node`, `invalid_body` and
        `unknown_run`.
        """
        moved = {"deadline": deadline, "timeout": timeout}
        about: dict[str, Any] = {"interrupt_id": interrupt_id, "on_timeout": on_timeout}
        about |= {name: value for name, value in moved.items() if value is not ...}
        await self._send(commands.EditDeadline, about, principal, key)

    async def claim(
        self,
        interrupt_id: str,
        *,
        for_: Duration = commands.ONE_CLAIM,
        on_behalf_of: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Claim an open question for the caller, for half an hour or `for_` (at most a day).

        Until then, an answer by anybody else is refused as `claimed`. A claim expires; its holder can
        claim the question again, for longer. Raises `claimed`, `not_claimable`, the refusals of a caller
        who may not answer, `already_answered`, `withdrawn`, `unknown_interrupt`, `not_running` and
        `unknown_run`.
        """
        about = {"interrupt_id": interrupt_id, "for_": for_, "on_behalf_of": on_behalf_of}
        await self._send(commands.Claim, about, principal, key)

    async def release(
        self, interrupt_id: str, *, principal: Principal | None = None, key: str | None = None
    ) -> None:
        """End the claim of a question. Allowed for its holder, and with `runs:control`.

        Without a claim nothing happens. Raises the same refusals as `claim`.
        """
        await self._send(commands.ReleaseClaim, {"interrupt_id": interrupt_id}, principal, key)

    async def reassign(
        self,
        interrupt_id: str,
        to: str | Sequence[str],
        *,
        votes: bool = False,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Replace the assignees of a question: subjects and groups (`group:finance`). This ends a claim.

        Allowed for the holder of the claim, an assignee, and with `runs:control`. With `votes` they
        also become the people of its quorum, which takes `runs:control` and the capability of the
        question. Raises the same refusals as `claim`.
        """
        about = {"interrupt_id": interrupt_id, "to": as_names(to), "votes": votes, "note": note}
        await self._send(commands.Reassign, about, principal, key)

    async def take_back(
        self,
        interrupt_id: str,
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Take back an approval while its question is held, so that the question is open again.

        An approver may take back their own approval; a caller with `runs:control` may take back any,
        which clears all votes. Raises `not_held`, `capability_required`, `unknown_interrupt`,
        `not_running` and `unknown_run`.
        """
        about = {"interrupt_id": interrupt_id, "note": note}
        await self._send(commands.TakeBack, about, principal, key)

    @abstractmethod
    async def file(self, file: Mapping[str, str] | str) -> bytes:
        """Return the bytes of a file that the run has stored (`ctx.file`), by its reference or its id.

        Raises `not_found` and `unknown_run`.
        """

    @abstractmethod
    async def audit(self) -> bytes:
        """Return the audit of the run so far, as JSON lines: who did what, and what they were shown."""

    async def migrate(
        self,
        *,
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        pause: bool = False,
        dry_run: bool = False,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> Migration:
        """Migrate the open run to the current graph of its worker, and return what changes.

        `patch` sets fields of the values. `renames` maps names of nodes of the run's graph, nested ones
        as `outer.inner`, to the current names. A run whose code is under way is refused; with `pause` it
        is paused until that has ended, for 45 seconds at most, migrated and resumed. With `dry_run`
        nothing changes, and the obstacles are returned.
        Raises `cannot_migrate` with all obstacles, `versions_differ`, `capability_required`,
        `not_running` and `unknown_run`.
        """
        about = {**_changes(patch, renames), "pause": pause, "dry_run": dry_run}
        done: Migration = await self._send(commands.MigrateBody, about, principal, key)
        return done

    async def retry(
        self,
        *,
        graph: Literal["pinned", "today"] = "pinned",
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Continue a run that failed, was halted or was cancelled, from where it ended and under its id.

        Nothing that has finished is repeated, and open questions are open again. `graph` `today` moves
        the run to the current graph, with `renames` as for `migrate`; `patch` sets fields of the
        values. Raises `not_finished` for an open run, `run_finished` for a completed one,
        `cannot_migrate`, `conversation_busy`, `capability_required`, `gone` and `unknown_run`.
        """
        about = {**_changes(patch, renames), "graph": graph}
        await self._send(commands.RetryBody, about, principal, key)

    async def rewind(
        self,
        *,
        to: str,
        patch: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> Rewind:
        """Rewind the run, open or ended, to a time when the question `to` was open, or to its `start`.

        All later events are discarded, in every branch. The result lists these events, and the code that
        has run since, which may run again with the same `ctx.idempotency_key`. `patch` sets fields of the
        values after that. With `dry_run` nothing changes. Raises `unknown_interrupt`, `gone`,
        `not_running` for a run that is ending, `not_stopped` and `invalid_input` for a patch,
        `conversation_busy`, `capability_required` and `unknown_run`.
        """
        fields = json_patch(checked_mapping(patch or {}, "/patch"))
        about = {"to": to, "patch": fields, "dry_run": dry_run}
        done: Rewind = await self._send(commands.RewindBody, about, principal, key)
        return done

    @abstractmethod
    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return the transcript of an agent of the run, oldest first.

        `address` is that of the agent, or of something inside it; None if the run has one transcript.
        """

    @abstractmethod
    async def _send(
        self,
        kind: type[commands.Command],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> Any:
        """Send a command, and return its answer.

        `about` has the command's fields as the caller gave them, without the principal and the key, and
        not validated yet.
        """


class ConversationsHandle(ABC):
    """The active runs of conversations. `principal` and `key` are as in `RunHandle`."""

    async def interrupt(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Cancel each active run of a conversation, and return their ids."""
        about = {"reason": reason, "mode": mode, "grace": grace}
        return await self._send(conversation_id, commands.Cancel, about, principal, key)

    async def pause(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        mode: Literal["after-node", "now"] = "after-node",
        timeout: Duration | None = None,
        on_timeout: str = "resume",
        principal: Principal | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Pause each active run of a conversation, and return their ids."""
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        return await self._send(conversation_id, commands.Pause, about, principal, key)

    async def resume(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Resume each active run of a conversation, and return their ids."""
        about = {"reason": reason}
        return await self._send(conversation_id, commands.Resume, about, principal, key)

    @abstractmethod
    async def _send(
        self,
        conversation_id: str,
        kind: type[commands.Order],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> list[str]:
        """Send a command to each active run, and return the ids of the runs that it reached."""


def _changes(patch: Mapping[str, Any] | None, renames: Mapping[str, str] | None) -> dict[str, Any]:
    fields = json_patch(checked_mapping(patch or {}, "/patch"))
    return {"patch": fields, "map": checked_mapping(renames or {}, "/map")}
