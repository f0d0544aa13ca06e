"""The first pages work from top to bottom: each page is one session with its files."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from pages import Block, blocks, perform, read

from abeyance.testing import InMemoryRun

PAGES = [
    "get-started.md",
    *(
        f"tutorial/{name}.md"
        for name in ("graph", "interrupt", "agent", "deadline", "test", "deploy")
    ),
]


def file_of(block: Block) -> str | None:
    """Return the file that a block is to be saved as; None if the reader types it."""
    return block.options.removeprefix('title="').removesuffix('"') or None


def python(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_does_what_it_says_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = types.ModuleType("session")
    monkeypatch.setitem(sys.modules, "session", session)
    monkeypatch.syspath_prepend(tmp_path)
    written = blocks(page, "python")
    assert any("assert " in block.text for block in written), "a page that claims nothing"

    for block in written:
        file = file_of(block)
        match file:
            case None:
                await perform(block, session.__dict__)
            case _:
                (tmp_path / file).write_text(block.text)
                monkeypatch.delitem(sys.modules, Path(file).stem, raising=False)
    for program in tmp_path.glob("try_*.py"):
        await asyncio.to_thread(runpy.run_path, str(program))
    if [*tmp_path.glob("test_*.py")]:
        plugins = ("-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
        python(tmp_path, "-m", "pytest", "-q", *plugins, "-o", "asyncio_mode=auto")
    # Another page has a file of the same name.
    for written_file in tmp_path.glob("*.py"):
        sys.modules.pop(written_file.stem, None)


async def test_the_deadline_that_is_moved_is_that_of_the_run_that_is_started() -> None:
    text = read("tutorial/deadline.md")
    names: dict[str, Any] = {}
    (started,) = re.findall(r"abeyance run refund .*--run-id (\S+)", text)
    (moved,) = re.findall(r"abeyance deadline (\S+)", text)
    await perform(blocks("tutorial/deadline.md", "python")[0], names)
    trial = InMemoryRun(names["graph"], {"order_id": "A-8", "amount": 250}, run_id=started)
    await trial.start()

    assert [entry.id for entry in await trial.interrupts()] == [moved]
