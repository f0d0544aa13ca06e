"""`Graph`: plain Python functions as nodes, and edges between them.

Declarations may come in any order. `build()` checks all of them, and returns the frozen `GraphSpec` to
which a run is pinned or raises one GraphError with every fault.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Never, TypeVar, Unpack, overload

from pydantic import BaseModel

from abeyance.authoring import compiler, rules
from abeyance.authoring.actions import ActionForm
from abeyance.authoring.callables import NodeCode, code_of, reads_inbox, summary
from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.authoring.gone import faults_of_gone
from abeyance.authoring.lines import (
    Lines,
    subjects_of_condition,
    subjects_of_edge,
    subjects_of_node,
)
from abeyance.authoring.retired import RetiredNode, RetiredNodes
from abeyance.authoring.retries import (
    ANY_ERROR,
    DEFAULT_BACKOFF,
    Backoff,
    RetryOn,
    exceptions,
    retry_policy,
)
from abeyance.authoring.terms import TermsOptions, terms_of
from abeyance.core.json import Json
from abeyance.core.spec import (
    BudgetSpec,
    Edge,
    Fail,
    FunctionNode,
    GraphSpec,
    InterruptNode,
    Node,
    OnError,
    Route,
    Rule,
    SubgraphNode,
)
from abeyance.duration import Duration
from abeyance.schemas.state_model import StateModel

if TYPE_CHECKING:
    from abeyance.agents.agent import Agent
    from abeyance.agents.foreign import Framework

NodeFunction = TypeVar("NodeFunction", bound=Callable[..., Any])
_RETRIES: Final = 3
"""The retries of a node that sets neither `retries` nor `retry_for`."""


class Graph:
    """A graph under construction.

    `state` is a pydantic model with the fields that nodes read and patch, and reducers as
    `Annotated[list[str], append]`; without a model, any field is allowed. `on_error` is the default for
    all nodes except its own target and those in `finally_`. The run pauses before the nodes of
    `interrupt_before` and after those of `interrupt_after`, so that a person can review and edit the
    values; `"*"` means every node except interrupt nodes.
    """

    def __init__(
        self,
        name: str,
        *,
        state: type[BaseModel] | None = None,
        description: str = "",
        on_error: str = "fail",
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
    ) -> None:
        self.name = name
        self.description = description
        self.lines = Lines()
        self.states = StateModel(state)
        self.code: dict[str, NodeCode] = {}
        self.route_code: dict[tuple[str, str], Callable[..., Any]] = {}
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._routes: list[Route] = []
        self._rules: list[Rule] = []
        self._finally: list[str] = []
        self.subgraphs: dict[str, Graph] = {}
        self.compiled_from: Agent | None = None
        self.budget: BudgetSpec | None = None
        """The budget of the agent from which the graph is compiled."""
        self.chat_field: str | None = None
        """The field that the first agent names as its `input`: a user interface puts a message there."""
        self.is_mcp_tool = False
        """Whether the API offers the graph as a tool of MCP."""
        self._intake = DeclarationErrors(self.states)
        self.answer_types = self._intake.types
        self._retired = RetiredNodes(self, self._intake)
        self._spec: GraphSpec | None = None
        self._default_on_error = self._intake.on_error(on_error, "the graph")
        self._by_default: set[str] = set()
        self._before = self._intake.names(interrupt_before, "interrupt_before")
        self._after = self._intake.names(interrupt_after, "interrupt_after")

    @overload
    def node(self, function: NodeFunction, /) -> NodeFunction: ...

    @overload
    def node(
        self,
        function: None = None,
        /,
        *,
        name: str | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        backoff: Backoff = ...,
        retry_for: Duration | None = ...,
        retry_on: RetryOn = ...,
        heartbeat: Duration = ...,
        local: bool = ...,
        on_error: str | None = ...,
        to: Sequence[str] = ...,
        asks: str | Sequence[str] = ...,
    ) -> Callable[[NodeFunction], NodeFunction]: ...

    def node(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        timeout: Duration | None = None,
        retries: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        retry_for: Duration | None = None,
        retry_on: RetryOn = ANY_ERROR,
        heartbeat: Duration = 5.0,
        local: bool = False,
        on_error: str | None = None,
        to: Sequence[str] = (),
        asks: str | Sequence[str] = (),
        **gone: Never,
    ) -> Any:
        """Declare a node: a function of (state), (state, ctx) or nothing.

        A second parameter with a default is filled only if its name is `ctx` or `context`. A parameter
        `inbox`, like `ctx.inbox`, receives the messages waiting when the function starts. The function
        returns a patch (a mapping of the fields that it changes), a `Goto`, a list of `Send`, or None.
        A coroutine function runs on the event loop, a plain one in a thread.

        `name` defaults to the function's name. `timeout` limits one attempt. `retries` is the number of
        attempts after the first; the default is 3, or unlimited with `retry_for`. `retry_for` is the time
        after the beginning of the first attempt in which others may begin. If both are given, the limit
        that is reached first counts. `backoff` sets the pauses between attempts. An exception that does
        not match `retry_on` fails the visit at once; a timeout counts as a TimeoutError.
        `heartbeat` is how long a worker may be silent before another worker gets the visit, which
        counts as an attempt. `local=True` is for idempotent work of less than a minute: it is faster,
        but it cannot be cancelled, and cannot ask or record steps. `on_error` is `fail`,
        `goto:<node>`, or `interrupt`, which asks a person whether to retry, to skip the node with a
        patch, or to fail. `to` names the targets of a returned `Goto` or `Send`.
        `asks` names the capabilities that the code may request (`ctx.interrupt(...,
        requested_capability=...)`), or patterns such as `tenant:*:approve`; a question without a
        capability requests the first. Requesting any other fails the visit with
        `undeclared_capability`.
        """

        def declare(function: NodeFunction) -> NodeFunction:
            if not callable(function):
                raise TypeError(
                    f"{function!r} is not a function: write @graph.node(name={name or function!r})"
                )
            id_ = getattr(function, "__name__", "") if name is None else name
            label = f"the node {id_!r}"
            intake = self._intake
            intake.faults.extend(faults_of_gone(label, gone))
            bound = intake.seconds(timeout, f"{label}, timeout=")
            if local:
                intake.short(bound, label)
            if on_error is None:
                self._by_default.add(id_)
            self.code[id_] = code_of(
                function,
                intake.takes(function, label),
                exceptions(intake.note, label, retry_on),
            )
            self._add(
                FunctionNode(
                    id=id_,
                    description=summary(inspect.getdoc(function)),
                    timeout=bound,
                    retry=retry_policy(
                        intake.note,
                        label,
                        retries=retries,
                        backoff=backoff,
                        retry_for=retry_for,
                        default=_RETRIES,
                    ),
                    heartbeat=intake.seconds(heartbeat, f"{label}, heartbeat=") or 0.0,
                    local=local,
                    on_error=Fail() if on_error is None else intake.on_error(on_error, label),
                    to=intake.names(to, f"{label}, to="),
                    asks=intake.capabilities(asks, label),
                    reads_inbox=reads_inbox(function),
                )
            )
            return function

        return declare if function is None else declare(function)

    def interrupt(
        self,
        name: str,
        *,
        prompt: str | None = None,
        reason: Json = None,
        payload: Json = None,
        response: Any = None,
        answer_to: str | None = None,
        requested_capability: str | None = None,
        from_input: bool = False,
        timeout: Duration | None = None,
        on_timeout: str | Mapping[Literal["default"], Json] = "halt",
        **terms: Unpack[TermsOptions],
    ) -> None:
        """Declare a node that asks a person and waits for the answer (Stargraph's InterruptNode).

        `prompt` and the strings in `reason` and `payload` may contain `{field}`. Without a prompt, a rule
        whose condition is only this node, and which asks, supplies the question. `payload` is for the
        approver's program. `response` is the type of the answer: a pydantic model, a type, a Literal, or
        a JSON Schema; it defaults to the type of the field `answer_to`, which receives the
        answer; without both, any JSON value is accepted. `requested_capability` is the capability that
        the approver must have; `{field}` in it is filled once, when the question opens, and must be a
        read-only field of the state, or one that `from_input=True` allows whoever starts a run to set.
        `timeout` None waits forever; `on_timeout` is `halt`, `goto:<node>` or `{"default": answer}`.
        `terms` are those of `TermsOptions`: `assignees`, `quorum`, `remind` and so on.
        """
        label = f"the interrupt {name!r}"
        question = question_of(
            name,
            label,
            self._intake,
            prompt=prompt,
            reason=reason,
            payload=payload,
            response=response,
            answer_to=answer_to,
            requested_capability=requested_capability,
            from_input=from_input,
            timeout=timeout,
            on_timeout=on_timeout,
            terms=terms_of(terms, label, self._intake, fills=True),
        )
        self._add(InterruptNode(id=name, question=question, answer_to=answer_to))

    def subgraph(
        self,
        name: str,
        graph: Graph,
        *,
        input: Mapping[str, str] | None = None,  # noqa: A002 the contract's own word
        output: Mapping[str, str] | None = None,
        on_error: str | None = None,
    ) -> None:
        """Declare a node that is another graph, which runs inside this run with its own values.

        `input` maps fields of the nested graph to fields of this one, and `output` the reverse:
        `{target field: source field}`; both default to the fields that the graphs share. Its interrupts
        are listed with those of the run. `on_error` is as for a node.
        """
        node = compiler.subgraph_node(self._intake, name, graph, input, output)
        self._declare_nested(node, graph, on_error)

    def agent(
        self,
        name: str,
        agent: Agent | Framework,
        *,
        input: str | Callable[..., Any],  # noqa: A002 the contract's own word
        output: str | None = None,
        on_error: str | None = None,
    ) -> None:
        """Declare a node that is an agent: a model that calls tools until it has an output.

        For an agent of another framework, pass its adapter; see `abeyance.adapters`.
        `input` supplies the first prompt, a string or a list of message parts: the name of a field, or a
        function of the state, or of the state and the fan-out item. The result is written to the field
        `output`. Its interrupts are listed with those of the run. `on_error` is as for a node.
        """
        from abeyance.agents import compiler
        from abeyance.agents.foreign import as_agent

        if isinstance(input, str) and self.chat_field is None:
            self.chat_field = input
        agent = as_agent(agent)
        write = partial(self.states.written_patch, output)
        inner = compiler.compile_agent(agent, compiler.prompt_of(self.states, input), write)
        for fault in compiler.faults_of(name, agent, self.states, input, output):
            self._intake.note(fault)
        self._declare_nested(compiler.agent_node(name, agent, output), inner, on_error)

    def _declare_nested(self, node: SubgraphNode, inner: Graph, on_error: str | None) -> None:
        if on_error is None:
            self._by_default.add(node.id)
        else:
            label = f"the nested graph {node.id!r}"
            node = replace(node, on_error=self._intake.on_error(on_error, label))
        self.declare(node, inner=inner)

    def declare(
        self,
        node: Node,
        code: NodeCode | None = None,
        *,
        inner: Graph | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        """Declare a node in the core's own form, with its code or graph and its faults."""
        for fault in faults:
            self._intake.note(fault)
        if code is not None:
            self.code[node.id] = code
        if inner is not None:
            self.subgraphs[node.id] = inner
        self._add(node)

    def edge(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        when: Mapping[str, Json] | Literal["else"] | None = None,
        join: Literal["all", "arrived"] = "all",
    ) -> None:
        """Declare an edge from `source` to `target`. A list of sources is a join.

        Behind a fan-out, a join waits for every item. `when` maps paths of the values to the values
        that they must all equal, or is `"else"`. `join="arrived"` starts the target with the branches
        that have arrived as soon as no other can arrive.
        """
        self._spec = None
        self.lines.declare(subjects_of_edge(source, target))
        self.lines.declare(subjects_of_condition(source, target, when).values())
        self._edges += compiler.edges(self._intake, source, target, when=when, join=join)

    def route(
        self,
        source: str,
        function: Callable[..., Any],
        *,
        to: Sequence[str],
        name: str | None = None,
    ) -> None:
        """Declare a route: `function(state)` returns a target, a list of targets, or None.

        The function is called when `source` has finished, with the values that `source` read and its
        patch.
        """
        function_name = getattr(function, "__name__", "<lambda>")
        label = f"a route from {source!r}"
        self.lines.declare([label, f"two routes from {source!r} are named {name!r}"])
        if not isinstance(source, str):
            self._intake.note(f"{label}: it begins at one node: use the name of one")
            return
        taken = {route.name for route in self._routes if route.source == source}
        if name in taken:
            self._intake.note(f"two routes from {source!r} are named {name!r}")
        base = "route" if function_name == "<lambda>" else function_name
        name = name or compiler.unused_name(base, taken)
        self.lines.declare([f"the route {name!r} from {source!r}"])
        self._intake.decides(function, label)
        targets = self._intake.names(to, f"{label}, to=")
        self.route_code[source, name] = function
        self._spec = None
        self._routes.append(Route(source=source, name=name, targets=targets))

    def retired(self, name: str) -> RetiredNode:
        """Keep the code of a node for older runs whose pinned graph has the node; use it as a decorator.

        A new run cannot reach the node: the graph that `build()` returns does not contain it, and no edge
        may name it. Its timeout, retries and targets are those of the pinned graph.

        The code is a function, a Graph, or an Agent with its `input` as for `agent()`. `routes` are the
        route functions of the node, by name. Pass None as the code for a node without code of its own (an
        interrupt), or for a node that is still in the graph and lost only a route.
        """
        self._spec = None
        self.lines.declare(f"the retired {what} {name!r}" for what in ("node", "graph"))
        return self._retired.node(name)

    def rule(
        self,
        name: str,
        *,
        when: Mapping[str, Json] | str,
        then: Sequence[Mapping[str, Any] | ActionForm],
    ) -> None:
        """Declare a rule that may replace the edges after a visit (Stargraph's rules).

        `when` maps paths of the merged values to the values that they must all equal; the key `node` is
        the visited node. A string is CLIPS, which needs the extra `rules`, unless it is
        `(node-id (id <node>))` alone. `then` lists actions: `{"kind": "goto", "node": ...}`,
        `{"kind": "halt", "reason": ...}`, `{"kind": "retry"}`, `{"kind": "parallel", "nodes": [...]}`,
        `{"kind": "interrupt", "prompt": ...}` with the options of `interrupt()`, and, for other rules in
        CLIPS, `{"kind": "assert", "fact": ..., "slots": {...}}` and
        `{"kind": "retract", "pattern": ...}`. A retry takes a `backoff`, which is the pause before it,
        and a `node` that is run in place of the visited one.

        Rules are evaluated once after each visit. All interrupts of the rules that fire are asked first,
        each named after its rule. Then one decision is taken: halt, else retry, else goto, else
        parallel, and among equals the one declared first.
        """
        self._spec = None
        named = ("the rule", "the rule name", "two rules are named")
        self.lines.declare(f"{subject} {name!r}" for subject in named)
        rule = rules.rule_of(name, when, then, self._intake)
        if rule is not None:
            self._rules.append(rule)

    def finally_(self, *nodes: str) -> None:
        """Name the nodes that run, in order, after every kind of end."""
        self._spec = None
        self.lines.declare(["finally"])
        self._finally += self._intake.names(nodes, "finally")

    def build(self, *, mcp: bool = False, **gone: Never) -> GraphSpec:
        """Return the frozen graph. Raise GraphError with all faults at once.

        With `mcp`, the API offers the graph as an MCP tool.
        """
        for fault in faults_of_gone("the graph", gone):
            self._intake.note(fault)
            self._spec = None
        self.is_mcp_tool = self.is_mcp_tool or mcp
        if self._spec is None:
            self._spec = self._compile(self._default_on_error, self._before, self._after)
        return self._spec

    def build_for(
        self,
        *,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
    ) -> GraphSpec:
        """Return the frozen graph for one run with additional breakpoints or another default `on_error`.

        Raise GraphError as `build` does.
        """
        if not interrupt_before and not interrupt_after and on_error is None:
            return self.build()
        before, after, default = compiler.run_options(
            self, interrupt_before, interrupt_after, on_error
        )
        return self._compile(
            default or self._default_on_error,
            (*self._before, *before),
            (*self._after, *after),
        )

    def _compile(
        self, default: OnError, before: tuple[str, ...], after: tuple[str, ...]
    ) -> GraphSpec:
        declared = GraphSpec(
            name=self.name,
            description=self.description,
            nodes=self._nodes,
            edges=tuple(self._edges),
            routes=tuple(self._routes),
            finally_nodes=tuple(self._finally),
            interrupt_before=before,
            interrupt_after=after,
            budget=self.budget,
        )
        return compiler.compile_graph(
            self,
            declared,
            rules=self._rules,
            by_default=self._by_default,
            default=default,
            faults=[*self._intake.faults, *self._retired.faults(self._nodes, self._routes)],
        )

    def _add(self, node: Node) -> None:
        self.lines.declare(subjects_of_node(node.id))
        if node.id in self._nodes:
            self._intake.note(f"two nodes are named {node.id!r}")
        self._spec = None
        self._nodes[node.id] = node
