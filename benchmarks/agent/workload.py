"""The workload `agent`: a model and two tools in turn, a hundred times, then the model's last word.

The model is a script that needs no network. Each turn it says some 1,500 characters, which go into the
conversation, and calls two tools, each of which gives it 1,000. Its last word counts what it was told
all in all, so a run whose conversation has lost something fails the trial.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

from contender import Contender
from measured import Column, Samples
from stage import Processes

TOOLS: Final = ("read", "search")
_SAID: Final = 1_500
_FOUND: Final = 1_000
_RUN_SECONDS: Final = 300.0
_AROUND: Final = 2
"""A turn is measured with so many before and after it, of which the median is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What one turn, with its calls, has added to the history."""

    events: int
    bytes: int


class Talking(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def talk(self, run: str, turns: int) -> str:
        """Do a whole run of so many turns with calls, and return the model's last word."""

    async def turns(self, run: str) -> list[Added]:
        """What each turn has added, the first one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs a trial has, of how many turns."""

    runs: int
    turns: int


PLAN: Final = Plan(runs=3, turns=100)
QUICK: Final = Plan(runs=1, turns=14)

CONTENDERS: Final = (
    Contender(
        name="by-hand",
        title="Temporal by hand",
        module="agent.by_hand",
        packages=("pydantic-ai-slim",),
    ),
    Contender(
        name="abeyance",
        title="Abeyance",
        module="agent.on_abeyance",
        packages=("pydantic-ai-slim",),
    ),
)

COLUMNS: Final = (
    Column("turns", "turns", fold=sum, digits=0),
    Column("turns/s", "turns/s", more_is_better=True),
    Column("CPU ms a turn", "cpu"),
    Column("events of turn 10", "early events", digits=0),
    Column("events of the last turn", "late events", digits=0),
    Column("bytes of turn 10", "early bytes", digits=0),
    Column("bytes of the last turn", "late bytes", digits=0),
)


def found(tool: str, number: int) -> str:
    """What a tool gives."""
    return f"{tool} {number}: ".ljust(_FOUND, ".")


def script(messages: list[Any], info: Any) -> Any:
    """The model: what it says next in this conversation. The question is the number of its turns."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart

    parts = [part for message in messages for part in message.parts]
    turns = int(parts[0].content)
    number = 1 + sum(isinstance(message, ModelResponse) for message in messages)
    if number > turns:
        told = sum(len(str(part.content)) for part in parts if isinstance(part, ToolReturnPart))
        return ModelResponse(parts=[TextPart(f"{told} characters in {turns} turns")])
    calls = [ToolCallPart(tool, {"number": number}, f"{tool}-{number}") for tool in TOOLS]
    return ModelResponse(parts=[TextPart(f"turn {number} ".ljust(_SAID, ".")), *calls])


def cut(names: Sequence[str | None], sizes: Sequence[int], model: str) -> list[Added]:
    """What the turns of a history have added; the last of them is left out, for it may go on elsewhere.

    Args:
        names: For each event the name of the activity that it schedules, if it does.
        sizes: For each event its bytes.
        model: The name of the model's activity: with it a turn begins.
    """
    begins = [index for index, name in enumerate(names) if name == model]
    return [
        Added(events=after - begin, bytes=sum(sizes[begin:after]))
        for begin, after in pairwise(begins)
    ]


async def perform(contender: Talking, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a run ends otherwise than it should, or not in time."""
    await _run(contender, "warm", 3)
    before = contender.processes.cpu_seconds()
    took = [await _run(contender, f"run-{number}", plan.turns) for number in range(plan.runs)]
    spent = sum(s - before[who] for who, s in contender.processes.cpu_seconds().items())
    added = await contender.turns("run-0")
    early, late = added[9 - _AROUND : 10 + _AROUND], added[-1 - 2 * _AROUND :]
    return {
        "turns": [float(plan.runs * plan.turns)],
        "turns/s": [plan.turns / each for each in took],
        "cpu": [1000 * spent / (plan.runs * plan.turns)],
        "early events": [float(each.events) for each in early],
        "late events": [float(each.events) for each in late],
        "early bytes": [float(each.bytes) for each in early],
        "late bytes": [float(each.bytes) for each in late],
    }


async def _run(contender: Talking, run: str, turns: int) -> float:
    began = time.perf_counter()
    async with asyncio.timeout(_RUN_SECONDS):
        said = await contender.talk(run, turns)
    if said != f"{turns * len(TOOLS) * _FOUND} characters in {turns} turns":
        message = f"the model of the run {run!r} was told {said!r}"
        raise ValueError(message)
    return time.perf_counter() - began
