"""Writing a graph: plain Python functions, and edges between them.

`Graph` collects what its author declares and checks nothing on the way, so that declarations may come
in any order. `build()` turns it into the frozen `GraphSpec` that a run is pinned to, or raises one
GraphError with everything that is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, overload

from pydantic import BaseModel

from abeyance import schema
from abeyance.core.canonical import Json, canonical
from abeyance.core.faults import faults_of
from abeyance.core.model import (
    Always,
    Condition,
    Default,
    Edge,
    Else,
    Fail,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    InterruptNode,
    Node,
    OnError,
    OnTimeout,
    Question,
    Route,
    When,
)
from abeyance.duration import Duration, seconds
from abeyance.errors import GraphError
from abeyance.statemodel import StateModel

NodeFunction = TypeVar("NodeFunction", bound=Callable[..., Any])

_GOTO: Final = "goto:"
_MOST_PARAMETERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCode:
    """A node's function, and how many of (state, context) it takes."""

    function: Callable[..., Any]
    takes: int


class Graph:
    """A graph under construction.

    `name` is its name everywhere. `state` is a pydantic model: the fields are what nodes read and
    patch, with reducers as `Annotated[list[str], append]`; without one the state is open. `on_error`
    is the default for its nodes.
    """

    def __init__(
        self,
        name: str,
        *,
        state: type[BaseModel] | None = None,
        description: str = "",
        on_error: str = "fail",
    ) -> None:
        self.name = name
        self.description = description
        self.states = StateModel(state)
        self.code: dict[str, NodeCode] = {}
        self.route_code: dict[tuple[str, str], Callable[..., Any]] = {}
        self._on_error = on_error
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._routes: list[Route] = []
        self._finally: list[str] = []
        self._faults: list[str] = []
        self._spec: GraphSpec | None = None

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
    ) -> Any:
        """Declare a node: a function of (state), of (state, ctx) or of nothing.

        It returns a patch (a mapping of the fields that it changes), a `Goto`, or None. A coroutine
        function runs on the event loop, a plain one in a thread.

        `name` is the function's own name unless given. `timeout` bounds one attempt. `retries` counts
        the attempts after the first. `heartbeat` is how long a worker may be silent before the visit
        is given to another. `local=True` is for short, idempotent work: quicker, but it cannot be
        stopped. `on_error` is `fail` or `goto:<node>`. `to` names the targets of a returned `Goto`.
        """

        def declare(function: NodeFunction) -> NodeFunction:
            id_ = name or function.__name__
            told = f"the node {id_!r}"
            self.code[id_] = NodeCode(function=function, takes=self._takes(function, told))
            self._add(
                FunctionNode(
                    id=id_,
                    description=(inspect.getdoc(function) or "").split("\n\n")[0][:200],
                    timeout=self._seconds(timeout, f"{told}, timeout="),
                    retries=retries,
                    heartbeat=self._seconds(heartbeat, f"{told}, heartbeat=") or 5.0,
                    local=local,
                    on_error=self._on_error_of(on_error or self._on_error, told),
                    to=tuple(to),
                )
            )
            return function

        return declare if function is None else declare(function)

    def interrupt(
        self,
        name: str,
        *,
        prompt: str,
        reason: Json = None,
        payload: Json = None,
        response: Any = None,
        answer_to: str | None = None,
        requested_capability: str | None = None,
        timeout: Duration | None = None,
        on_timeout: str | Mapping[Literal["default"], Json] = "halt",
    ) -> None:
        """Declare a node that asks a person and waits (Stargraph's InterruptNode).

        `prompt` and the texts in `reason` may contain `{field}`. `payload` is opaque data for the
        person's program. `response` says what an answer is: a pydantic model, a type, a Literal, or a
        JSON Schema; without it, the type of the field `answer_to`, to which the answer is written;
        without both, any JSON value. `requested_capability` is what the answering principal must
        hold. `timeout` None waits for ever; `on_timeout` is `halt`, `goto:<node>` or
        `{"default": answer}`.
        """
        told = f"the interrupt {name!r}"
        if response is None and answer_to is not None:
            response = self.states.answer_type(answer_to)
        response_schema = self._schema(response, told)
        policy = self._on_timeout_of(on_timeout, told)
        if isinstance(policy, Default) and response_schema is not None:
            for fault in schema.faults_of(response_schema, policy.answer):
                where = fault.pointer or "(the answer)"
                self._faults.append(
                    f"{told} has a default answer that does not fit: {where}: {fault.message}"
                )
        self._add(
            InterruptNode(
                id=name,
                answer_to=answer_to,
                question=Question(
                    name=name,
                    prompt=prompt,
                    reason=self._json(reason, f"{told}, reason="),
                    payload=self._json(payload, f"{told}, payload="),
                    response_schema=response_schema,
                    requested_capability=requested_capability,
                    timeout=self._seconds(timeout, f"{told}, timeout="),
                    on_timeout=policy,
                ),
            )
        )

    def edge(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        when: Mapping[str, Json] | Literal["else"] | None = None,
        join: Literal["all", "arrived"] = "all",
    ) -> None:
        """Declare a way from `source` to `target`; several sources make a join.

        `when` is a mapping of paths of the values to what they must equal (all of them), or `"else"`.
        `join="arrived"` starts the target with what came when no more can come.
        """
        sources = (source,) if isinstance(source, str) else tuple(source)
        told = f"the edge from {', '.join(map(repr, sources))} to {target!r}"
        condition: Condition
        match when:
            case None:
                condition = Always()
            case "else":
                condition = Else()
            case Mapping():
                condition = When(equals=self._json(dict(when), f"{told}, when=") or {})
            case _:
                self._faults.append(f"{told}: when={when!r} is neither a mapping nor 'else'")
                return
        self._spec = None
        self._edges.append(Edge(sources=sources, target=target, condition=condition, join=join))

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
        written = getattr(function, "__name__", "route")
        name = name or ("route" if written == "<lambda>" else written)
        taken = [route.name for route in self._routes if route.source == source]
        if name in taken:
            name = f"{name}_{len(taken) + 1}"
        self.route_code[source, name] = function
        self._spec = None
        self._routes.append(Route(source=source, name=name, targets=tuple(to)))

    def finally_(self, *nodes: str) -> None:
        """Name declared nodes that run after every kind of end, one after another."""
        self._spec = None
        self._finally.extend(nodes)

    def build(self) -> GraphSpec:
        """The frozen graph. Raises GraphError with all faults at once."""
        if self._spec is not None:
            return self._spec
        faults = list(self._faults)
        try:
            fields = self.states.field_specs()
        except ValueError as error:
            faults.append(str(error))
            fields = {}
        spec = GraphSpec(
            name=self.name,
            description=self.description,
            fields=fields,
            open_values=self.states.is_open,
            input_schema=self.states.input_schema(),
            nodes=dict(self._nodes),
            edges=tuple(self._edges),
            routes=tuple(self._routes),
            finally_nodes=tuple(self._finally),
        )
        faults += faults_of(spec)
        if faults:
            raise GraphError(self.name, faults)
        self._spec = spec
        return spec

    def _add(self, node: Node) -> None:
        if node.id in self._nodes:
            self._faults.append(f"two nodes are named {node.id!r}")
        self._spec = None
        self._nodes[node.id] = node

    def _takes(self, function: Callable[..., Any], told: str) -> int:
        parameters = inspect.signature(function).parameters.values()
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [p for p in parameters if p.kind in kinds]
        if len(needed) > _MOST_PARAMETERS or any(
            p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is inspect.Parameter.empty
            for p in parameters
        ):
            self._faults.append(f"{told} must take (state), (state, ctx) or nothing")
        return min(len(needed), _MOST_PARAMETERS)

    def _seconds(self, given: Duration | None, told: str) -> float | None:
        try:
            return None if given is None else seconds(given)
        except ValueError as error:
            self._faults.append(f"{told}: {error}")
            return None

    def _json(self, value: Json, told: str) -> Json:
        try:
            canonical(value)
        except (TypeError, ValueError) as error:
            self._faults.append(f"{told}: {error}")
            return None
        return value

    def _schema(self, response: Any, told: str) -> Json:
        try:
            return schema.schema_of(response)
        except ValueError as error:
            self._faults.append(f"{told}, response=: {error}")
            return None

    def _on_error_of(self, given: str, told: str) -> OnError:
        if given.startswith(_GOTO):
            return GoTo(node=given.removeprefix(_GOTO))
        if given != "fail":
            self._faults.append(f"{told}: on_error={given!r} is neither 'fail' nor 'goto:<node>'")
        return Fail()

    def _on_timeout_of(self, given: object, told: str) -> OnTimeout:
        match given:
            case "halt":
                return Halt()
            case str() if given.startswith(_GOTO):
                return GoTo(node=given.removeprefix(_GOTO))
            case {"default": answer, **rest} if not rest:
                return Default(answer=self._json(answer, f"{told}, on_timeout="))
            case _:
                self._faults.append(
                    f"{told}: on_timeout={given!r} is neither 'halt' nor 'goto:<node>' "
                    'nor {"default": answer}'
                )
                return Halt()
