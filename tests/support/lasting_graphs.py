"""Graphs whose code runs in a thread until a file exists, so that nothing can stop the code."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Script, desk, prompts

from abeyance import START, Agent, Context, Graph, tool

RELEASE = "release"


class Place(BaseModel):
    folder: str = ""
    ended: str = ""


def lasts(folder: str, name: str) -> str:
    """Write the process id, and whether the process of the line before still lives; then wait."""
    journal = Path(folder) / name
    before = journal.read_text("utf-8").splitlines() if journal.exists() else []
    beside = "alone" if not before or not _lives(int(before[-1].split()[0])) else "beside another"
    with journal.open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getpid()} {beside}\n")
    while not (Path(folder) / RELEASE).exists():
        time.sleep(0.05)
    return "released"


def attempts(folder: Path, name: str) -> list[str]:
    """Return how each attempt began: alone, or beside an earlier attempt that had not ended."""
    journal = folder / name
    lines = journal.read_text("utf-8").splitlines() if journal.exists() else []
    return [line.partition(" ")[2] for line in lines]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


plain = Graph("plain", state=Place)
stepping = Graph("stepping", state=Place)
near = Graph("near", state=Place)


@plain.node(name="work", retries=0)
def work(state: Place) -> dict[str, Any]:
    return {"ended": lasts(state.folder, "plain")}


@stepping.node(name="work", retries=0)
async def steps(state: Place, ctx: Context) -> dict[str, Any]:
    return {"ended": await ctx.step("long", lambda: lasts(state.folder, "stepping"))}


@near.node(name="work", retries=0, local=True)
def at_once(state: Place) -> dict[str, Any]:
    return {"ended": lasts(state.folder, "near")}


for _graph in (plain, stepping, near):
    _graph.edge(START, "work")


@tool
def call(folder: str) -> str:
    """Do something for a long time."""
    return lasts(folder, "calling")


def _calling(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    folder = prompts(messages)[0]
    return Script([("call", {"folder": folder})], "released")(messages, info)


def _thinking(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return Script(lasts(prompts(messages)[0], "thinking"))(messages, info)


calling = desk(Agent("clerk", model=_calling, tools=[call]), "calling")
thinking = desk(Agent("clerk", model=_thinking, model_retries=0), "thinking")
graphs = [plain, stepping, near, calling, thinking]
