"""The types of the fields of commands."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, WithJsonSchema

from abeyance.core.policy import is_reserved
from abeyance.core.terms import GROUP, STARTER
from abeyance.core.text import LONGEST_ID, truncate


def _printable(text: str) -> str:
    if not text.isprintable():
        message = f"{truncate(text, 100)!r} has unprintable characters: remove them"
        raise ValueError(message)
    return text


def _not_only_dots(text: str) -> str:
    if not text.strip("."):
        message = f"{truncate(text, 100)!r} is not an id: no URL can hold dots alone"
        raise ValueError(message)
    return text


def _short(text: str) -> str:
    length = len(text.encode())
    if length > LONGEST_ID:
        raise ValueError(
            f"{truncate(text, 100)!r} has {length} bytes: an id has at most {LONGEST_ID}"
        )
    return text


Id: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_ID), AfterValidator(_short)
]
Name: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=256), AfterValidator(_printable)
]
Search: TypeAlias = Annotated[str, StringConstraints(max_length=500)]
"""The text of a search, as people type it."""
ConversationId: TypeAlias = Annotated[
    Id, AfterValidator(_printable), AfterValidator(_not_only_dots)
]
LabelName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]{1,64}$")]
LabelValue: TypeAlias = Annotated[
    str, StringConstraints(max_length=256), AfterValidator(_printable)
]
_LABEL_NAME: Final = TypeAdapter(LabelName)
_LABEL_VALUE: Final = TypeAdapter(LabelValue)


def _label(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        message = f"{truncate(text, 100)!r} is not a label: write name=value"
        raise ValueError(message)
    return f"{_LABEL_NAME.validate_python(name)}={_LABEL_VALUE.validate_python(value)}"


Person: TypeAlias = Annotated[str, Field(pattern=r"^\S(?:.*\S)?$", max_length=256)]
"""Any subject: its issuer may write it with blanks."""


def _starter(subject: str) -> str:
    if is_reserved(subject):
        message = f"{subject!r} cannot start a run: write the subject of a person"
        raise ValueError(message)
    return subject


Starter: TypeAlias = Annotated[Person, AfterValidator(_starter)]
Label: TypeAlias = Annotated[
    str,
    AfterValidator(_label),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9_.:/-]{1,64}="}),
]
"""A label in a filter."""

_SUBJECT: Final = r"^[^\s,*{\x00-\x1f\x7f][^\s,{\x00-\x1f\x7f]*$"


def _subject(name: str) -> str:
    if re.fullmatch(_SUBJECT, name) is None or name in (GROUP, STARTER):
        message = (
            f"{truncate(name, 100)!r} is neither a subject nor a group: write ada, or group:finance, "
            "without blanks, commas and braces"
        )
        raise ValueError(message)
    return name


Subject: TypeAlias = Annotated[
    str,
    Field(max_length=256, json_schema_extra={"pattern": _SUBJECT}),
    AfterValidator(_subject),
]
"""A subject or a group (`group:finance`) in a list of people."""


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


Assignees: TypeAlias = Annotated[
    tuple[Subject, ...], Field(min_length=1, max_length=100), AfterValidator(_distinct)
]
"""The people whom a question is for, each once, as in its declaration."""


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"the data is not base64: {error}"
        raise ValueError(message) from error
    return text


Base64: TypeAlias = Annotated[str, AfterValidator(_base64)]
"""Bytes, as text."""


def _node_names(renames: dict[str, str]) -> dict[str, str]:
    if odd := [name for pair in renames.items() for name in pair if not name.strip(".")]:
        message = f"{odd[0]!r} is not the name of a node: write names, nested ones as outer.inner"
        raise ValueError(message)
    return renames


Renames: TypeAlias = Annotated[dict[str, str], AfterValidator(_node_names), Field(max_length=1_000)]
"""The names of nodes in the run's graph, nested ones as `outer.inner`, and what they are called now."""
