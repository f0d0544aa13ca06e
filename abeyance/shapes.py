"""What every shape that crosses a process boundary is made of: bases, values and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
)

DEEPEST = 100
"""How many levels lists and mappings may be nested in a value. Whoever reads JSON gives up at 200, and
a run that cannot be read is stuck for ever: so there has to be room for what a value is put into."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LATEST = 2200
"""The year from which on no timer can be set: Temporal's server counts at most 292 years."""


def refuse_too_deep(value: JsonValue) -> JsonValue:
    """The value itself. Raises ValueError if it is nested deeper than `DEEPEST`."""
    nesting = (dict, list, tuple)
    level = [value] if isinstance(value, nesting) else []
    for _ in range(DEEPEST):
        if not level:
            return value
        inside = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for item in chain.from_iterable(inside) if isinstance(item, nesting)]
    if not level:
        return value
    message = f"lists and mappings are nested in it deeper than {DEEPEST} levels"
    raise ValueError(message)


Value: TypeAlias = Annotated[JsonValue, AfterValidator(refuse_too_deep)]
"""A JSON value that somebody sends."""


def _moment(given: Any) -> Any:
    # A number, be it in a text, would be read as seconds since 1970.
    if isinstance(given, datetime) or (isinstance(given, str) and _DAY.match(given)):
        return given
    message = "a time is text such as 2026-03-02T09:00:00Z"
    raise ValueError(message)


def _in_utc(moment: datetime) -> datetime:
    if moment.year >= _LATEST:
        message = (
            f"{moment.isoformat()} is after the year {_LATEST - 1}: what never ends needs no time"
        )
        raise ValueError(message)
    return moment.astimezone(UTC) if moment.year > 1 else moment


Moment: TypeAlias = Annotated[AwareDatetime, BeforeValidator(_moment), AfterValidator(_in_utc)]
"""A time that somebody sends: RFC 3339, with its offset from UTC."""


class Record(BaseModel):
    """Something that our own code wrote and reads again."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Stamp(Record):
    """What an order is good for, where only what is sealed is taken. It is sealed with the order.

    `order` is the name of the signal or update, `execution` the first of the run's executions in
    Temporal, `nonce` a number that is used once, and grows with time. `shown` are the digests of the
    questions that an answer is meant for, by their ids.
    """

    order: str
    execution: str = ""
    nonce: str = ""
    shown: dict[str, str] = Field(default_factory=dict)


class Stamped(BaseModel):
    """What travels with a stamp, which is no part of what it says."""

    _stamp: Stamp | None = PrivateAttr(default=None)

    @property
    def stamp(self) -> Stamp | None:
        """The stamp; None if it has none, or came unsealed."""
        return self._stamp

    def stamped(self, stamp: Stamp) -> Self:
        """The same with a stamp."""
        made = self.model_copy()
        made._stamp = stamp  # noqa: SLF001
        return made


class Request(Stamped):
    """A request by a person or a program: nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Keyed(Request):
    """A request that counts once under its `key`: the same again gets the first receipt."""

    key: str | None = Field(
        default=None, min_length=1, max_length=256, exclude_if=lambda key: key is None
    )
