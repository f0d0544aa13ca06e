"""docs/how-to/keep-your-ui.md shows user interfaces that work: Node runs them, with official clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_graphs import payments
from node import converse
from pages import blocks, perform
from stack import app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

_PAGE = "how-to/keep-your-ui.md"
_PROGRAMS = {block.heading: block.text for block in blocks(_PAGE, "js")}


async def test_the_graph_is_one() -> None:
    (block,) = blocks(_PAGE, "python")
    await perform(block, {})


@pytest.mark.slow
@pytest.mark.parametrize("heading", _PROGRAMS)
@pytest.mark.parametrize("answer", ["y", "n"])
async def test_a_user_interface_starts_a_run_and_answers_it(
    temporal: TemporalClient, tmp_path: Path, heading: str, answer: str
) -> None:
    site = Site(temporal, payments())
    async with site.worker(), served(app_for(site)) as api:
        written = await converse(
            _PROGRAMS[heading],
            tmp_path,
            {"ABEYANCE_URL": api.url, "ABEYANCE_TOKEN": ""},
            ("What is to be done? ", "pay much"),
            ("(y/n) ", answer),
        )

    assert "Let me see what she has." in written
    assert "5000" in written
    assert "Done: " in written
    assert ("sent 5000 to ada" in written) is (answer == "y")
