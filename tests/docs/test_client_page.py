"""docs/how-to/python-client.md runs from top to bottom, against a stack that serves the first graph."""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path

import pytest
from pages import blocks, perform, read
from stack import app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

import abeyance

PAGE = "how-to/python-client.md"


async def test_the_page_is_one_session(
    temporal: TemporalClient, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refunds.py").write_text(blocks("get-started.md", "python")[0].text)
    monkeypatch.syspath_prepend(tmp_path)
    session = types.ModuleType("session")
    monkeypatch.setitem(sys.modules, "session", session)
    site = Site(temporal, importlib.import_module("refunds").graph)
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    monkeypatch.setenv("ABEYANCE_TASK_QUEUE", site.settings.task_queue)
    async with site.worker(), served(app_for(site)) as api:
        monkeypatch.setenv("ABEYANCE_URL", api.url)
        for block in blocks(PAGE, "python"):
            await perform(block, session.__dict__)
    sys.modules.pop("refunds", None)


def test_the_page_names_the_methods_of_a_run_that_most_programs_need() -> None:
    methods = {name for name in vars(abeyance.RunHandle) if not name.startswith("_")}
    named = {*re.findall(r"\b(\w+)\b", read(PAGE))}

    assert {"respond", "pause", "resume", "cancel", "send", "wait", "result"} <= methods & named
