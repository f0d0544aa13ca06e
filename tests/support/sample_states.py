"""A state model with every kind of field, for tests of its input and output."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from abeyance import Refusal
from abeyance.errors import Code
from abeyance.schemas.state_model import StateModel, ValuesError

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


def refusal(states: StateModel, given: Mapping[Any, Any]) -> Refusal:
    """Return the refusal of this input at the start of a run."""
    with pytest.raises(Refusal) as caught:
        states.initial(given)
    assert caught.value.code is Code.INVALID_INPUT
    return caught.value


def pointers(states: StateModel, given: Mapping[Any, Any]) -> list[str]:
    """Return the JSON pointers of the errors in this input."""
    return [error["pointer"] for error in refusal(states, given).details["errors"]]


def patch_error(states: StateModel, changes: Mapping[Any, Any]) -> str:
    """Return the error message for a patch that a node has returned."""
    with pytest.raises(ValuesError) as caught:
        states.patch(changes)
    return str(caught.value)
