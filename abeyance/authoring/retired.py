"""Retired nodes: code that only older runs still need (`Graph.retired`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from abeyance.authoring.callables import code_of
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core.spec import Route

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph

NodeCodeT = TypeVar("NodeCodeT")


class RetiredNode(Protocol):
    """The decorator of `Graph.retired`: it takes the code of a retired node, and returns it."""

    def __call__(
        self,
        code: NodeCodeT,
        /,
        *,
        routes: Mapping[str, Callable[..., Any]] = ...,
        input: str | Callable[..., Any] | None = ...,  # noqa: A002 as in `Graph.agent`
    ) -> NodeCodeT: ...


class RetiredNodes:
    """The retired nodes and routes of one graph. Their faults are noted in its `intake`."""

    def __init__(self, graph: Graph, intake: DeclarationErrors) -> None:
        self._graph = graph
        self._intake = intake
        self._declared: list[tuple[str, str | None]] = []

    def node(self, name: str) -> RetiredNode:
        """Return the object that keeps the code of the node and its routes."""

        def declare(
            code: NodeCodeT,
            /,
            *,
            routes: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
            input: str | Callable[..., Any] | None = None,  # noqa: A002 as in `Graph.agent`
        ) -> NodeCodeT:
            label = f"the retired node {name!r}"
            if code is not None:
                self._declared.append((name, None))
                self._keep(name, label, code, input)
            for route, function in routes.items():
                self._declared.append((name, route))
                self._intake.decides(function, f"{label}, the route {route!r}")
                self._graph.route_code.setdefault((name, route), function)
            return code

        return declare

    def _keep(
        self, name: str, label: str, code: Any, source: str | Callable[..., Any] | None
    ) -> None:
        from abeyance.authoring.graph import Graph

        graph = self._graph
        if isinstance(code, Graph):
            graph.subgraphs.setdefault(name, code)
        elif callable(code):
            graph.code.setdefault(name, code_of(code, self._intake.takes(code, label)))
        else:
            from abeyance.agents import compiler
            from abeyance.agents.foreign import as_agent

            code = as_agent(code)
            if source is None:
                self._intake.note(f"{label} is an agent: pass its input=, as for agent()")
                source = ""
            inner = compiler.compile_agent(code, compiler.prompt_of(graph.states, source))
            for fault in (
                compiler.faults_of(name, code, graph.states, source, None) if source else ()
            ):
                self._intake.note(f"{label}: {fault}")
            graph.subgraphs.setdefault(name, inner)

    def faults(self, nodes: Collection[str], routes: Collection[Route]) -> Iterator[str]:
        """Yield their conflicts with the `nodes` and `routes` of the graph."""
        living: set[tuple[str, str | None]] = {(name, None) for name in nodes}
        living |= {(route.source, route.name) for route in routes}
        for name, route in sorted(set(self._declared), key=str):
            what = "is" if route is None else f"has a route {route!r} that is"
            if (name, route) in living:
                yield (
                    f"the retired node {name!r} {what} also in the graph: remove one of the two, or "
                    "rename it"
                )
            elif self._declared.count((name, route)) > 1:
                yield f"the retired node {name!r} {what} declared twice: remove one"
