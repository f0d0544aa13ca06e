"""docs/how-to/mcp.md shows a graph that is a tool, and a program that calls it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any

from pages import blocks, perform, read
from stack import app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.contrib.mcp import calls, forms
from abeyance.contrib.mcp.routes import STATE_SECONDS
from abeyance.contrib.mcp.tools import OWN

_PAGE = "how-to/mcp.md"


async def test_the_program_starts_a_run_and_shows_its_user_what_it_asks(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    declared, program = blocks(_PAGE, "python")
    names: dict[str, Any] = {}
    await perform(declared, names)
    site = Site(temporal, names["graph"])
    script = tmp_path / "letter.py"
    script.write_text(program.text)
    async with site.worker(), served(app_for(site)) as api:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env={**os.environ, "ABEYANCE_URL": api.url, "ABEYANCE_TOKEN": "any"},
        )
        async with asyncio.timeout(60):
            written, _ = await running.communicate(b"perhaps\nsend\n")

    text = written.decode()
    assert text.count("Send this to Ada? We pay.") == 2, text
    assert "The answer was refused" in text
    assert "Decision: send" in text


def test_the_page_names_the_tools_and_limits_of_the_code() -> None:
    text = read(_PAGE)
    waits, days = (
        re.findall(r"waits up to (\d+) seconds", text),
        re.findall(r"for (\d+) days", text),
    )

    assert {f"| `{name}` |" in text for name in OWN} == {True}
    assert waits == [f"{calls.WAIT_SECONDS:.0f}"]
    assert days == [f"{STATE_SECONDS / 86_400:.0f}"]
    assert f"`{forms.KEY}`" in text
    assert f"`{forms.TASKS}`" in text
