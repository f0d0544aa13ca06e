"""docs/how-to/notifications.md shows examples that work. tests/notifications reads its file."""

from __future__ import annotations

import re

import pytest
from pages import Block, blocks, perform, prose

from abeyance.metrics import METRICS

_PAGE = "how-to/notifications.md"


@pytest.mark.parametrize("block", blocks(_PAGE, "python"), ids=str)
async def test_an_example_does_what_it_asserts(block: Block) -> None:
    assert "assert " in block.text
    await perform(block, {})


def test_its_metric_is_measured() -> None:
    (name,) = re.findall(r"`(notification_\w+)\{", prose(_PAGE))

    assert name in {metric.exposed for metric in METRICS}
