"""Metrics, read from an endpoint as Prometheus reads them."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """The metrics of an endpoint at one moment."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    @property
    def names(self) -> set[str]:
        """The names of all samples; a histogram has several."""
        return {sample.name for sample in self._samples}

    def labels(self, name: str) -> set[str]:
        """Return the names of the labels on the samples of one name."""
        return {label for sample in self._samples if sample.name == name for label in sample.labels}

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of one name that have these labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


async def scraped(url: str) -> Scraped:
    """Read the metrics of an endpoint now."""
    async with httpx.AsyncClient(trust_env=False) as http:
        response = await http.get(url)
    assert response.status_code == 200, response.text
    return Scraped(response.text)
