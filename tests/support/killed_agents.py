"""Agents for workers that are killed. The agent's prompt is a folder: files in it show what the model and
the tools do, and name the points at which the process kills itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Script, desk, prompts, told

from abeyance import AfterToolCall, Agent, BeforeToolCall, ToolContext, tool


def note(folder: str, line: str) -> None:
    """Add a line to the folder's journal."""
    with (Path(folder) / "journal").open("a", encoding="utf-8") as journal:
        journal.write(f"{line}\n")


def point(folder: str, name: str) -> None:
    """Kill this process if the folder's file lists this point, once for each line of the file."""
    file = Path(folder) / "dies_at"
    points = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if name in points:
        points.remove(name)
        file.write_text("\n".join(points), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)


def _charge(ctx: ToolContext, folder: str, name: str) -> str:
    point(folder, "before")
    note(folder, f"{name} {ctx.idempotency_key}")
    point(folder, "in")
    return f"charged {name}"


@tool(approve=True, heartbeat="2s")
async def charge(ctx: ToolContext, folder: str, name: str) -> str:
    """Charge somebody, when a person has approved it."""
    return _charge(ctx, folder, name)


@tool(heartbeat="2s")
async def look(ctx: ToolContext, folder: str, name: str) -> str:
    """Look somebody up, which needs no approval."""
    return _charge(ctx, folder, name)


class Watcher:
    """A hook that asks before watched calls of `charge`, and that may die before and after calls."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.tool == "charge" and event.args["name"] == "watched":
            await event.interrupt("watch")
            point(str(event.args["folder"]), "hooked")

    async def after_tool_call(self, event: AfterToolCall) -> None:
        point(str(event.args["folder"]), "told")


def _model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Make the calls in the file `calls`, one `tool name` a line, and then report their results."""
    folder = prompts(messages)[0]
    turn = "first" if len(messages) == 1 else "second"
    note(folder, f"{turn} turn")
    lines = (Path(folder) / "calls").read_text(encoding="utf-8").splitlines()
    calls: list[tuple[str, Mapping[str, Any]]] = []
    for line in lines:
        name, whom = line.split()
        calls.append((name, {"folder": folder, "name": whom}))
    response = Script(calls, told)(messages, info)
    point(folder, f"{turn} turn")
    return response


teller = desk(Agent("clerk", model=_model, tools=[charge, look], hooks=[Watcher()]), "teller")
graphs = [teller]
