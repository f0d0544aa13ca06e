"""Writing a graph: plain Python functions, and edges between them.

`Graph` collects what its author declares and checks nothing on the way, so that declarations may come
in any order. `build()` turns it into the frozen `GraphSpec` that a run is pinned to, or raises one
GraphError with everything that is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from pydantic import BaseModel

from abeyance.authoring import compiler, rules
from abeyance.authoring.callables import NodeCode, code_of, reads_inbox, summary
from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.core.json import Json
from abeyance.core.spec import (
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

NodeFunction = TypeVar("NodeFunction", bound=Callable[..., Any])


class Graph:
    """A graph under construction.

    `name` is its name everywhere. `state` is a pydantic model: the fields are what nodes read and
    patch, with reducers as `Annotated[list[str], append]`; without one the state is open. `on_error`
    is the default for its nodes, but for those that it leads to or that `finally_` names. Before the
    nodes of `interrupt_before`, and after those of `interrupt_after`, a person looks at the values and
    may edit them; `"*"` means every node that is no question itself.
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
        self.states = StateModel(state)
        self.code: dict[str, NodeCode] = {}
        self.route_code: dict[tuple[str, str], Callable[..., Any]] = {}
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._routes: list[Route] = []
        self._rules: list[Rule] = []
        self._finally: list[str] = []
        self.subgraphs: dict[str, Graph] = {}
        self._intake = DeclarationErrors(self.states)
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
        retries: int = ...,
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
        retries: int = 3,
        heartbeat: Duration = 5.0,
        local: bool = False,
        on_error: str | None = None,
        to: Sequence[str] = (),
        asks: str | Sequence[str] = (),
    ) -> Any:
        """Declare a node: a function of (state), of (state, ctx) or of nothing.

        A second parameter that has a default is filled only if it is called `ctx` or `context`; one that
        is called `inbox`, like `ctx.inbox`, gets the messages that are there when it starts. The function
        returns a patch (a mapping of the fields that it changes), a `Goto`, or None. A coroutine
        function runs on the event loop, a plain one in a thread.

        `name` is the function's own name unless given. `timeout` bounds one attempt. `retries` counts
        the attempts after the first. `heartbeat` is how long a worker may be silent before the visit
        is given to another. `local=True` is for idempotent work of less than a minute: quicker, but it
        cannot be stopped, and cannot ask or keep steps. `on_error` is `fail`, `goto:<node>`, or
        `interrupt`: a person is asked whether to try again, to skip it with a patch, or to fail. `to`
        names the targets of a returned `Goto` or `Send`. `asks` names the capabilities that its code
        asks for (`ctx.interrupt(..., requested_capability=...)`), by name or by a pattern such as
        `tenant:*:approve`; a question that names none asks for the first of them. To ask for another
        fails the visit with `undeclared_capability`.
        """

        def declare(function: NodeFunction) -> NodeFunction:
            if not callable(function):
                message = (
                    f"{function!r} is no function: write @graph.node(name={name or function!r})"
                )
                raise TypeError(message)
            id_ = getattr(function, "__name__", "") if name is None else name
            told = f"the node {id_!r}"
            intake = self._intake
            bound = intake.seconds(timeout, f"{told}, timeout=")
            if local:
                intake.short(bound, told)
            if on_error is None:
                self._by_default.add(id_)
            self.code[id_] = code_of(function, intake.takes(function, told))
            self._add(
                FunctionNode(
                    id=id_,
                    description=summary(inspect.getdoc(function)),
                    timeout=bound,
                    retries=retries,
                    heartbeat=intake.seconds(heartbeat, f"{told}, heartbeat=") or 0.0,
                    local=local,
                    on_error=Fail() if on_error is None else intake.on_error(on_error, told),
                    to=intake.names(to, f"{told}, to="),
                    asks=intake.capabilities(asks, told),
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
        timeout: Duration | None = None,
        on_timeout: str | Mapping[Literal["default"], Json] = "halt",
    ) -> None:
        """Declare a node that asks a person and waits (Stargraph's InterruptNode).

        `prompt` and the texts in `reason` may contain `{field}`; without a prompt, a rule that looks at
        this node and at nothing else, and asks, supplies the question. `payload` is opaque data for the
        person's program. `response` says what an answer is: a pydantic model, a type, a Literal, or a
        JSON Schema; without it, the type of the field `answer_to`, to which the answer is written;
        without both, any JSON value. `requested_capability` is what the answering principal must
        hold. `timeout` None waits for ever; `on_timeout` is `halt`, `goto:<node>` or
        `{"default": answer}`.
        """
        question = question_of(
            name,
            f"the interrupt {name!r}",
            self._intake,
            self.states,
            prompt=prompt,
            reason=reason,
            payload=payload,
            response=response,
            answer_to=answer_to,
            requested_capability=requested_capability,
            timeout=timeout,
            on_timeout=on_timeout,
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
        """Declare a node that is another graph, walked inside the run with values of its own.

        `input` maps fields of the other graph to fields of this one, `output` the other way round:
        `{target field: source field}`; by default the fields that both have. What is asked in it is
        listed with the run's own questions, at its own address. `on_error` is as for a node.
        """
        node = compiler.nested(self._intake, name, graph, input, output)
        self._declare_nested(node, graph, on_error)

    def agent(
        self,
        name: str,
        agent: Agent,
        *,
        input: str | Callable[..., Any],  # noqa: A002 the contract's own word
        output: str | None = None,
        on_error: str | None = None,
    ) -> None:
        """Declare a node that is an agent: a model that works with tools until it has an output.

        `input` is what it is told first, a text or a list of parts as a message has them: a field of the
        state, or a function of the state, or of the state and the item of a fan-out. Its result goes to
        the field `output`. What it asks is listed with the run's questions. `on_error` as for a node.
        """
        from abeyance.agents import compiler

        inner = compiler.compile_agent(agent, compiler.prompt_of(self.states, input))
        for fault in compiler.faults_of(name, agent, self.states, input, output):
            self._intake.note(fault)
        self._declare_nested(compiler.agent_node(name, agent, output), inner, on_error)

    def _declare_nested(self, node: SubgraphNode, inner: Graph, on_error: str | None) -> None:
        if on_error is None:
            self._by_default.add(node.id)
        else:
            told = f"the nested graph {node.id!r}"
            node = replace(node, on_error=self._intake.on_error(on_error, told))
        self.declare(node, inner=inner)

    def declare(
        self,
        node: Node,
        code: NodeCode | None = None,
        *,
        inner: Graph | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        """Declare a node as the core knows it, with its code or graph, and what is wrong with it."""
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
        """Declare a way from `source` to `target`; a list of sources makes a join, which behind a
        fan-out waits for every item.

        `when` is a mapping of paths of the values to what they must equal (all of them), or `"else"`.
        `join="arrived"` starts the target with what came when no more can come.
        """
        self._spec = None
        self._edges += compiler.edges(self._intake, source, target, when=when, join=join)

    def route(
        self,
        source: str,
        function: Callable[..., Any],
        *,
        to: Sequence[str],
        name: str | None = None,
    ) -> None:
        """Declare a way that code decides: `function(state)` returns a target, several, or None.

        It is asked when `source` has finished, on the values that it read and its own patch.
        """
        written = getattr(function, "__name__", "<lambda>")
        told = f"a route from {source!r}"
        taken = {route.name for route in self._routes if route.source == source}
        if name in taken:
            self._intake.note(f"two routes from {source!r} are named {name!r}")
        base = "route" if written == "<lambda>" else written
        name = name or compiler.unused(base, taken)
        self._intake.decides(function, told)
        targets = self._intake.names(to, f"{told}, to=")
        self.route_code[source, name] = function
        self._spec = None
        self._routes.append(Route(source=source, name=name, targets=targets))

    def rule(
        self, name: str, *, when: Mapping[str, Json] | str, then: Sequence[Mapping[str, Any]]
    ) -> None:
        """Declare what is to be done after a visit in place of the edges (Stargraph's rules).

        `when` maps paths of the merged values to what they must equal (all of them); the key `node`
        means the node that was visited. A text is CLIPS, which needs the extra `rules`, unless it is
        `(node-id (id <node>))` alone. `then` lists actions: `{"kind": "goto", "node": ...}`,
        `{"kind": "halt", "reason": ...}`, `{"kind": "retry"}`, `{"kind": "parallel", "nodes": [...]}`,
        `{"kind": "interrupt", "prompt": ...}` with the options of `interrupt()`, and for what rules in
        CLIPS see of each other `{"kind": "assert", "fact": ..., "slots": {...}}` and
        `{"kind": "retract", "pattern": ...}`.

        Of the rules that fire, every interrupt is asked first, each named like its rule; then one
        decision is taken: halt before retry before goto before parallel, and of equals the one that was
        declared first. They are looked at once for each visit.
        """
        self._spec = None
        rule = rules.RuleParser(self._intake, self.states).rule(name, when, then)
        if rule is not None:
            self._rules.append(rule)

    def finally_(self, *nodes: str) -> None:
        """Name declared nodes that run after every kind of end, one after another."""
        self._spec = None
        self._finally += self._intake.names(nodes, "finally")

    def build(self) -> GraphSpec:
        """The frozen graph. Raises GraphError with all faults at once."""
        if self._spec is None:
            self._spec = self._built(self._default_on_error, self._before, self._after)
        return self._spec

    def build_for(
        self,
        *,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
    ) -> GraphSpec:
        """The frozen graph for one run, which may be looked at in more places than the graph says, and
        may deal otherwise with the failures of nodes that say nothing themselves.

        Raises GraphError as `build` does.
        """
        if not interrupt_before and not interrupt_after and on_error is None:
            return self.build()
        before, after, default = compiler.wanted(self, interrupt_before, interrupt_after, on_error)
        return self._built(
            default or self._default_on_error,
            (*self._before, *before),
            (*self._after, *after),
        )

    def _built(
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
        )
        return compiler.built(
            self,
            declared,
            rules=self._rules,
            by_default=self._by_default,
            default=default,
            noted=self._intake.faults,
        )

    def _add(self, node: Node) -> None:
        if node.id in self._nodes:
            self._intake.note(f"two nodes are named {node.id!r}")
        self._spec = None
        self._nodes[node.id] = node
