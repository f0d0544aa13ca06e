"""Types that a graph's author may ask for in an answer, each with answers that it accepts and rejects."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    FutureDate,
    NaiveDatetime,
    PastDate,
    StringConstraints,
    field_validator,
)

from abeyance.core.json import Json

Percent = Annotated[int, Field(ge=0, le=100)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Code = Annotated[str, StringConstraints(pattern="^[A-Z]{3}$")]
Trimmed = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Money = Annotated[Decimal, Field(gt=0, decimal_places=2)]
Amount = Annotated[Decimal, Field(max_digits=14, decimal_places=4)]
Naive = NaiveDatetime
Aware = AwareDatetime
Coming = FutureDate
Gone = PastDate


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Untagged = int | date | Dog


class Share(BaseModel):
    percent: int

    @field_validator("percent")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


class Decision(BaseModel):
    is_approved: bool = Field(alias="isApproved")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    count: int
    at: date
    much: Decimal


class Bill(BaseModel):
    amount: Money
    due: date | None = None
    lines: list[Decision] = []


SENT: list[tuple[Any, Json, Json, Json]] = [
    (bool, False, False, "perhaps"),
    (bytes, "ab", "ab", 3),
    (Literal["yes", "no", 3], 3, 3, "3"),
    (Percent, 7, 7, 101),
    (Ratio, 0.5, 0.5, 1.5),
    (Code, "ABC", "ABC", "abc"),
    (Trimmed, " a ", "a", "  "),
    (Money, "12345678901234567.89", "12345678901234567.89", "-5.00"),
    (Money, 12.5, "12.5", 0.001),
    (date, "2026-01-31", "2026-01-31", "tomorrow"),
    (time, "10:00", "10:00:00", "25:00"),
    (timedelta, "-PT1H", "-PT1H", "an hour"),
    (datetime, "2026-01-31T10:00", "2026-01-31T10:00:00", "today at ten"),
    (Naive, "2026-01-31T10:00:00", "2026-01-31T10:00:00", "2026-01-31T10:00:00Z"),
    (Aware, "2026-01-31T10:00:00Z", "2026-01-31T10:00:00Z", "2026-01-31T10:00:00"),
    (Coming, "9020-01-01", "9020-01-01", "2020-01-01"),
    (Gone, "2020-01-01", "2020-01-01", "9020-01-01"),
    (
        UUID,
        "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "much",
    ),
    (Size, "s", "s", "m"),
    (Level, 2, 2, 3),
    (Pet, {"kind": "dog", "name": "Rex"}, {"kind": "dog", "name": "Rex"}, {}),
    (Cat, {}, {"kind": "cat"}, {"kind": "dog"}),
    (Share, {"percent": 4}, {"percent": 4}, {"percent": 3}),
    (Decision, {"isApproved": True}, {"isApproved": True}, {"isApproved": "perhaps"}),
    (
        Strict,
        {"count": 1, "at": "2026-01-31", "much": "1.50"},
        {"count": 1, "at": "2026-01-31", "much": "1.50"},
        {"count": 1, "at": "2026-02-31", "much": "1.50"},
    ),
    (
        Bill,
        {"amount": 5, "lines": [{"isApproved": False}]},
        {"amount": "5", "due": None, "lines": [{"isApproved": False}]},
        {"amount": "0"},
    ),
    (list[Money], ["1.50", 2], ["1.50", "2"], ["1.50", "-2"]),
    (dict[str, timedelta], {"a": "PT60M"}, {"a": "PT1H"}, {"a": "long"}),
    (set[date], ["2026-01-31"], ["2026-01-31"], ["tomorrow"]),
    (tuple[int, time], [1, "10:00"], [1, "10:00:00"], [1]),
]
"""Rows of a type, an answer, the JSON that the type makes of it, and an answer that the type rejects."""
