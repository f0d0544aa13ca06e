"""What the README shows is what happens."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from temporal_site import Site, real_server
from temporalio.client import Client as TemporalClient

from abeyance import Graph, Principal

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, number: int) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", _README, re.DOTALL)
    return str(found[number])


@pytest_asyncio.fixture
async def temporal() -> AsyncIterator[TemporalClient]:
    async with real_server() as client:
        yield client


async def test_the_smallest_graph_asks_and_pays(temporal: TemporalClient) -> None:
    module = types.ModuleType("refunds")
    sys.modules["refunds"] = module
    exec(compile(block("python", 0), "README.md", "exec"), module.__dict__)
    graph: Graph = module.__dict__["graph"]
    clerk = Principal(subject="clerk", capabilities=("refunds:approve",))
    site = Site(temporal, graph)
    async with site.worker():
        large = await site.start({"order_id": "A-7", "amount": 250})
        small = await site.start({"order_id": "A-8", "amount": 20})
        waiting = await site.until(large, "awaiting-input")
        await site.client.respond(large, response={"approved": True}, principal=clerk)
        paid, at_once = await site.ended(large), await site.ended(small)

    assert waiting.interrupts[0].prompt == "Refund 250 for A-7?"
    assert [line[:8] for line in paid.values["log"]] == ["assessed", "paid und"]
    assert [line[:8] for line in at_once.values["log"]] == ["assessed", "paid und"]


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^make (\w+)", block("console", 0), re.MULTILINE):
        assert f"\n{command}:" in makefile


def test_every_file_that_the_documents_point_to_is_there() -> None:
    for page in [_ROOT / "README.md", *_ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} points to {link}"
    for path in re.findall(r"`(tests/[\w/.]+)`", _README):
        assert (_ROOT / path).exists(), path
