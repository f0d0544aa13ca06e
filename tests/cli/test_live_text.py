"""Terminals show what a model says while it speaks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx
import pytest
from dev_stack import Place, until
from screen import Screen

TALKING = """\
import asyncio
from pathlib import Path

from pydantic import BaseModel

from abeyance import START, Agent, Graph


class Talk(BaseModel):
    question: str = "What is it?"
    report: str = ""


async def speak(messages, info):
    yield "It is again" if Path("begun").exists() else "It is first"
    Path("begun").touch()
    while not Path("end").exists():
        await asyncio.sleep(0.05)
    yield " and the end"


graph = Graph("talk", state=Talk)
graph.agent("clerk", Agent("clerk", model=speak), input="question", output="report")
graph.edge(START, "clerk")
"""


@pytest.mark.slow
def test_a_terminal_shows_what_a_model_says_also_after_its_worker_was_killed(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    (tmp_path / "sums.py").write_text(TALKING)
    with place.stack() as stack:
        body = {"graph": "talk", "input": {}, "run_id": "r"}
        assert httpx.post(f"{stack.api}/runs", json=body, timeout=30).status_code == 201
        screens = [
            Screen(stack, "watch", "r"),
            Screen(stack, "watch", "r", "--json"),
        ]
        try:
            for screen in screens:
                until(partial(screen.shows, "It is first"), "the text of the first attempt")
            stack.kill("worker")
            for screen in screens:
                until(partial(screen.shows, "It is again"), "the text of the second attempt")
            (tmp_path / "end").touch()
            for screen in screens:
                until(partial(screen.shows, "run.completed"), "the end")
                assert screen.process.wait(timeout=30) == 0
        finally:
            for screen in screens:
                screen.close()
