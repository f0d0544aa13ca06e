"""Effects that a run requests: a closed union, carried out by the driver of the core.

An effect is complete: it carries everything needed to execute it, as of the time it was decided,
because the run may have moved on by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from abeyance.core.address import Address
from abeyance.core.bounds import Attempts, RetryPolicy
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.ledger import Answerer
from abeyance.core.outcome import Call
from abeyance.core.spec import Rule

StopReason: TypeAlias = Literal["pause", "rotation", "ending", "worker-started"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitInput:
    """Input of a visit's code, wherever it runs.

    `kind`: run the visit's code, or only the route functions and rules of a node without code.
    `execution` tells this run from an earlier one with the same id; the driver fills it in, and for a
    retried run the `origin`: the execution before all retries. `graph` is the graph of the node, and the
    nodes of `path` lead to it from the run's own. `routes` names the route functions that the pinned
    graph has for the node; `rules` are those to evaluate after the visit, if any has CLIPS text. `asks`
    are the capabilities that the node may ask for. `first_address` is what other services know this visit
    by, if not its address.

    `activation` counts the starts of this visit, `attempts` those that failed since it was first started
    or answered. `answers` are those of the scope, `own_answers` those to the visit's own questions, by
    key. An answer with an entry in `shown_hashes` counts only if the question still shows the same.
    `answerers` are those who answered last, by the names of the questions, with the votes of those that
    took several. `interrupted`: the visit has asked before, and stored `user_state`. `item` is that of a
    fan-out, `results` are those gathered at the join before the node. `inbox` are the messages that the
    visit has taken. `targets` are the nodes that its code and its routes may choose, by the graph that
    the run was started with. `outcome` is the run's, for a finally node. `call` is the tool call, if the
    visit is one. `approver` is who approved it. `blocked_by` is the code of the reason that blocks the
    visit so far: while it holds, the driver tries again, and reports only a change. The ids of its own
    questions follow from `salt` and from `ordinals`, which number the repeated questions, by key.
    `metered`: its use counts towards a budget. `answered` are the fields with an answer that no code has
    used yet.
    """

    kind: Literal["visit", "routes"] = "visit"
    run_id: str
    execution: str = ""
    origin: str = ""
    path: tuple[str, ...] = ()
    graph: str
    node: str
    address: str
    first_address: str = ""
    values: Mapping[str, Json]
    answers: Mapping[str, Json] = field(default_factory=dict)
    own_answers: Mapping[str, Json] = field(default_factory=dict)
    shown_hashes: Mapping[str, str] = field(default_factory=dict)
    answerers: Mapping[str, Answerer] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    activation: int = 1
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    attempts: Attempts = field(default_factory=Attempts)
    timeout: float | None = None
    local: bool = False
    journal: Json = None
    user_state: Json = None
    interrupted: bool = False
    item: Json = None
    results: Json = None
    inbox: tuple[Message, ...] = ()
    outcome: str | None = None
    call: Call | None = None
    approver: Mapping[str, Json] = field(default_factory=dict)
    routes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    blocked_by: str | None = None
    salt: str = ""
    ordinals: Mapping[str, int] = field(default_factory=dict)
    metered: bool = False
    answered: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The run's own graph."""
        return Address.parse(self.address).segments[0].id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNode:
    """Run a visit's code, or its routes; `VisitEnded` reports the outcome.

    `heartbeat` is the maximum number of seconds between heartbeats.
    """

    input: VisitInput
    heartbeat: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Stop a visit's code. `abandon`: do not wait for its outcome."""

    visit: str
    reason: StopReason
    abandon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Publish an event. It never contains an answer. `number` counts the events of a run.

    `audit` is what the audit alone adds to the event: the content of a question, its answer and the
    capability that the answer takes, the text of a message, or the values that a person has set.
    """

    number: int
    time: datetime
    type: str
    address: str | None
    actor: str | None
    data: Mapping[str, Json]
    audit: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """More visits are ready than one workflow task may send: start another task soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Complete the workflow, unless an event in the same task kept the run open."""


Effect: TypeAlias = RunNode | StopNode | Publish | Yield | Finish
