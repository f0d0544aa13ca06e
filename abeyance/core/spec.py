"""The declared graph: nodes, edges, rules, questions, and what happens on timeouts and errors.

A question here is as its author declared it. The ledger holds it as it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, assert_never

from abeyance.core.address import TargetNode
from abeyance.core.bounds import Amounts, RetryPolicy
from abeyance.core.json import Json, fill_by, sha256, size
from abeyance.core.terms import PLAIN, Span, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """At the deadline the run ends as `halted`."""

    kind: Literal["halt"] = "halt"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTo:
    """Run this node of the same scope with the current values, instead of the nodes that would follow."""

    kind: Literal["goto"] = "goto"
    node: TargetNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """At the deadline this answer is given, by `timeout`."""

    kind: Literal["default"] = "default"
    answer: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """A failed visit fails its graph: the run, or the visit of a nested graph."""

    kind: Literal["fail"] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRun:
    """At the deadline of a pause the run resumes."""

    kind: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHuman:
    """For a failed visit a person decides: try again, skip it with a patch, or fail."""

    kind: Literal["interrupt"] = "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnErrorToCaller:
    """The failure of a tool call is its result, which the model sees."""

    kind: Literal["tell"] = "tell"


OnTimeout: TypeAlias = Halt | GoTo | Default
OnPauseTimeout: TypeAlias = ResumeRun | Halt | GoTo
OnError: TypeAlias = Fail | GoTo | AskHuman | ReturnErrorToCaller


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptSpec:
    """A question to a person, before it is filled with values and opened.

    `preview` is what a call would do. `timeout` None never expires, no `response_schema` takes any JSON.
    `response_type` is the name of the type of an answer to a question that code asks. `rewrites`: what
    the type of an answer writes can differ from what was sent.
    """

    name: str
    prompt: str
    reason: Json = None
    payload: Json = None
    preview: Json = None
    response_schema: Json = None
    requested_capability: str | None = None
    timeout: Span | None = None
    on_timeout: OnTimeout = field(default_factory=Halt)
    terms: Terms | None = None
    response_type: str | None = None
    rewrites: bool = False

    @property
    def capability_pattern(self) -> str | None:
        """The requested capability with `*` for each `{field}`, which is filled when it is opened."""
        return self.requested_capability and fill_by(self.requested_capability, lambda _: "*")

    @property
    def escalates_to(self) -> tuple[str, ...]:
        later = self.effective_terms.escalate
        return tuple(each.requested_capability for each in later if each.requested_capability)

    @property
    def effective_terms(self) -> Terms:
        return self.terms or PLAIN


START = "START"
"""The source of the edges by which a run enters its graph."""
END = "END"
"""The target of an edge that ends its branch."""

Reducer: TypeAlias = Literal["last", "append", "merge", "add", "union", "start"]
Join: TypeAlias = Literal["all", "arrived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field of the values: its reducer, and the kinds of JSON that it takes (none: any, or unknown).

    `rewrites`: what its type writes can differ from what people send.
    """

    reducer: Reducer = "last"
    kinds: tuple[str, ...] = ()
    rewrites: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionNode:
    """A node that is a Python function. Times are in seconds.

    `timeout` bounds one attempt. `to` names the targets that a returned `Goto` or `Send` may have.
    `reads_inbox`: it receives the messages that are unread when it starts. `guarded`: it runs again,
    rather than being left, while messages for it are unread. `asks` are the capabilities that its code
    may ask for, as names or patterns such as `tenant:*:approve`.
    """

    kind: Literal["function"] = "function"
    id: str
    description: str = ""
    timeout: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    heartbeat: float = 5.0
    local: bool = False
    on_error: OnError = field(default_factory=Fail)
    to: tuple[str, ...] = ()
    reads_inbox: bool = False
    guarded: bool = False
    asks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptNode:
    """A node that asks a person. The answer is written to the field `answer_to`, if set."""

    kind: Literal["interrupt"] = "interrupt"
    id: str
    question: InterruptSpec
    answer_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphNode:
    """A node that is a graph of its own, walked inside the run in a scope of its own.

    `input` and `output` map fields of the target to fields of the source; None maps all that both have.
    `defaults` are initial values of the nested graph for what `input` does not set.

    `agent`: the graph is that of an agent. Its field `input` then receives all outer values, with the
    item of a fan-out. `result` is its field with the result of a tool call. The fields in `remembers`
    start as the last visit of the node left them. `asks` are the capabilities that may be asked for
    before the graph is entered.
    """

    kind: Literal["subgraph"] = "subgraph"
    id: str
    graph: GraphSpec
    description: str = ""
    input: Mapping[str, str] | None = None
    output: Mapping[str, str] | None = None
    defaults: Mapping[str, Json] = field(default_factory=dict)
    on_error: OnError = field(default_factory=Fail)
    agent: bool = False
    result: str | None = None
    remembers: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()


