"""The price of a model's turn, by the list of prices that the model library brings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


def price_of(response: ModelResponse) -> float | None:
    """Return the price of a response in US dollars, None if the list does not have its model."""
    name = response.model_name or ""
    # Frameworks name their models in ways of their own, such as `openai:gpt-5` and `models/gemini-2.5`.
    for spelling in dict.fromkeys([name, name.rpartition("/")[2].rpartition(":")[2]]):
        try:
            return float(replace(response, model_name=spelling or "?").cost().total_price)
        except (LookupError, ValueError):
            continue
    return None
