"""The pages of docs/ as tests read them: blocks of code with their headings, and calls of the API.

The name of a page is its path under docs/, as in `how-to/agents.md`.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

DOCS = Path(__file__).parents[2] / "docs"

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code on a page: its heading, its line, its language, and the options after that."""

    page: str
    heading: str
    line: int
    language: str
    options: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.heading}"


def read(page: str) -> str:
    """Return the text of a page."""
    return (DOCS / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """Return the text of a page without its blocks of code."""
    return _BLOCK.sub("", read(page))


def blocks(page: str, language: str) -> list[Block]:
    """Return the blocks of a page in one language, in order."""
    text = read(page)
    outside = _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(outside)]
    return [
        Block(
            page=page,
            heading=[name for start, name in headings if start < found.start()][-1],
            line=text.count("\n", 0, found.start()) + 1,
            language=language,
            options=found[2].strip(),
            text=found[3],
        )
        for found in _BLOCK.finditer(text)
        if found[1] == language
    ]


def call_of(document: dict[str, Any], line: str) -> dict[str, Any]:
    """Return the OpenAPI document's entry for a call such as `GET /runs/refund-A-7`."""
    method, target = line.split()
    path, _, query = target.partition("?")
    for template, calls in document["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", r"[^/]+", template), path) and method.lower() in calls:
            found: dict[str, Any] = calls[method.lower()]
            known = {parameter["name"] for parameter in found.get("parameters", ())}
            assert {*parse_qs(query)} <= known, f"{line} takes {known}"
            return found
    pytest.fail(f"the API has no {line}")


async def perform(block: Block, names: dict[str, Any]) -> None:
    """Run a block as `python -m asyncio` would."""
    source = "\n" * block.line + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, block.page, "exec", flags=flags, dont_inherit=True)
    result = eval(code, names)  # noqa: S307 the documentation's code is run
    if inspect.iscoroutine(result):
        await result
