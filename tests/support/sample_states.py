"""A state with something of everything, for the tests of what goes into one and comes out."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, computed_field

from abeyance.schemas.state_model import StateModel

NAN = float("nan")


class Colour(StrEnum):
    RED = "red"


class Line(BaseModel):
    article: str
    quantity: int = Field(default=1, alias="qty")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"{self.quantity} x {self.article}"


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    total: Decimal = Decimal("0.00")
    placed: datetime | None = None
    colour: Colour = Colour.RED
    lines: list[Line] = []
    notes: dict[str, int | list[int]] = {}


ORDER = StateModel(Order)
OPEN = StateModel(None)