Node: TypeAlias = FunctionNode | InterruptNode | SubgraphNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Always:
    """The edge fires whenever its source finishes."""

    kind: Literal["always"] = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The edge fires if every path (dots walk mappings) of the merged values has its value."""

    kind: Literal["when"] = "when"
    equals: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Else:
    """The edge fires if no other condition of its source does."""

    kind: Literal["else"] = "else"


Condition: TypeAlias = Always | When | Else


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge from one source, or a join of several, to a target.

    `gathers`: it was declared from a list, which makes it a join even with one source: behind a fan-out
    such an edge waits for every item.
    """

    sources: tuple[str, ...]
    target: str
    condition: Condition = field(default_factory=Always)
    join: Join = "all"
    gathers: bool = False

    @property
    def is_join(self) -> bool:
        """Return whether tokens meet here, rather than each entering the target."""
        return self.gathers or len(self.sources) > 1

    @property
    def key(self) -> str:
        return f"{'+'.join(self.sources)}>{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A choice made by user code: the function `<source>.<name>` picks among the targets."""

    source: str
    name: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Fires after a visit of `node` (None: of any) if every path of the values has its value."""

    kind: Literal["matches"] = "matches"
    node: str | None = None
    equals: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """Fires if its CLIPS text does, which is evaluated where the code of nodes runs.

    `node` None: it is evaluated after a visit of any node.
    """

    kind: Literal["clips"] = "clips"
    text: str
    node: str | None = None


RuleCondition: TypeAlias = Matches | Clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A rule asks a person, under its own name, before the visit that fired it is routed."""

    kind: Literal["interrupt"] = "interrupt"
    question: InterruptSpec
    answer_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRun:
    """A rule ends the run as `halted`."""

    kind: Literal["halt"] = "halt"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A rule runs the node again, or `node`, as a new visit, which begins after `backoff` seconds."""

    kind: Literal["retry"] = "retry"
    node: TargetNode | None = None
    backoff: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """A rule runs several nodes, each as a branch of its own."""

    kind: Literal["parallel"] = "parallel"
    nodes: tuple[TargetNode, ...]


Decision: TypeAlias = HaltRun | Retry | GoTo | Parallel
"""Decision of a rule, in place of the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assert:
    """A rule adds a fact, in CLIPS text, for other rules of the same evaluation."""

    kind: Literal["assert"] = "assert"
    fact: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retract:
    """A rule removes a fact, in CLIPS text, for the rest of the evaluation."""

    kind: Literal["retract"] = "retract"
    fact: str


