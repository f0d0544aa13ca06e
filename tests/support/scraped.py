"""Reading figures as Prometheus does."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """What an endpoint told at one moment."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    @property
    def names(self) -> set[str]:
        """The names of all that was told, histograms by their parts."""
        return {sample.name for sample in self._samples}

    def labels(self, name: str) -> set[str]:
        """The names of the labels on the lines of one name."""
        return {label for sample in self._samples if sample.name == name for label in sample.labels}

    def total(self, name: str, **labels: str) -> float:
        """The sum over the lines of one name that have these labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


async def scraped(url: str) -> Scraped:
    """What an endpoint tells now."""
    async with httpx.AsyncClient(trust_env=False) as http:
        response = await http.get(url)
    assert response.status_code == 200, response.text
    return Scraped(response.text)
