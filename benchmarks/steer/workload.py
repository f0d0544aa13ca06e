"""The workload `steer`: 100 messages into one run whose node reads them one by one while it runs.

First they are sent as fast as four senders can, so that they queue up; then, in a run of its own, one
every 50 ms, so that the time until one is read is not that of a queue. The node asks for the next message
again and again, and writes down when it had it. A message that is lost, or read twice, fails the trial.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from contender import Contender
from marks import leave, until_there
from measured import Column, Samples, percentile
from stage import Processes

AT_ONCE: Final = 4
_ASK_AGAIN: Final = 0.02
_GAP: Final = 0.05
_RUN_SECONDS: Final = 120.0


class Steering(Protocol):
    """What a contender has to do. `processes` are those that work for it, beside this one."""

    processes: Processes

    async def start(self, run: str, folder: str, messages: int) -> None:
        """Start a run whose node reads so many messages with `read`."""

    async def send(self, run: str, text: str) -> None:
        """Send a message, and return when it is accepted."""

    async def end(self, run: str) -> list[str]:
        """Wait for the run's end, and return what its node has read."""

    async def events(self, run: str) -> int:
        """How many events the run left in Temporal's history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs a trial has, one after another, and how many messages each gets."""

    runs: int
    messages: int


PLAN: Final = Plan(runs=3, messages=100)
QUICK: Final = Plan(runs=1, messages=10)

CONTENDERS: Final = (
    Contender(name="by-hand", title="Temporal by hand, update", module="steer.by_hand"),
    Contender(name="abeyance", title="Abeyance, send_message", module="steer.on_abeyance"),
    Contender(
        name="by-hand-signal",
        title="Temporal by hand, signal",
        module="steer.by_hand",
        options={"by_signal": True},
    ),
    Contender(
        name="abeyance-signal",
        title="Abeyance, steer",
        module="steer.on_abeyance",
        options={"by_signal": True},
        floor="by-hand-signal",
    ),
)

COLUMNS: Final = (
    Column("messages", "messages", fold=sum, digits=0),
    Column("accepted/s", "rate", more_is_better=True),
    Column("sent to accepted, p50 ms", "accepted"),
    Column("the last one read, ms after the first was sent", "all read", digits=0),
    Column("one every 50 ms: sent to read, p50 ms", "read"),
    Column("the same, p99 ms", "read", fold=percentile(99)),
    Column("events a message", "events", digits=2),
    Column("CPU ms a message", "cpu"),
)


async def read(folder: str, wanted: int, take: Callable[[], Awaitable[str | None]]) -> list[str]:
    """What the node does: read messages until it has had all; returns each with the time."""
    leave(folder, "begun")
    had: list[str] = []
    while len(had) < wanted:
        text = await take()
        if text is None:
            await asyncio.sleep(_ASK_AGAIN)
        else:
            had.append(f"{text} {time.time()!r}")
    return had


async def perform(contender: Steering, plan: Plan) -> Samples:
    """One trial of a contender. Raises if a message is lost or read twice, or not in time."""
    found: dict[str, list[float]] = {"messages": [float(plan.runs * plan.messages)]}
    await _run(contender, "warm", 1)
    base = await contender.events("warm")
    paced = await _run(contender, "paced", plan.messages, gap=_GAP)
    found["read"] = paced["read"]
    for number in range(plan.runs):
        before = contender.processes.cpu_seconds()
        burst = await _run(contender, f"run-{number}", plan.messages)
        found.setdefault("all read", []).append(max(burst["read at"]))
        for name in ("rate", "accepted"):
            found.setdefault(name, []).extend(burst[name])
        spent = sum(s - before[who] for who, s in contender.processes.cpu_seconds().items())
        found.setdefault("cpu", []).append(1000 * spent / plan.messages)
    more = await contender.events("run-0") - base
    return {**found, "events": [more / (plan.messages - 1)]}


async def _run(
    contender: Steering, run: str, messages: int, *, gap: float = 0.0
) -> dict[str, list[float]]:
    sent: dict[str, float] = {}
    accepted: list[float] = []
    numbers = iter(range(messages))

    async def one_after_another() -> None:
        for number in numbers:
            text = f"message-{number}"
            # What another process writes down is compared with this: the clock on the wall.
            await asyncio.sleep(gap)
            sent[text] = time.time()
            await contender.send(run, text)
            accepted.append(1000 * (time.time() - sent[text]))

    with TemporaryDirectory(prefix="abeyance-bench-") as folder:
        async with asyncio.timeout(_RUN_SECONDS):
            await contender.start(run, folder, messages)
            await until_there(folder, "begun")
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(1 if gap else AT_ONCE):
                    group.create_task(one_after_another())
            took = time.perf_counter() - began
            had = dict(entry.split() for entry in await contender.end(run))
    if had.keys() != sent.keys():
        message = f"of {sorted(sent)} the run {run!r} has read {sorted(had)}"
        raise ValueError(message)
    delays = [1000 * (float(at) - sent[text]) for text, at in had.items()]
    first = min(sent.values())
    return {
        "rate": [messages / took],
        "accepted": accepted,
        "read": delays,
        "read at": [1000 * (float(at) - first) for at in had.values()],
    }