RuleAction: TypeAlias = Ask | Assert | Retract | Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Actions after a visit for which a condition holds (Stargraph's rules)."""

    id: str
    condition: RuleCondition
    actions: tuple[RuleAction, ...]

    def targets(self, source: str) -> frozenset[str]:
        """Return the nodes that may run because the rule fired after a visit of `source`."""
        targets: set[str] = set()
        for action in self.actions:
            match action:
                case GoTo(node=node) | Ask(question=InterruptSpec(on_timeout=GoTo(node=node))):
                    targets.add(node)
                case Parallel(nodes=nodes):
                    targets.update(nodes)
                case Retry(node=again):
                    targets.add(source if again is None else again)
                case Ask() | HaltRun() | Assert() | Retract():
                    pass
                case _:
                    assert_never(action)
        return frozenset(targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpec:
    """What a graph and the graphs in it may use before the `question` is asked."""

    limits: Amounts
    question: InterruptSpec


# Without slots, because it keeps what it computes.
@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """A graph. Nodes are in order of declaration; `open_values` lets patches add any field."""

    name: str
    description: str = ""
    fields: Mapping[str, FieldSpec] = field(default_factory=dict)
    open_values: bool = False
    input_schema: Json = None
    nodes: Mapping[str, Node] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    finally_nodes: tuple[str, ...] = ()
    interrupt_before: tuple[str, ...] = ()
    interrupt_after: tuple[str, ...] = ()
    budget: BudgetSpec | None = None

    @property
    def version(self) -> str:
        """Twelve hex digits that change whenever anything in the graph does."""
        return self._hash_and_size[0].removeprefix("sha256:")[:12]

    @property
    def size(self) -> int:
        """The bytes of the graph as it is sent."""
        return self._hash_and_size[1]

    @cached_property
    def _hash_and_size(self) -> tuple[str, int]:
        plain = asdict(self)
        return sha256(plain), size(plain)

    def edges_from(self, source: str) -> tuple[Edge, ...]:
        """Return the edges that `source` may fire."""
        return self._edges_by_source.get(source, ())

    @cached_property
    def _edges_by_source(self) -> Mapping[str, tuple[Edge, ...]]:
        found: dict[str, tuple[Edge, ...]] = {}
        for edge in self.edges:
            found.update({name: (*found.get(name, ()), edge) for name in edge.sources})
        return found

    def routes_from(self, source: str) -> tuple[Route, ...]:
        """Return the routes that are decided when `source` finishes."""
        return tuple(route for route in self.routes if route.source == source)

    def routed_from(self, source: str) -> tuple[str, ...]:
        """Return the nodes that the routes of `source` may choose."""
        return tuple(target for route in self.routes_from(source) for target in route.targets)

    def declared_by(self, name: str) -> tuple[str, ...]:
        """Return the nodes that the code of a node may choose itself."""
        node = self.nodes.get(name)
        return node.to if isinstance(node, FunctionNode) else ()

    def targets_of(self, name: str) -> tuple[str, ...]:
        """Return the nodes that the code of a node, or one of its routes, may choose."""
        return (*self.declared_by(name), *self.routed_from(name))

    def has_clips_on(self, node: str) -> bool:
        """Return whether a rule that is evaluated after a visit of `node` needs CLIPS."""
        return any(isinstance(rule.condition, Clips) for rule in self.rules_on(node))

    def rules_on(self, node: str) -> tuple[Rule, ...]:
        """Return the rules that are evaluated after a visit of `node`: none after a finally node."""
        if node not in self.nodes or node in self.finally_nodes:
            return ()
        return tuple(rule for rule in self.rules if rule.condition.node in (None, node))

    @property
    def questions(self) -> tuple[InterruptSpec, ...]:
        """Every question that the graph declares, with its nodes, its rules, and the graphs in it."""
        inner = (each.graph for each in self.nodes.values() if isinstance(each, SubgraphNode))
        return (*self.own_questions, *(each for graph in inner for each in graph.questions))

    @property
    def own_questions(self) -> tuple[InterruptSpec, ...]:
        """The questions that the graph declares, without those in nested ones."""
        budget = () if self.budget is None else (self.budget.question,)
        return (*self._of_nodes_and_rules, *budget)

    @property
    def _of_nodes_and_rules(self) -> tuple[InterruptSpec, ...]:
        asking = (*self.nodes.values(), *(each for rule in self.rules for each in rule.actions))
        return tuple(each.question for each in asking if isinstance(each, InterruptNode | Ask))

    @property
    def question_names(self) -> frozenset[str]:
        """The names under which nodes and rules of the graph ask, without those in nested ones."""
        return frozenset(each.name for each in self._of_nodes_and_rules)

    def asks_of(self, node: str) -> tuple[str, ...]:
        """Return the capabilities that a node declares for its questions."""
        match self.nodes.get(node):
            case InterruptNode(question=InterruptSpec(capability_pattern=str() as capability)):
                return (capability,)
            case FunctionNode(asks=asks) | SubgraphNode(asks=asks):
                return asks
            case _:
                return ()

    @property
    def guarded_by(self) -> tuple[str, ...]:
        """Every capability that anything in the graph can ask for, sorted, including patterns: who may
        not approve everything may not change the course of a run, for its whole life.
        """
        asking = ((each.capability_pattern, *each.escalates_to) for each in self.questions)
        names = {name for each in asking for name in each}
        for name, node in self.nodes.items():
            inner = node.graph.guarded_by if isinstance(node, SubgraphNode) else ()
            names.update(self.asks_of(name), inner)
        return tuple(sorted(name for name in names if name is not None))

    def successors(self, source: str) -> frozenset[str]:
        """Return every node that may run because of `source`."""
        targets = {edge.target for edge in self.edges_from(source)}
        targets.update(self.targets_of(source))
        targets.update(target for rule in self.rules_on(source) for target in rule.targets(source))
        match self.nodes.get(source):
            case FunctionNode(on_error=GoTo(node=node)) | SubgraphNode(on_error=GoTo(node=node)):
                targets.add(node)
            case InterruptNode(question=InterruptSpec(on_timeout=GoTo(node=node))):
                targets.add(node)
            case _:
                pass
        return frozenset(targets - {END})
