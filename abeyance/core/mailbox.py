"""The bounded queue of messages that people put into a run.

Accepted means delivered or reported: a message that was admitted is taken by one visit, or listed as
undelivered when the run ends. A full box says so at once. A repeat of a message id is recognised for
as long as its hash is remembered; the same id with another body is a conflict, never a second
message. The bound and its refusal are those of ADK's InterruptService.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from abeyance.core.canonical import Json, sha256, why_not_json
from abeyance.core.events import Message
from abeyance.errors import Code, Refusal

UndeliveredReason: TypeAlias = Literal[
    "cleared", "expired", "cancelled", "completed", "failed", "halted", "guard"
]

_REMEMBERED = 1000
_REPORTED = 100
_PREVIEW_CHARS = 50
_HASH_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A message that nobody took."""

    message_id: str
    reason: UndeliveredReason
    preview: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A message that a signal brought and that could not be admitted."""

    message_id: str
    code: str
    preview: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    """`queue` is oldest first; `seen` maps remembered message ids to hashes of their bodies."""

    queue: tuple[Message, ...] = ()
    seen: Mapping[str, str] = field(default_factory=dict)
    undelivered: tuple[Undelivered, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    def knows(self, message: Message) -> bool:
        """Whether this very message was admitted before.

        Raises `message_conflict` on a mix-up, and `invalid_message` if it cannot be written down.
        """
        if (fault := why_not_json(_body(message))) is not None:
            raise Refusal(
                Code.INVALID_MESSAGE,
                f"The message {message.message_id!r} is not JSON: {fault}.",
                message_id=message.message_id,
            )
        known = self.seen.get(message.message_id)
        if known is not None and known != _hash(message):
            raise Refusal(
                Code.MESSAGE_CONFLICT,
                f"The message id {message.message_id!r} was used for another message; "
                "give every message an id of its own.",
                message_id=message.message_id,
            )
        return known is not None

    def refuse_if_full(self, bound: int) -> None:
        """Raise `queue_full` if there is no room for one more."""
        if len(self.queue) >= bound:
            raise Refusal(
                Code.QUEUE_FULL,
                f"The run's queue holds {len(self.queue)} unread messages, and its bound is {bound}. "
                "Wait until it has read some, clear the queue, or raise max_queue_size.",
                limit=bound,
                actual=len(self.queue),
            )

    def with_message(self, message: Message) -> Mailbox:
        """The box with one more message at its end."""
        seen = {**self.seen, message.message_id: _hash(message)}
        while len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        return replace(self, queue=(*self.queue, message), seen=seen)

    def with_rejected(self, message: Message, code: str) -> Mailbox:
        """The box with a note that a message found no room; the last hundred notes are kept."""
        note = Rejected(message_id=message.message_id, code=code, preview=preview(message))
        return replace(self, rejected=(*self.rejected, note)[-_REPORTED:])

    def without_oldest(self, count: int) -> Mailbox:
        """The box after somebody took its `count` oldest messages."""
        return replace(self, queue=self.queue[count:])

    def emptied(self, reason: UndeliveredReason) -> Mailbox:
        """The box with everything unread moved to the report."""
        left = tuple(
            Undelivered(message_id=message.message_id, reason=reason, preview=preview(message))
            for message in self.queue
        )
        return replace(self, queue=(), undelivered=(*self.undelivered, *left))


def preview(message: Message) -> str:
    """The first characters of a message, for a report."""
    text = message.text
    return text if len(text) <= _PREVIEW_CHARS else f"{text[:_PREVIEW_CHARS]}..."


def _hash(message: Message) -> str:
    return sha256(_body(message)).removeprefix("sha256:")[:_HASH_CHARS]


def _body(message: Message) -> Json:
    return {"text": message.text, "metadata": message.metadata}
