"""The workload `questions`: what a question costs, and whether many that are open slow one answer down.

A run asks 1 or 1,000 questions at once; one of them is answered, again and again in runs of their own,
and the time until the receipt is taken. The events and bytes that a question and an answer add to the
history are taken from the difference. There is no floor: nothing that is written by hand is the same.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, Protocol

from contender import Contender
from measured import Column, Samples
from stage import Processes

_RUN_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The size of a history."""

    events: int
    bytes: int


class Asking(Protocol):
    """What a contender has to do."""

    processes: Processes

    async def ask(self, run: str, questions: int) -> list[str]:
        """Start a run that asks so many questions, and return their ids as soon as all are open."""

    async def answer(self, run: str, question: str) -> None:
        """Answer one, and return when the receipt is there."""

    async def history(self, run: str) -> Growth:
        """The history as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many questions are open in the large run, and how many answers are timed in each."""

    many: int
    answers: int


PLAN: Final = Plan(many=1_000, answers=40)
QUICK: Final = Plan(many=20, answers=5)

CONTENDERS: Final = (
    Contender(name="one", title="one more question", module="questions.on_abeyance", floor="one"),
    Contender(
        name="many",
        title="1,000 more questions",
        module="questions.on_abeyance",
        options={"many": True},
        floor="one",
    ),
)

COLUMNS: Final = (
    Column("answers", "answers", fold=sum, digits=0),
    Column("start to all open, ms", "opened"),
    Column("answer to receipt, p50 ms", "took"),
    Column("events a question", "events a question", digits=2),
    Column("bytes a question", "bytes a question", digits=0),
    Column("events an answer", "events an answer", digits=2),
    Column("bytes an answer", "bytes an answer", digits=0),
)


async def perform(contender: Asking, plan: Plan) -> Samples:
    """One trial: beside the questions that are answered, so many more stay open."""
    more = plan.many if getattr(contender, "many", False) else 1
    async with asyncio.timeout(_RUN_SECONDS):
        await contender.ask("warm", 2)
        base = await contender.history("warm")
        began = time.perf_counter()
        questions = await contender.ask("run", plan.answers + more)
        opened = 1000 * (time.perf_counter() - began)
        asked = await contender.history("run")
        took = []
        for question in questions[: plan.answers]:
            began = time.perf_counter()
            await contender.answer("run", question)
            took.append(1000 * (time.perf_counter() - began))
        answered = await contender.history("run")
    added = plan.answers + more - 2
    return {
        "answers": [float(plan.answers)],
        "opened": [opened],
        "took": took,
        "events a question": [(asked.events - base.events) / added],
        "bytes a question": [(asked.bytes - base.bytes) / added],
        "events an answer": [(answered.events - asked.events) / plan.answers],
        "bytes an answer": [(answered.bytes - asked.bytes) / plan.answers],
    }
