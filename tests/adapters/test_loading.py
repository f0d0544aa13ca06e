"""Frameworks load before an agent's first turn: a worker with a blocked loop sends no heartbeats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from foreign_office import FRAMEWORKS

_SUPPORT = str(Path(__file__).parents[1] / "support")
_TURN = f"""
import asyncio, sys
sys.path.insert(0, {_SUPPORT!r})
from foreign_office import FRAMEWORKS, Office, desk
from abeyance.testing import InMemoryRun

run = InMemoryRun(desk(FRAMEWORKS[sys.argv[1]](Office([("c1", "look", 1)], "Done."))))
before = set(sys.modules)
asyncio.run(run.start())
print(len(set(sys.modules) - before))
"""
_NATIVE = """
import asyncio, sys
from pydantic import BaseModel
from abeyance import START, Agent, Graph
from abeyance.testing import InMemoryRun
from abeyance.worker import load_models

class Letter(BaseModel):
    letter: str = "Pay what is due."
    reply: str | None = None

async def speak(messages, info):
    yield "Done."

graph = Graph("desk", state=Letter)
graph.agent("clerk", Agent("clerk", model=speak), input="letter", output="reply")
graph.edge(START, "clerk")
load_models({"desk": graph})
before = set(sys.modules)
asyncio.run(InMemoryRun(graph).start())
print(len(set(sys.modules) - before))
"""


def loaded_in_a_turn(program: str, *arguments: str) -> int:
    """Run a program; return the number of modules that its first turn has loaded."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_a_framework_is_loaded_before_its_first_turn(framework: str) -> None:
    assert loaded_in_a_turn(_TURN, framework) < 40


@pytest.mark.slow
def test_a_worker_loads_what_agents_need_before_it_serves_them() -> None:
    assert loaded_in_a_turn(_NATIVE) < 40
