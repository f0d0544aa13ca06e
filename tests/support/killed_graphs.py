"""Graphs for workers that are killed: their nodes write to a file, which outlives the process."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import END, START, Context, Goto, Graph, Send, append


class Files(BaseModel):
    journal: str
    release: str
    log: list[str] = []


def _graph(name: str, retries: int) -> Graph:
    graph = Graph(name, state=Files)

    @graph.node(retries=retries)
    async def charge(state: Files, ctx: Context) -> dict[str, Any]:
        with Path(state.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{ctx.idempotency_key}\n")
        while not Path(state.release).exists():
            await asyncio.sleep(0.02)
        return {"log": ["charged"]}

    graph.interrupt("confirm", prompt="Charged?", timeout="P7D")

    @graph.node
    async def close(state: Files, ctx: Context) -> dict[str, Any]:
        return {"log": [*state.log, f"closed {ctx.answers['confirm']}"]}

    graph.edge(START, "charge")
    graph.edge("charge", "confirm")
    graph.edge("confirm", "close")
    return graph


patient = _graph("patient", retries=3)
once = _graph("once", retries=0)


def _point(dies_at: str, name: str) -> None:
    file = Path(dies_at)
    if file.exists() and file.read_text(encoding="utf-8") == name:
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Points(BaseModel):
    journal: str
    dies_at: str
    """A file that names the point at which the process kills itself, once."""
    log: list[str] = []


stepping = Graph("stepping", state=Points)


@stepping.node(heartbeat="2s")
async def walk(state: Points, ctx: Context) -> dict[str, Any]:
    point = partial(_point, state.dies_at)

    def effect(name: str) -> str:
        point(f"before {name}")
        with Path(state.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{name}={ctx.idempotency_key}\n")
        point(f"in {name}")
        return name

    log = []
    for name in ("one", "two", "three"):
        log.append(await ctx.step(name, effect, name))
        point(f"after {name}")
        if name != "three":
            log.append(await ctx.interrupt(f"ask-{name}"))
            point(f"answered {name}")
    return {"log": log}


stepping.edge(START, "walk")

reading = Graph("reading", state=Points)


@reading.node(heartbeat="2s", retries=3)
async def read(state: Points, ctx: Context) -> dict[str, Any]:
    """Take messages until one says `enough`; the journal has the messages that each attempt saw."""
    log: list[str] = []
    while True:
        message = await ctx.check_interrupt()
        if message is None:
            await asyncio.sleep(0.05)
            continue
        log.append(message.message_id)
        with Path(state.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{ctx.attempt}={message.message_id}\n")
        _point(state.dies_at, f"after {message.message_id}")
        if message.text == "enough":
            return {"log": log}


reading.edge(START, "read")

lingering = Graph("lingering", state=Files)


@lingering.node(heartbeat="3s", retries=3)
async def linger(state: Files, ctx: Context) -> dict[str, Any]:
    """Make a step and wait for the file `release`; raise an error if the file is empty."""

    def note(line: str) -> str:
        with Path(state.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{line}\n")
        return line

    done = await ctx.step("step", note, "step")
    note("lingers")
    release = Path(state.release)
    while not release.exists():
        await asyncio.sleep(0.01)
    if not release.read_text(encoding="utf-8"):
        release.unlink()
        raise RuntimeError("the line is dead")
    return {"log": [done, "lingered"]}


lingering.edge(START, "linger")

chained = Graph("chained", state=Points)


def _chained_node(name: str) -> None:
    @chained.node(name=name, heartbeat="2s", retries=3)
    async def work(state: Points, ctx: Context) -> dict[str, Any]:
        """Write a line in a step. At its point, the process kills itself."""

        def effect() -> str:
            with Path(state.journal).open("a", encoding="utf-8") as journal:
                journal.write(f"{name}={ctx.attempt}={ctx.idempotency_key}\n")
            return name

        _point(state.dies_at, f"before {name}")
        done = await ctx.step("effect", effect)
        _point(state.dies_at, f"after {name}")
        return {"log": [*state.log, done]}


for _name in ("one", "two", "three"):
    _chained_node(_name)
chained.edge(START, "one")
chained.edge("one", "two")
chained.edge("two", "three")


class Rounds(BaseModel):
    rounds: int = 0
    log: Annotated[list[str], append] = []


asking = Graph("asking", state=Rounds)


@asking.node(to=["work"])
async def deal(state: Rounds) -> list[Send]:
    return [Send("work", number) for number in range(3)]


@asking.node(heartbeat="2s", retries=20)
async def work(state: Rounds, ctx: Context) -> dict[str, Any]:
    await asyncio.sleep(0.2)
    return {"log": [f"{state.rounds}:{ctx.item}"]}


@asking.node
async def collect(state: Rounds) -> dict[str, Any]:
    return {"rounds": state.rounds + 1}


asking.interrupt("more", prompt="Round {rounds}: another one?", response=bool)


@asking.node(to=["deal", END])
async def turn(state: Rounds, ctx: Context) -> Goto:
    return Goto("deal" if ctx.answers["more"] else END)


asking.edge(START, "deal")
asking.edge(["work"], "collect")
asking.edge("collect", "more")
asking.edge("more", "turn")
graphs = [patient, once, stepping, reading, lingering, chained, asking]
