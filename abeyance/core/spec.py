"""What a person is asked, and what is done when nobody answers, or when something fails.

A question here is as its author declared it. The ledger holds it as it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, assert_never

from abeyance.core.json import Json, sha256

Kind: TypeAlias = Literal[
    "question", "approval", "static", "error", "outcome", "rule", "elicitation"
]
"""What asks: code, a gated tool call, a look at the values, a failed visit, a call of which nobody knows
what became of it, a rule, an MCP server.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """When a deadline passes: the run ends `halted`."""

    kind: Literal["halt"] = "halt"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTo:
    """Run this node of the same scope with the values as they are, in place of what would follow."""

    kind: Literal["goto"] = "goto"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """When a deadline passes: this answer is given, by `timeout`."""

    kind: Literal["default"] = "default"
    answer: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """When a visit fails: the run fails."""

    kind: Literal["fail"] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRun:
    """When a pause's deadline passes: the run goes on."""

    kind: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHuman:
    """When a visit fails: a person says whether to try again, to skip it with a patch, or to fail."""

    kind: Literal["interrupt"] = "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnErrorToCaller:
    """When a visit for a tool call fails: the failure is its result, which the model sees."""

    kind: Literal["tell"] = "tell"


OnTimeout: TypeAlias = Halt | GoTo | Default
OnPauseTimeout: TypeAlias = ResumeRun | Halt | GoTo
OnError: TypeAlias = Fail | GoTo | AskHuman | ReturnErrorToCaller


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptSpec:
    """An interrupt before it is opened: what a person is asked, as a template of the values.

    `timeout` is in seconds; None waits for ever. `response_schema` None accepts any JSON value.
    """

    name: str
    prompt: str
    reason: Json = None
    payload: Json = None
    response_schema: Json = None
    requested_capability: str | None = None
    timeout: float | None = None
    on_timeout: OnTimeout = field(default_factory=Halt)


START = "START"
"""The source of the edges by which a run enters its graph."""

END = "END"
"""The target of an edge that ends its branch."""

