"""Messages as they cross a process boundary: what callers send, and what they get back."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from abeyance.controls import Pause
from abeyance.core.events import Message, Priority
from abeyance.duration import OptionalSeconds
from abeyance.shapes import Keyed, Record, Request, Value


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"the data is not base64: {error}"
        raise ValueError(message) from error
    return text


Base64: TypeAlias = Annotated[str, AfterValidator(_base64)]
"""Bytes, as text."""


class TextPart(Request):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str = Field(min_length=1)


class MediaPart(Request):
    """A part of a message that is a picture, a sound or a document: its `data` in base64, or a `url`.

    A `url` is passed on as it is, and never fetched by us; it has to be https, on a host that the
    service allows.
    """

    type: Literal["media"]
    media_type: str = Field(pattern=r"^[\w.+-]{1,100}/[\w.+-]{1,100}$")
    data: Base64 | None = None
    url: str | None = Field(default=None, max_length=2_000)

    @model_validator(mode="after")
    def _has_one(self) -> MediaPart:
        if (self.data is None) == (self.url is None):
            raise ValueError("give either `data` or `url`")
        return self


Part: TypeAlias = Annotated[TextPart | MediaPart, Field(discriminator="type")]


class MessageBody(Request):
    """A message for a run. Without a `message_id` one is made.

    `action` makes it a directive (continue, rerun, go_back, skip, pause, defer, update_state), or is a
    word of the author's own; `params` belong to it. `target` is the address or the name of the node
    that it is for. `ttl` is how long it may stay unread, as any duration.
    """

    message_id: str | None = Field(default=None, min_length=1, max_length=256)
    text: str = ""
    parts: tuple[Part, ...] = Field(default=(), max_length=20)
    metadata: dict[str, Value] = Field(default_factory=dict)
    action: str | None = Field(default=None, min_length=1, max_length=100)
    params: dict[str, Value] = Field(default_factory=dict)
    target: str | None = Field(default=None, min_length=1, max_length=2_000)
    priority: Priority = "normal"
    ttl: OptionalSeconds = Field(default=None, gt=0)


def _is_none(value: object) -> bool:
    return value is None


class SteerMessage(MessageBody):
    """A message as the run gets it: also from whom, who may pass which gates."""

    sender: str = Field(default="temporal", max_length=256)
    capabilities: tuple[str, ...] = ()


class SendMessage(SteerMessage):
    """A message that gets a receipt. If the run accepts it, `pause` pauses the run before that."""

    pause: Pause | None = Field(default=None, exclude_if=_is_none)


class MessageReceipt(Record):
    """That a message was accepted. `queue_depth` None: no worker could be asked."""

    message_id: str
    duplicate: bool
    queue_depth: int | None


class MessageView(Record):
    """An unread message, as people see it."""

    message_id: str
    text: str
    sender: str
    metadata: dict[str, Any]
    parts: list[dict[str, Any]]
    action: str | None
    params: dict[str, Any]
    target: str | None
    priority: Priority
    sent_at: datetime | None
    expires_at: datetime | None

    @classmethod
    def of(cls, message: Message) -> MessageView:
        """The view of a message. What its sender may do is not shown."""
        return cls(**{name: getattr(message, name) for name in cls.model_fields})


class TakeMessages(Request):
    """A visit asks for its messages from the n-th on (`start`), at most up to the `upto`-th."""

    visit: str
    start: int = Field(default=0, ge=0)
    upto: int = Field(default=1, ge=1, le=100_000)


class ClearMessages(Keyed):
    """Throw the unread messages away; they are reported."""

    actor: str = Field(default="temporal", max_length=256)


class Cleared(Record):
    """How many messages were thrown away."""

    cleared: int
