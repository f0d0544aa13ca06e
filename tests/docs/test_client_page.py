"""docs/how-to/python-client.md runs from top to bottom, against a stack that serves the first graph."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
from dev_stack import Place
from pages import blocks, perform, read

import abeyance

PAGE = "how-to/python-client.md"


async def test_the_page_is_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    (tmp_path / "refunds.py").write_text(blocks("get-started.md", "python")[0].text)
    (tmp_path / "sums.py").write_text("from refunds import graph")
    monkeypatch.syspath_prepend(tmp_path)
    session = types.ModuleType("session")
    monkeypatch.setitem(sys.modules, "session", session)
    with place.stack() as stack:
        monkeypatch.setenv("ABEYANCE_URL", stack.api)
        monkeypatch.setenv("TEMPORAL_ADDRESS", stack.temporal)
        for block in blocks(PAGE, "python"):
            await perform(block, session.__dict__)
    sys.modules.pop("refunds", None)


def test_the_page_names_every_method_of_a_run() -> None:
    methods = {name for name in vars(abeyance.RunHandle) if not name.startswith("_")}
    named = {*re.findall(r"\b(\w+)\b", read(PAGE))}

    assert {"respond", "pause", "resume", "cancel", "send", "wait", "result"} <= methods & named
