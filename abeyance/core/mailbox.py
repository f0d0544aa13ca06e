"""The bounded queue of messages to a run.

Every admitted message is delivered to one visit, or listed as undelivered with the reason. A full queue
refuses at once. Messages are read in the order of arrival, higher priorities first. A repeated message id
is recognised as long as its hash is stored; the same id with another body is a conflict, never a second
message. The bound and its refusal are those of ADK's InterruptService; ids and deduplication are
netherbrain's, across restarts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from abeyance.core.events import Message
from abeyance.core.json import Json, short_hash, size, why_not_json
from abeyance.core.text import beginning
from abeyance.errors import Code, Refusal

UndeliveredReason: TypeAlias = Literal[
    "cleared", "expired", "cancelled", "completed", "failed", "halted", "guard"
]

_REMEMBERED: Final = 1000
_REPORTED: Final = 100
_MOST_UNDELIVERED: Final = 1000
MOST_BYTES: Final = 1_000_000
PREVIEW_CHARS: Final = 50
_RANK: Final = {"high": 0, "normal": 1, "low": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A message that no visit took."""

    message_id: str
    reason: UndeliveredReason
    preview: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A signalled message that was refused."""

    message_id: str
    code: str
    preview: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    """`queue` is in reading order; `seen` maps the latest ids to hashes of their messages.

    `queued_bytes` and `first_expiry` belong to the queue and change with it: thousands of signals may
    arrive in one workflow task, which has no time to go through the queue for each.
    """

    queue: tuple[Message, ...] = ()
    queued_bytes: int = 0
    first_expiry: datetime | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    undelivered: tuple[Undelivered, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    def expired(self, now: datetime) -> tuple[Message, ...]:
        """Return the unread messages that are too old to be read."""
        if self.first_expiry is None or self.first_expiry > now:
            return ()
        return tuple(
            message
            for message in self.queue
            if message.expires_at is not None and message.expires_at <= now
        )

    def knows(self, message: Message) -> bool:
        """Return whether this message was admitted before.

        Raises `message_conflict` for another message with its id, and `invalid_message` if it is not
        JSON.
        """
        if (fault := why_not_json(_body(message))) is not None:
            raise Refusal(
                Code.INVALID_MESSAGE,
                f"The message {message.message_id!r} is not JSON: {fault}.",
                message_id=message.message_id,
            )
        stored = self.seen.get(message.message_id)
        if stored is not None and stored != digest(message):
            raise conflict(message.message_id)
        return stored is not None

    def refuse_if_full(self, bound: int, message: Message) -> None:
        """Raise `queue_full` if there are `bound` messages, or too many bytes for a snapshot."""
        if len(self.queue) >= bound:
            raise Refusal(
                Code.QUEUE_FULL,
                f"The run's queue holds {len(self.queue)} unread messages, and its bound is {bound}. "
                "Wait until it has read some, clear the queue, or raise max_queue_size.",
                limit=bound,
                actual=len(self.queue),
            )
        if self.queue and self.queued_bytes + size_of(message) > MOST_BYTES:
            raise Refusal(
                Code.QUEUE_FULL,
                f"The run's {len(self.queue)} unread messages take {self.queued_bytes} bytes, and with "
                f"this one more than {MOST_BYTES}. Wait until it has read some, or clear the queue.",
                limit=MOST_BYTES,
                actual=self.queued_bytes,
            )

    def with_message(self, message: Message) -> Mailbox:
        """Return the mailbox with one more message, behind those of its priority."""
        seen = {**self.seen, message.message_id: digest(message)}
        # It was rejected before, and is admitted now.
        rejected = tuple(note for note in self.rejected if note.message_id != message.message_id)
        while len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        behind = bisect_right(self.queue, _rank(message), key=_rank)
        queue = (*self.queue[:behind], message, *self.queue[behind:])
        return replace(
            self,
            queue=queue,
            queued_bytes=self.queued_bytes + size_of(message),
            first_expiry=_first_expiry((self.first_expiry, message.expires_at)),
            seen=seen,
            rejected=rejected,
        )

    def with_targets(self, renamed: Callable[[Message], Message]) -> Mailbox:
        """Return the mailbox with the target of each unread message renamed."""
        queue = tuple(map(renamed, self.queue))
        return replace(self, queue=queue, queued_bytes=sum(map(size_of, queue)))

    def with_returned(self, messages: tuple[Message, ...]) -> Mailbox:
        """Return the mailbox with messages put back that were taken and not read, first of their
        priority.
        """
        return self._with_queue((*messages, *self.queue), sum(map(size_of, messages)))

    def with_rejected(self, message: Message, code: str) -> Mailbox:
        """Return the mailbox with a rejection recorded; the last hundred are kept."""
        note = Rejected(message_id=message.message_id, code=code, preview=preview(message))
        return replace(self, rejected=(*self.rejected, note)[-_REPORTED:])

    def without(self, messages: Iterable[Message]) -> Mailbox:
        gone = {message.message_id for message in messages}
        left: list[Message] = []
        freed = 0
        for message in self.queue:
            if message.message_id in gone:
                freed += size_of(message)
            else:
                left.append(message)
        return self._with_queue(left, -freed)

    def _with_queue(self, queue: Iterable[Message], more_bytes: int) -> Mailbox:
        queue = tuple(sorted(queue, key=_rank))
        return replace(
            self,
            queue=queue,
            queued_bytes=self.queued_bytes + more_bytes,
            first_expiry=_first_expiry(message.expires_at for message in queue),
        )

    def reporting(self, messages: Collection[Message], reason: UndeliveredReason) -> Mailbox:
        """Return the mailbox with these messages moved to the undelivered ones."""
        left = tuple(
            Undelivered(message_id=message.message_id, reason=reason, preview=preview(message))
            for message in messages
        )
        report = (*self.undelivered, *left)[-_MOST_UNDELIVERED:]
        return replace(self.without(messages), undelivered=report)


def _rank(message: Message) -> int:
    return _RANK[message.priority]


def _first_expiry(moments: Iterable[datetime | None]) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def preview(message: Message) -> str:
    """Return the first characters of a message, for a report."""
    return beginning(message.text, PREVIEW_CHARS)


def size_of(message: Message) -> int:
    """Return the size of a message in bytes."""
    return size(_body(message))


def conflict(message_id: str) -> Refusal:
    """Return the refusal of another message with an id that was used."""
    return Refusal(
        Code.MESSAGE_CONFLICT,
        f"The message id {message_id!r} was used for another message: "
        "use a unique id for every message.",
        message_id=message_id,
    )


def digest(message: Message) -> str:
    """Return a hash of a message's content."""
    return short_hash(_body(message))


def _body(message: Message) -> Json:
    body: dict[str, Json] = {"text": message.text, "metadata": message.metadata}
    further = {
        "parts": list(message.parts),
        "action": message.action,
        "params": message.params,
        "target": message.target,
        "ttl": message.ttl,
        "priority": None if message.priority == "normal" else message.priority,
    }
    return body | {name: value for name, value in further.items() if value}