Reducer: TypeAlias = Literal["last", "append", "merge", "add", "union"]
Join: TypeAlias = Literal["all", "arrived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field of the values: how patches merge into it, and of which kinds of JSON they are.

    No `kinds`: of any, or nobody knows.
    """

    reducer: Reducer = "last"
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionNode:
    """A node that is a Python function. Times are in seconds.

    `retries` counts the attempts after the first. `to` names the targets that a returned `Goto` or
    `Send` may have. `reads_inbox`: it is handed the messages that are there when it starts. `guarded`: it
    is run again, rather than left, while messages for it are unread. `asks` are the capabilities that
    its code may ask for, as names or as patterns such as `tenant:*:approve`.
    """

    kind: Literal["function"] = "function"
    id: str
    description: str = ""
    timeout: float | None = None
    retries: int = 3
    heartbeat: float = 5.0
    local: bool = False
    on_error: OnError = field(default_factory=Fail)
    to: tuple[str, ...] = ()
    reads_inbox: bool = False
    guarded: bool = False
    asks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptNode:
    """A node that asks a person. The answer is written to the field `answer_to`, if that is given."""

    kind: Literal["interrupt"] = "interrupt"
    id: str
    question: InterruptSpec
    answer_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphNode:
    """A node that is a graph of its own, walked inside the run in a scope of its own.

    `input` and `output` map fields of the target to fields of the source; None means all that both
    have. `defaults` are the values with which the nested graph begins where `input` says nothing.

    `agent`: the graph is that of an agent. It is then handed all values around it, with the item of a
    fan-out and what a person said, in its field `input`. `result` is the field of it that is the result
    of a tool call. The fields that `remembers` names begin as the last visit of the node left them.
    `asks` are the capabilities that may be asked for before the graph is entered.
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
    """A way from one source, or a join of several, to a target.

    `gathers`: it was declared from a list, which makes it a join also where the list has one source:
    behind a fan-out such an edge waits for every item.
    """

    sources: tuple[str, ...]
    target: str
    condition: Condition = field(default_factory=Always)
    join: Join = "all"
    gathers: bool = False

    @property
    def is_join(self) -> bool:
        """Whether tokens meet here, rather than each entering the target."""
        return self.gathers or len(self.sources) > 1

    @property
    def key(self) -> str:
        """A name for the edge that is stable as long as its graph is."""
        return f"{'+'.join(self.sources)}>{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way that user code decides: a function named `<source>.<name>` picks among the targets."""

    source: str
    name: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """A rule fires after a visit of `node` (None: of any) if every path of the values has its value."""

    kind: Literal["matches"] = "matches"
    node: str | None = None
    equals: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """A rule fires if its CLIPS text does: that is evaluated where the code of nodes runs.

    `node` None: it is looked at after a visit of any node.
    """

    kind: Literal["clips"] = "clips"
    text: str
    node: str | None = None


RuleCondition: TypeAlias = Matches | Clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A rule asks a person, under its own name, before the visit that fired it leads on."""

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
    """A rule runs the node again, as a new visit."""

    kind: Literal["retry"] = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """A rule runs several nodes, each as a branch of its own."""

    kind: Literal["parallel"] = "parallel"
    nodes: tuple[str, ...]


Decision: TypeAlias = HaltRun | Retry | GoTo | Parallel
"""What a rule does in place of the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assert:
    """A rule adds a fact, in CLIPS text, that other rules may look at in the same evaluation."""

    kind: Literal["assert"] = "assert"
    fact: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retract:
    """A rule takes a fact away, in CLIPS text, for the rest of the evaluation."""

    kind: Literal["retract"] = "retract"
    fact: str


RuleAction: TypeAlias = Ask | Assert | Retract | Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is to be done after a visit for which a condition holds (Stargraph's rules)."""

    id: str
    condition: RuleCondition
    actions: tuple[RuleAction, ...]

    def targets(self, source: str) -> frozenset[str]:
        """The nodes that may run because the rule fired after a visit of `source`."""
        found: set[str] = set()
        for action in self.actions:
            match action:
                case GoTo(node=node) | Ask(question=InterruptSpec(on_timeout=GoTo(node=node))):
                    found.add(node)
                case Parallel(nodes=nodes):
                    found.update(nodes)
                case Retry():
                    found.add(source)
                case Ask() | HaltRun() | Assert() | Retract():
                    pass
                case _:
                    assert_never(action)
        return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def version(self) -> str:
        """Twelve hex digits that change whenever anything in the graph does."""
        return sha256(asdict(self)).removeprefix("sha256:")[:12]

    @property
    def lets_values_be_edited(self) -> bool:
        """Whether a question of the run itself may be answered with fields of the values."""
        return bool(self.interrupt_before or self.interrupt_after) or any(
            not isinstance(node, InterruptNode) and isinstance(node.on_error, AskHuman)
            for node in self.nodes.values()
        )

    def edges_from(self, source: str) -> tuple[Edge, ...]:
        """The edges that `source` may fire."""
        return tuple(edge for edge in self.edges if source in edge.sources)

    def routes_from(self, source: str) -> tuple[Route, ...]:
        """The routes that are decided when `source` finishes."""
        return tuple(route for route in self.routes if route.source == source)

    def has_clips_on(self, node: str) -> bool:
        """Whether a rule that is looked at after a visit of `node` needs CLIPS."""
        return any(isinstance(rule.condition, Clips) for rule in self.rules_on(node))

    def rules_on(self, node: str) -> tuple[Rule, ...]:
        """The rules that are looked at after a visit of `node`: none where nothing follows it."""
        if node not in self.nodes or node in self.finally_nodes:
            return ()
        return tuple(rule for rule in self.rules if rule.condition.node in (None, node))

    @property
    def questions(self) -> tuple[InterruptSpec, ...]:
        """Every question that the graph asks people by itself: those of its nodes and its rules, and
        of the graphs in it.
        """
        actions = [action for rule in self.rules for action in rule.actions]
        asking = [*self.nodes.values(), *actions]
        own = [each.question for each in asking if isinstance(each, InterruptNode | Ask)]
        nested = [node.graph for node in self.nodes.values() if isinstance(node, SubgraphNode)]
        return (*own, *(question for graph in nested for question in graph.questions))

    def asks_of(self, node: str) -> tuple[str, ...]:
        """The capabilities that a node says its questions ask for."""
        match self.nodes.get(node):
            case InterruptNode(question=InterruptSpec(requested_capability=str() as capability)):
                return (capability,)
            case FunctionNode(asks=asks) | SubgraphNode(asks=asks):
                return asks
            case _:
                return ()

    @property
    def guarded_by(self) -> tuple[str, ...]:
        """Every capability that anything in the graph can ask for, sorted; patterns as they are written.

        Who changes what was approved must be allowed to approve it: to change the course of a run takes
        all of these, for its whole life.
        """
        found = {question.requested_capability for question in self.questions}
        for name, node in self.nodes.items():
            found.update(self.asks_of(name))
            if isinstance(node, SubgraphNode):
                found.update(node.graph.guarded_by)
        return tuple(sorted(name for name in found if name is not None))

    def behind_questions(self) -> frozenset[str]:
        """The names of the nodes, and of the graphs in it with theirs, that can be reached only or also
        by way of a question.
        """
        asking = [name for name in self.nodes if self._asks(name)]
        behind: set[str] = set()
        while asking:
            found = self.successors(asking.pop()) - behind
            behind |= found
            asking += found
        for name, node in self.nodes.items():
            if isinstance(node, SubgraphNode):
                behind |= node.graph.every_name if name in behind else node.graph.behind_questions()
        return frozenset(behind)

    @property
    def every_name(self) -> frozenset[str]:
        """Its own name, and those of all nodes, also of the graphs in it, and of these."""
        inner = [node.graph for node in self.nodes.values() if isinstance(node, SubgraphNode)]
        return frozenset({self.name, *self.nodes}).union(*(graph.every_name for graph in inner))

    def _asks(self, name: str) -> bool:
        node = self.nodes[name]
        by_rule = any(isinstance(act, Ask) for rule in self.rules_on(name) for act in rule.actions)
        match node:
            case InterruptNode():
                return True
            case SubgraphNode(graph=graph):
                return by_rule or bool(node.asks or graph.questions or graph.guarded_by)
            case FunctionNode():
                return by_rule or bool(node.asks)
            case _:
                assert_never(node)

    def successors(self, source: str) -> frozenset[str]:
        """Every node that may run because of `source`, in whatever way."""
        found = {edge.target for edge in self.edges_from(source)}
        found.update(target for route in self.routes_from(source) for target in route.targets)
        found.update(target for rule in self.rules_on(source) for target in rule.targets(source))
        match self.nodes.get(source):
            case FunctionNode(to=to, on_error=on_error):
                found.update(to)
                if isinstance(on_error, GoTo):
                    found.add(on_error.node)
            case SubgraphNode(on_error=GoTo(node=node)):
                found.add(node)
            case InterruptNode(question=InterruptSpec(on_timeout=GoTo(node=node))):
                found.add(node)
            case _:
                pass
        return frozenset(found - {END})
