"""The input that a user interface has posted, for all protocols: the message of a person, and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from types import EllipsisType
from typing import Any, Final

from abeyance import views
from abeyance.core.json import Json
from abeyance.core.text import LONGEST_ID, truncate
from abeyance.errors import Code, Refusal
from abeyance.util import invalid

_SHOWN_CHARS: Final = 100
_SMALLEST: Final = 2**53
_LARGEST: Final = 10**308
"""A browser may round integers between these bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message that a person has written. `id` is given by the user interface."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer. `value` returns it in the form that a question takes; `...` leaves the question open.

    `digest` is the digest of the question that the user interface has shown. With `is_history` the user
    interface repeats its history, so the answer counts only if the question is open.
    """

    interrupt_id: str
    value: Callable[[views.InterruptView], Json | EllipsisType]
    digest: str | None = None
    is_history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The input that a user interface has posted. `message` is None if the last message is not a
    person's, `earlier` are the ids of people's messages before it.

    With `repeats`, the events after an input that was posted before are streamed again, for a protocol
    without snapshots.
    """

    conversation_id: str
    message: UserMessage | None = None
    answers: tuple[Answer, ...] = ()
    earlier: tuple[str, ...] = ()
    repeats: bool = False


def one_each(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return one answer to each question. A later answer replaces one that is history.

    Raises `malformed_body` for a second answer after one that is not history.
    """
    by_question: dict[str, Answer] = {}
    for answer in answers:
        id_ = answer.interrupt_id
        if id_ in by_question and not by_question[id_].is_history:
            shown = truncate(id_, _SHOWN_CHARS)
            raise Refusal(
                Code.MALFORMED_BODY,
                f"The body answers the question {shown!r} twice: send one answer to each question.",
                key=shown,
            )
        by_question[id_] = answer
    return tuple(by_question.values())


def unrounded(answer: Json, question: views.InterruptView) -> Json:
    """Return an answer in which the shown integers replace those that a browser has rounded.

    Numbers of a browser have 53 bits: a user interface that sends back a long id would change it.
    """
    reason, shown = question.reason, question.payload
    if question.kind == "approval" and isinstance(reason, Mapping):
        shown = {"arguments": reason.get("arguments")}
    return _unrounded(answer, shown)


def _unrounded(value: Json, shown: Json) -> Json:
    match value, shown:
        case bool(), _:
            return value
        case (int() | float(), int()) if _SMALLEST < abs(shown) < _LARGEST:
            return shown if Decimal(repr(value)) == Decimal(repr(float(shown))) else value
        case Mapping(), Mapping():
            return {name: _unrounded(each, shown.get(name)) for name, each in value.items()}
        case list(), list():
            pairs = zip_longest(value, shown[: len(value)])
            return [_unrounded(each, beside) for each, beside in pairs]
        case _:
            return value


def ids_of(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the ids of those messages of a request that have one."""
    return tuple(id_ for each in messages if isinstance(id_ := each.get("id"), str))


def new_message(id_: object, text: str) -> UserMessage:
    """Return a message of a request. Raises `invalid_body` for one without text or without an id."""
    if not text.strip():
        message = "has no text: the last message of the user needs one"
        raise invalid([{"pointer": "/messages", "message": message}])
    if not isinstance(id_, str) or not 0 < len(id_.encode()) <= LONGEST_ID:
        message = f"has no usable id: use a text of 1 to {LONGEST_ID} bytes"
        raise invalid([{"pointer": "/messages", "message": message}])
    return UserMessage(id=id_, text=text)
