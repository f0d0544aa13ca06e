"""A graph as a Mermaid flowchart, for pages, terminals and Markdown.

Functions are boxes, interrupt nodes hexagons, and nested graphs boxes with two bars. A label says in
brackets if a person is also asked before or after a node, or when it fails. Solid arrows are edges and
routes; dotted arrows are deadlines, errors, a returned Goto or Send, and rules. Author texts are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, assert_never

from abeyance.core.json import Json, canonical
from abeyance.core.spec import (
    END,
    START,
    Always,
    Ask,
    AskHuman,
    Assert,
    Clips,
    Condition,
    Decision,
    Else,
    FunctionNode,
    GoTo,
    GraphSpec,
    HaltRun,
    InterruptNode,
    InterruptSpec,
    Matches,
    Node,
    OnError,
    Parallel,
    Retract,
    Retry,
    RuleCondition,
    SubgraphNode,
    When,
)
from abeyance.core.terms import BusinessTime
from abeyance.core.text import truncate

_LONGEST: Final = 80
"""The longest label, in characters."""

_SPECIAL: Final = re.compile(r"[^\w .,:()=?!'+-]|^(?=[^\w])[^ ]|(?<=\d)[.)](?= )")
"""Characters with a meaning in Mermaid, HTML or Markdown."""

_LAMBDA: Final = re.compile(r"route(_\d+)?")
"""The name that a graph gives a route whose function has none."""

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60}


def mermaid(spec: GraphSpec) -> str:
    """Return the flowchart of a graph, ending in a newline."""
    return "\n    ".join(["flowchart TD", *_Chart(spec).lines()]) + "\n"


class _Chart:
    """Draws one graph. Ids are numbers, because an author's name may be a Mermaid keyword."""

    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        self._ids = {name: f"n{number}" for number, name in enumerate(spec.nodes)}
        self._ends: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Yield the nodes, then the arrows."""
        spec = self._spec
        arrows = [*self._edges(), *self._routes(), *self._exceptions(), *self._rules()]
        for label, id_ in self._ends.items():
            yield f'{id_}(["{_escaped(label)}"])'
        for name, node in spec.nodes.items():
            if name not in spec.finally_nodes:
                yield self._ids[name] + self._shape(node)
        yield from arrows
        if spec.finally_nodes:
            yield 'subgraph after ["after every kind of end"]'
            yield from (
                f"    {self._ids[name]}{self._shape(spec.nodes[name])}"
                for name in spec.finally_nodes
            )
            for name, following in pairwise(spec.finally_nodes):
                yield f"    {self._ids[name]} --> {self._ids[following]}"
            yield "end"

    def _edges(self) -> Iterator[str]:
        joins = 0
        for edge in self._spec.edges:
            label = _condition(edge.condition)
            if not edge.is_join:
                yield self._arrow(edge.sources[0], "-->", label, edge.target)
            else:
                meet = f"j{joins}"
                joins += 1
                yield f'{meet}(("{edge.join}"))'
                for source in edge.sources:
                    yield f"{self._id(source)} ---{_label(label)} {meet}"
                yield f"{meet} --> {self._id(edge.target)}"

    def _routes(self) -> Iterator[str]:
        for route in self._spec.routes:
            label = "by code" if _LAMBDA.fullmatch(route.name) else f"{route.name}()"
            for target in route.targets:
                yield self._arrow(route.source, "-->", label, target)

    def _exceptions(self) -> Iterator[str]:
        for name, node in self._spec.nodes.items():
            match node:
                case FunctionNode(to=to, on_error=on_error):
                    for target in to:
                        yield self._arrow(name, "-.->", "Goto or Send", target)
                    yield from self._on_error(name, on_error)
                case SubgraphNode(on_error=on_error):
                    yield from self._on_error(name, on_error)
                case InterruptNode(question=question):
                    yield from self._deadline(self._ids[name], question)
                case _:
                    assert_never(node)

    def _on_error(self, name: str, on_error: OnError) -> Iterator[str]:
        if isinstance(on_error, GoTo):
            yield self._arrow(name, "-.->", "on error", on_error.node)

    def _rules(self) -> Iterator[str]:
        for number, rule in enumerate(self._spec.rules):
            # Actions that change facts lead to no node.
            actions = [one for one in rule.actions if not isinstance(one, Assert | Retract)]
            if not actions:
                continue
            node = rule.condition.node
            source = self._end("any node") if node is None else self._id(node)
            label = ": ".join(filter(None, [rule.id, _rule_condition(rule.condition)]))
            asks = [action for action in actions if isinstance(action, Ask)]
            for ask in asks:
                gate = f"r{number}"
                yield f'{gate}{{{{"{_escaped(rule.id)}"}}}}'
                yield f"{source} -.->{_label(label)} {gate}"
                yield from self._deadline(gate, ask.question)
                source, label = gate, ""
            for action in actions:
                if not isinstance(action, Ask):
                    for target in self._targets(action, self._id(node) if node else source):
                        yield f"{source} -.->{_label(label)} {target}"

    def _deadline(self, source: str, question: InterruptSpec) -> Iterator[str]:
        if isinstance(question.on_timeout, GoTo) and question.timeout is not None:
            span = question.timeout
            label = f"after {span if isinstance(span, BusinessTime) else _length(span)}"
            yield f"{source} -.->{_label(label)} {self._id(question.on_timeout.node)}"

    def _targets(self, decision: Decision, again: str) -> Iterable[str]:
        match decision:
            case HaltRun(reason=reason):
                return [self._end(f"halted: {reason}")]
            case Retry():
                return [again]
            case GoTo(node=node):
                return [self._id(node)]
            case Parallel(nodes=nodes):
                return [self._id(node) for node in nodes]
            case _:
                assert_never(decision)

    def _arrow(self, source: str, arrow: str, label: str, target: str) -> str:
        return f"{self._id(source)} {arrow}{_label(label)} {self._id(target)}"

    def _id(self, name: str) -> str:
        return self._end(name) if name in (START, END) else self._ids[name]

    def _end(self, label: str) -> str:
        return self._ends.setdefault(label, f"e{len(self._ends)}")

    def _shape(self, node: Node) -> str:
        label = _escaped(node.id) + self._asking(node)
        match node:
            case FunctionNode():
                return f'["{label}"]'
            case InterruptNode():
                return f'{{{{"{label}"}}}}'
            case SubgraphNode():
                return f'[["{label}"]]'
            case _:
                assert_never(node)

    def _asking(self, node: Node) -> str:
        """Return the points at which a person is asked about a node, besides its own question."""
        points: list[str] = []
        if node.id in self._spec.interrupt_before:
            points.append("before: ask")
        if node.id in self._spec.interrupt_after:
            points.append("after: ask")
        if not isinstance(node, InterruptNode) and isinstance(node.on_error, AskHuman):
            points.append("on error: ask")
        return f" ({', '.join(points)})" if points else ""


def _condition(condition: Condition) -> str:
    match condition:
        case Always():
            return ""
        case When(equals=equals):
            return _equalities(equals)
        case Else():
            return "else"
        case _:
            assert_never(condition)


def _rule_condition(condition: RuleCondition) -> str:
    match condition:
        case Matches(equals=equals):
            return _equalities(equals)
        case Clips(text=text):
            return text
        case _:
            assert_never(condition)


def _equalities(equals: Mapping[str, Json]) -> str:
    return ", ".join(
        f"{path} = {value if isinstance(value, str) else canonical(value)}"
        for path, value in equals.items()
    )


def _length(seconds: float) -> str:
    for unit, size in _UNITS.items():
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _label(label: str) -> str:
    return f'|"{_escaped(label)}"|' if label else ""


def _escaped(text: str) -> str:
    flat = " ".join(text.split())
    return _SPECIAL.sub(lambda match: f"#{ord(match[0])};", truncate(flat, _LONGEST))
