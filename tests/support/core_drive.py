"""Small graphs, and a run that a test drives by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias, TypeVar

import pytest
from pydantic import TypeAdapter

from abeyance.authoring.validation import faults_of
from abeyance.core import events, machine
from abeyance.core.effects import Effect, Publish, RunNode, StopNode, VisitInput
from abeyance.core.json import Json
from abeyance.core.ledger import Interrupt
from abeyance.core.outcome import (
    Asked,
    AttemptFailed,
    Failed,
    Finished,
    Interrupted,
    Send,
    Stopped,
    VisitOutcome,
)
from abeyance.core.policy import Principal
from abeyance.core.run_retry import retried
from abeyance.core.spec import (
    END,
    START,
    Always,
    Condition,
    Edge,
    Else,
    FieldSpec,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    InterruptNode,
    InterruptSpec,
    Join,
    Node,
    OnTimeout,
    Reducer,
    Route,
    Rule,
    SubgraphNode,
    When,
)
from abeyance.core.state import Ending, Limits, RunState, copied
from abeyance.core.terms import Terms
from abeyance.core.visit import Ready, Running, Visit, Waiting
from abeyance.errors import Refusal

T0 = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
CONTROL = ("runs:control",)
ADA = Principal(subject="ada", capabilities=CONTROL)
"""A person who may control runs, and approve nothing."""
ROOT = Principal(subject="root", capabilities=("*",))
"""A person who may do everything."""

SNAPSHOT: TypeAdapter[RunState] = TypeAdapter(RunState)

Sources: TypeAlias = str | tuple[str, ...] | list[str]
Ways = Iterable[Edge | tuple[Sources, str]]
E = TypeVar("E", bound=Effect)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def gate(
    id_: str,
    *,
    prompt: str = "Go on?",
    reason: Json = None,
    payload: Json = None,
    schema: Json = None,
    capability: str | None = None,
    timeout: float | None = None,
    on_timeout: OnTimeout | None = None,
    answer_to: str | None = None,
    terms: Terms | None = None,
) -> InterruptNode:
    question = InterruptSpec(
        name=id_,
        prompt=prompt,
        reason=reason,
        payload=payload,
        response_schema=schema,
        requested_capability=capability,
        timeout=timeout,
        on_timeout=on_timeout or Halt(),
        terms=terms,
    )
    return InterruptNode(id=id_, question=question, answer_to=answer_to)


def reader(id_: str = "work") -> FunctionNode:
    """Return a node whose code gets the queued messages."""
    return FunctionNode(id=id_, reads_inbox=True)


def edge(
    source: Sources,
    target: str,
    when: Mapping[str, Json] | Literal["else"] | None = None,
    join: Join = "all",
) -> Edge:
    """Return an edge. Sources in a list gather the items of a fan-out, even a list of one."""
    condition: Condition
    match when:
        case None:
            condition = Always()
        case "else":
            condition = Else()
        case _:
            condition = When(equals=when)
    gathers = isinstance(source, list)
    sources = (source,) if isinstance(source, str) else tuple(source)
    return Edge(sources=sources, target=target, condition=condition, join=join, gathers=gathers)


def graph(
    *nodes: str | Node,
    ways: Ways,
    routes: Iterable[Route] = (),
    rules: Iterable[Rule] = (),
    finally_: Iterable[str] = (),
    fields: Mapping[str, Reducer] | None = None,
    name: str = "g",
    before: Iterable[str] = (),
    after: Iterable[str] = (),
) -> GraphSpec:
    """Return a graph. A node that is only a name is a function; so is every finally node.

    `before` and `after` name the nodes with a static interrupt before or after them.
    """
    named = [FunctionNode(id=node, asks=()) if isinstance(node, str) else node for node in nodes]
    named += [
        FunctionNode(id=node, asks=()) for node in finally_ if node not in {n.id for n in named}
    ]
    reducers: Mapping[str, Reducer] = {"x": "last", "log": "append"} if fields is None else fields
    spec = GraphSpec(
        name=name,
        fields={name: FieldSpec(reducer=reducer) for name, reducer in reducers.items()},
        nodes={node.id: node for node in named},
        edges=tuple(way if isinstance(way, Edge) else edge(*way) for way in ways),
        routes=tuple(routes),
        rules=tuple(rules),
        finally_nodes=tuple(finally_),
        interrupt_before=tuple(before),
        interrupt_after=tuple(after),
    )
    assert faults_of(spec) == ()
    return spec


def chain(*nodes: str | Node, **kwargs: Any) -> GraphSpec:
    """Return a graph of the nodes, one after another."""
    names = [node if isinstance(node, str) else node.id for node in nodes]
    stops = [START, *names, END]
    return graph(*nodes, ways=pairwise(stops), **kwargs)


def nested(id_: str, spec: GraphSpec, **kwargs: Any) -> SubgraphNode:
    """Return a node that is a nested graph."""
    return SubgraphNode(id=id_, graph=spec, **kwargs)


def asked(
    name: str, process: str | None = None, *, at: datetime | None = None, **kwargs: Any
) -> Asked:
    """Return a question that code asks."""
    question = InterruptSpec(name=name, prompt=kwargs.pop("prompt", "Go on?"), **kwargs)
    return Asked(question=question, process=process, deadline=at)


def busy(*finally_: str) -> GraphSpec:
    """Return a graph in which two nodes and a question begin at once, and a third node follows."""
    return graph(
        FunctionNode(id="one", on_error=GoTo(node="next")),
        "two",
        "next",
        gate("ask"),
        ways=[(START, "one"), (START, "two"), (START, "ask"), ("one", "next")],
        finally_=finally_,
    )


def restored(state: RunState) -> RunState:
    """Return the run as another process reads it from its snapshot."""
    return SNAPSHOT.validate_json(written(state))


def written(state: RunState) -> bytes:
    """Return the snapshot of a run."""
    return SNAPSHOT.dump_json(state)


class Drive:
    """A run, its clock, and all its effects so far."""

    def __init__(
        self,
        spec: GraphSpec,
        *,
        values: Mapping[str, Json] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.now = T0
        self.effects: list[Effect] = []
        self.last: tuple[Effect, ...] = ()
        self.state = machine.new_run(
            run_id="r", spec=spec, limits=limits or Limits(), values=values or {}, now=T0
        )
        self.feed(events.Started)

    def copy(self) -> Self:
        """Return a copy of the run that can go on independently."""
        run = copy(self)
        run.state = copied(self.state)
        run.effects = [*self.effects]
        return run

    def seen(self) -> RunState:
        """Return a copy of the state, to compare it with a later one. The copies have equal
        `updated_at`, because that time does not tell whether the run has changed.
        """
        return replace(copied(self.state), updated_at=T0)

    # Events

    def feed(self, kind: type[events.Event], **fields: Any) -> None:
        """Feed an event of this kind to the run now."""
        self.last = machine.advance(self.state, kind(now=self.now, **fields))
        self.effects += self.last

    def end(self, kind: type[VisitOutcome], *, visit: str, **fields: Any) -> None:
        """End the code of a visit with this outcome now."""
        self.feed(events.VisitEnded, visit=visit, outcome=kind(**fields))

    def refused(self, kind: type[events.Event], **fields: Any) -> Refusal:
        """Check that an event is refused and changes nothing, and return the refusal."""
        event = kind(now=self.now, **fields)
        before = written(self.state)
        with pytest.raises(Refusal) as checked:
            machine.check(self.state, event)
        with pytest.raises(Refusal) as advanced:
            machine.advance(self.state, event)
        assert checked.value == advanced.value
        assert before == written(self.state)
        return advanced.value

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass, and tell the run."""
        self.wait(seconds)
        self.feed(events.Ticked)

    def wait(self, seconds: float) -> None:
        """Let time pass without telling the run."""
        self.now += timedelta(seconds=seconds)

    def finish(
        self,
        node: str,
        patch: Mapping[str, Json] | None = None,
        *,
        goto: str | None = None,
        routed: tuple[str, ...] = (),
        sends: Iterable[tuple[str, Json]] | None = None,
        fired: tuple[str, ...] = (),
        **fields: Any,
    ) -> None:
        """Let the oldest running visit of the node return."""
        items = None
        if sends is not None:
            items = tuple(Send(node=target, item=item) for target, item in sends)
        self.end(
            Finished,
            visit=self.visit(node).address,
            patch=patch or {},
            goto=goto,
            route_targets=routed,
            sends=items,
            fired_rules=fired,
            **fields,
        )

    def ask(self, node: str, *questions: str | Asked, **fields: Any) -> None:
        """Let the oldest running visit of the node ask people."""
        each = tuple(asked(q) if isinstance(q, str) else q for q in questions)
        self.end(Interrupted, visit=self.visit(node).address, interrupts=each, **fields)

    def fail(self, node: str, message: str = "it broke", **fields: Any) -> None:
        """Let the oldest running visit of the node fail."""
        about = {"code": "node_failed", "message": message, **fields}
        self.end(Failed, visit=self.visit(node).address, **about)

    def retry(self, node: str, pause: float = 1.0, **fields: Any) -> None:
        """Let an attempt at the oldest running visit of the node fail, with a retry to come."""
        visit = self.visit(node)
        attempts = visit.checkpoint.attempts.with_failed(0.0)
        about = {"message": "it broke", "attempts": attempts, "pause": pause}
        self.end(AttemptFailed, visit=visit.address, **{**about, **fields})

    def stopped(self, node: str, journal: Json = None, **fields: Any) -> None:
        """Let the oldest running visit of the node stop, as the run has asked."""
        self.end(Stopped, visit=self.visit(node).address, journal=journal, **fields)

    def answer(self, name: str, value: Json = None, **fields: Any) -> None:
        """Answer the open interrupt of this name as Ada."""
        self.respond({self.open(name).id: value}, **fields)

    def says(self, who: Principal, name: str, value: Json = True, **fields: Any) -> None:
        """Answer the open interrupt of this name as `who`."""
        self.answer(name, value, principal=who, **fields)

    def respond(self, answers: Mapping[str, Json], **fields: Any) -> None:
        """Answer interrupts by their ids as Ada."""
        self.feed(events.Responded, **self.response(answers, **fields))

    def refused_answer(self, name: str, value: Json = None, **fields: Any) -> Refusal:
        """Check that Ada's answer to the open interrupt of this name is refused."""
        return self.refused_response({self.open(name).id: value}, **fields)

    def refused_response(self, answers: Mapping[str, Json], **fields: Any) -> Refusal:
        """Check that Ada's answers to interrupts are refused."""
        return self.refused(events.Responded, **self.response(answers, **fields))

    def response(self, answers: Mapping[str, Json], **fields: Any) -> dict[str, Any]:
        """Return the fields of a response by Ada that fits every schema."""
        fitting: dict[str, Any] = {"principal": ADA, "schema_faults": dict.fromkeys(answers, ())}
        return {**fitting, "answers": answers, **fields}

    def send(
        self, message_id: str, text: str = "hello", *, signalled: bool = False, **about: Any
    ) -> None:
        """Send a message as Ada."""
        message = events.Message(message_id=message_id, text=text, **{"sender": "ada", **about})
        self.feed(events.MessageSent, message=message, signalled=signalled)

    def rejected(self) -> list[tuple[str, str]]:
        """Return id and code of every rejected message."""
        return [(note.message_id, note.code) for note in self.state.mailbox.rejected]

    def take(self, node: str, upto: int = 1) -> list[str]:
        """Let the running visit of a node take messages up to number `upto`; return all taken ids."""
        address = self.visit(node).address
        self.feed(events.MessagesTaken, visit=address, upto=upto)
        return [message.message_id for message in self.state.visits[address].inbox.taken]

    def pause(self, **fields: Any) -> None:
        """Pause the run as Ada."""
        self.feed(events.Paused, **{"actor": "ada", **fields})

    def resume(self, **fields: Any) -> None:
        """Resume the run as Ada."""
        self.feed(events.Resumed, **{"actor": "ada", **fields})

    def cancel(self, **fields: Any) -> None:
        """Cancel the run as Bob."""
        self.feed(events.CancelRequested, **{"actor": "bob", **fields})

    def edit(self, who: Principal, **patch: Json) -> None:
        """Set fields of the values as `who`."""
        version = self.state.root.version
        self.feed(events.ValuesEdited, principal=who, patch=patch, version=version)

    def move(self, who: Principal, seconds: float | None, **fields: Any) -> None:
        """Move the deadline of the oldest open interrupt as `who`, or remove it."""
        deadline = None if seconds is None else at(seconds)
        id_ = next(iter(self.state.ledger.open))
        about = {"interrupt_id": id_, "moves": True, "deadline": deadline, **fields}
        self.feed(events.DeadlineEdited, principal=who, **about)

    def start_again(self, who: Principal = ROOT, **fields: Any) -> None:
        """Retry the ended run as `who`: it starts again from its snapshot."""
        given: dict[str, Any] = {"patch": {}, "renames": {}, "versions": ("v1", "v2"), **fields}
        again = retried(self.state, now=self.now, principal=who, **given)
        assert restored(again) == again
        self.state = again
        self.feed(events.Restored)

    def read_again(self) -> None:
        """Continue the run from its snapshot, as another process does."""
        self.state = restored(self.state)

    # The state now

    @property
    def ending(self) -> Ending:
        """The ending of the run."""
        assert self.state.ending is not None
        return self.state.ending

    @property
    def error(self) -> tuple[str, str, str | None]:
        """Code, message and address of the error that made the run fail."""
        assert self.status == "failed"
        assert self.ending.error is not None
        assert self.ending.reason == self.ending.error.message
        return self.ending.error.code, self.ending.error.message, self.ending.error.address

    @property
    def values(self) -> Mapping[str, Json]:
        return self.state.root.values

    @property
    def status(self) -> str:
        return str(self.state.status)

    @property
    def running(self) -> list[str]:
        return [visit.node for visit in self.state.visits_in(Running)]

    @property
    def ready(self) -> list[str]:
        return [visit.node for visit in self.state.visits_in(Ready)]

    @property
    def waiting(self) -> list[str]:
        return [visit.node for visit in self.state.visits_in(Waiting)]

    def visit(self, node: str) -> Visit:
        """Return the oldest running visit of a node; `node:2` is its second visit."""
        return next(
            v
            for v in self.state.visits_in(Running)
            if v.node == node or v.address.endswith(f";node:{node}")
        )

    def open(self, name: str) -> Interrupt:
        """Return the oldest open interrupt of a name."""
        return next(i for i in self.state.ledger.open.values() if i.name == name)

    @property
    def asking(self) -> list[tuple[str, str]]:
        """Name and address of every open interrupt, oldest first."""
        return [(each.name, each.address) for each in self.state.ledger.open.values()]

    def settled(self, name: str) -> Interrupt:
        """Return the latest settled interrupt of a name."""
        named = [i for i in self.state.ledger.settled.values() if i.name == name]
        return max(reversed(named), key=lambda entry: entry.since)

    # The effects so far

    def wanted(self, kind: type[E]) -> list[E]:
        """Return every effect of a kind so far."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def started(self) -> list[str]:
        """The nodes whose code the run has started, in order."""
        return [given.node for given in self._inputs("visit")]

    @property
    def decided(self) -> list[str]:
        """The nodes whose route functions the run has called, in order."""
        return [given.node for given in self._inputs("routes")]

    @property
    def stops(self) -> list[tuple[str, str, bool]]:
        """Visit, reason and whether it is abandoned, of every stop."""
        return [(stop.visit, stop.reason, stop.abandon) for stop in self.wanted(StopNode)]

    def facts(self, type_: str) -> list[Publish]:
        """Return the published facts of a type."""
        return [fact for fact in self.wanted(Publish) if fact.type == type_]

    def orders(self, node: str) -> list[VisitInput]:
        """Return the input of each start of a node's code."""
        return [given for given in self._inputs("visit") if given.node == node]

    def decisions(self) -> list[VisitInput]:
        """Return the input of each call of route functions."""
        return self._inputs("routes")

    def _inputs(self, kind: str) -> list[VisitInput]:
        return [each.input for each in self.wanted(RunNode) if each.input.kind == kind]
