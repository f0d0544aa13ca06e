"""How much processor time the pure core takes for one event.

`python benchmarks/core/advance.py [--profile]`.

Two numbers are watched. One answer in a run with 50 visits and 200 open questions is to take less than
100 microseconds. Random events are to pass at a million a minute on one core.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from time import thread_time
from typing import Final

from abeyance.core import events
from abeyance.core.effects import Effect, RunNode, StopNode
from abeyance.core.json import Json
from abeyance.core.machine import advance, check, new_run
from abeyance.core.outcome import Asked, Finished, Interrupted, Send, VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    END,
    START,
    Edge,
    FieldSpec,
    FunctionNode,
    GraphSpec,
    InterruptNode,
    InterruptSpec,
    When,
)
from abeyance.core.state import Limits, RunState, copied

_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_PERSON: Final = Principal(subject="ann", capabilities=("*",))
_SCHEMA: Final = {"type": "object", "properties": {"approved": {"type": "boolean"}}}
_VISITS: Final = 50
_QUESTIONS: Final = 4


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--events", type=int, default=20_000, help="how many random events")
    asked = parser.parse_args()
    profile = cProfile.Profile() if asked.profile else None
    took = sorted(answers(profile))
    print(
        f"advance(Responded), {_VISITS} visits, {_VISITS * _QUESTIONS} open questions: "
        f"median {median(took) * 1e6:.0f} us, least {took[0] * 1e6:.0f} us"
    )
    seconds = random_events(asked.events, profile)
    print(f"random events: {asked.events / seconds:.0f} a second")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def answers(profile: cProfile.Profile | None = None) -> Iterator[float]:
    """Answer every question of the large run; how many seconds each took."""
    state = _large_run()
    for number, id_ in enumerate(list(state.ledger.open)):
        event = events.Responded(
            now=_BEGIN + timedelta(seconds=10 + number),
            principal=_PERSON,
            answers={id_: {"approved": True}},
            schema_faults={id_: ()},
        )
        before = copied(state)
        check(before, event)
        gc.disable()
        if profile is not None:
            profile.enable()
        begun = thread_time()
        advance(before, event)
        yield thread_time() - begun
        if profile is not None:
            profile.disable()
        gc.enable()
        assert len(before.ledger.open) == _VISITS * _QUESTIONS - 1


def _large_run() -> RunState:
    sender = FunctionNode(id="send", to=("ask",))
    asker = FunctionNode(id="ask", asks=("refunds:approve",))
    spec = GraphSpec(
        name="large",
        fields={"order": FieldSpec(), "notes": FieldSpec(reducer="append")},
        nodes={"send": sender, "ask": asker, "end": FunctionNode(id="end")},
        edges=(
            Edge(sources=(START,), target="send"),
            Edge(sources=("ask",), target="end", gathers=True),
            Edge(sources=("end",), target=END),
        ),
    )
    values = {"order": {"id": "o-1", "lines": [f"line {n}" for n in range(50)]}, "notes": []}
    run = _Run(spec, values)
    sends = tuple(Send(node="ask", item={"number": n}) for n in range(_VISITS))
    run.end(run.running[0], Finished(sends=sends))
    for visit in list(run.running):
        asked = tuple(
            Asked(
                question=InterruptSpec(
                    name=f"q{n}",
                    prompt="May this be refunded?",
                    payload={"amount": n, "to": visit},
                    response_schema=_SCHEMA,
                    requested_capability="refunds:approve",
                    timeout=86_400.0,
                )
            )
            for n in range(_QUESTIONS)
        )
        run.end(visit, Interrupted(interrupts=asked, journal={"a": 1}))
    return run.state


def random_events(count: int, profile: cProfile.Profile | None = None) -> float:
    """Feed so many random events to runs, one run after another; the seconds spent in `advance`."""
    chance = random.Random(1)
    run = _Run(_small(), {"x": 0, "log": []}, profile)
    spent = 0.0
    for _ in range(count):
        if run.state.finished:
            spent += run.spent
            run = _Run(_small(), {"x": 0, "log": []}, profile)
        run.feed(_any_event(run, chance))
    return spent + run.spent


def _small() -> GraphSpec:
    return GraphSpec(
        name="small",
        fields={"x": FieldSpec(reducer="add"), "log": FieldSpec(reducer="append")},
        nodes={
            "plan": FunctionNode(id="plan", to=("work",)),
            "work": FunctionNode(id="work", asks=("work:approve",), reads_inbox=True),
            "review": InterruptNode(
                id="review",
                question=InterruptSpec(
                    name="ok",
                    prompt="{x} so far: go on?",
                    response_schema=True,
                    requested_capability="work:approve",
                ),
            ),
            "pay": FunctionNode(id="pay"),
            "tell": FunctionNode(id="tell"),
        },
        edges=(
            Edge(sources=(START,), target="plan"),
            Edge(sources=("work",), target="review", gathers=True),
            Edge(sources=("review",), target="pay"),
            Edge(sources=("review",), target="tell"),
            Edge(sources=("pay", "tell"), target="plan", condition=When(equals={"x": 1})),
            Edge(sources=("pay",), target=END),
        ),
    )


class _Run:
    """A run, its clock, and the visits whose code runs."""

    def __init__(
        self,
        spec: GraphSpec,
        values: dict[str, Json],
        profile: cProfile.Profile | None = None,
    ) -> None:
        self.now = _BEGIN
        self.running: list[str] = []
        self.spent = 0.0
        self._profile = profile
        limits = Limits(max_parallel_visits=1000)
        self.state = new_run(run_id="r", spec=spec, limits=limits, values=values, now=self.now)
        self.feed(events.Started(now=self.now))

    def later(self) -> datetime:
        self.now += timedelta(milliseconds=10)
        return self.now

    def end(self, visit: str, outcome: VisitOutcome) -> None:
        self.feed(events.VisitEnded(now=self.later(), visit=visit, outcome=outcome))

    def feed(self, event: events.Event) -> None:
        if self._profile is not None:
            self._profile.enable()
        begun = thread_time()
        effects = advance(self.state, event)
        self.spent += thread_time() - begun
        if self._profile is not None:
            self._profile.disable()
        if isinstance(event, events.VisitEnded):
            self.running.remove(event.visit)
        for effect in effects:
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case RunNode(input=order):
                self.running.append(order.address)
            case StopNode(visit=visit, abandon=True) if visit in self.running:
                self.running.remove(visit)
            case _:
                pass


def _any_event(run: _Run, chance: random.Random) -> events.Event:
    now = run.later()
    drawn = chance.random()
    state = run.state
    if state.pause is not None and drawn < 0.5:
        return events.Resumed(now=now, actor="ann")
    if drawn < 0.02:
        return events.Paused(now=now, actor="ann")
    if drawn < 0.1:
        message = events.Message(message_id=f"m{now.timestamp()}", text="hurry", sender="ann")
        return events.MessageSent(now=now, message=message, signalled=True)
    if state.ledger.open and (drawn < 0.5 or not run.running):
        id_ = chance.choice(list(state.ledger.open))
        answers = {id_: {"approved": True}}
        return events.Responded(
            now=now, principal=_PERSON, answers=answers, schema_faults={id_: ()}
        )
    if not run.running:
        return events.Ticked(now=now)
    visit = chance.choice(run.running)
    node = state.visits[visit].node
    if node == "plan":
        sends = tuple(Send(node="work", item=n) for n in range(chance.randrange(1, 12)))
        return events.VisitEnded(now=now, visit=visit, outcome=Finished(sends=sends))
    if node == "work" and not state.visits[visit].questions.answers:
        asked = (
            Asked(
                question=InterruptSpec(
                    name="q", prompt="?", response_schema=True, requested_capability="work:approve"
                )
            ),
        )
        outcome = Interrupted(interrupts=asked, journal={"a": 1})
        return events.VisitEnded(now=now, visit=visit, outcome=outcome)
    return events.VisitEnded(now=now, visit=visit, outcome=Finished(patch={"x": 1, "log": [node]}))


if __name__ == "__main__":
    main()
