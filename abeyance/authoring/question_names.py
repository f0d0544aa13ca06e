"""The names under which the code of a graph asks, as its source shows them, and who may not answer.

`not_by` names questions, and a name that nothing asks under would bar nobody. So a graph keeps the names
that its code writes out, and refuses others where no code can ask under a name that is computed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from abeyance.core.duties import ALWAYS_KNOWN
from abeyance.core.spec import GraphSpec, InterruptSpec, SubgraphNode

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph

_ASK: Final = "interrupt"
_LIST: Final = "interrupts"
_QUESTION: Final = "Interrupt"
_DEPTH: Final = 3
"""How far the functions that a node calls are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeQuestions:
    """What code asks, as far as its source says: the `names`, and for each that is barred by another a
    pair in `bars`. `is_closed` is whether it certainly asks under no other name.
    """

    names: frozenset[str] = frozenset()
    bars: tuple[tuple[str, str], ...] = ()
    is_closed: bool = True

    def __or__(self, other: CodeQuestions) -> CodeQuestions:
        """Return what both ask."""
        return CodeQuestions(
            names=self.names | other.names,
            bars=(*self.bars, *other.bars),
            is_closed=self.is_closed and other.is_closed,
        )


UNKNOWN_CODE: Final = CodeQuestions(is_closed=False)


def questions_in(function: Callable[..., Any]) -> CodeQuestions:
    """Return what a function with an optional Context as its second parameter asks."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        return UNKNOWN_CODE
    code = function.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    contexts = {"ctx", "context", *taken[1:2]}
    has_context = not contexts.isdisjoint(taken)
    others_ask = any(_may_ask(each.__code__) for each in _called(function, _DEPTH))
    if not (has_context or _may_ask(code)):
        return CodeQuestions(is_closed=not others_ask)
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return UNKNOWN_CODE
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return UNKNOWN_CODE
    found = _read(definition, contexts)
    return found | CodeQuestions(is_closed=not others_ask)


def of_question(question: InterruptSpec) -> Iterator[tuple[str, str]]:
    """Yield a declared question with each name that bars people from it."""
    for name in () if question.terms is None else question.terms.not_by:
        yield question.name, name


def misnamed(
    graph: Graph, spec: GraphSpec, known: frozenset[str] = ALWAYS_KNOWN, *, is_closed: bool = True
) -> Iterator[str]:
    """Yield the faults of a built graph: names in `not_by` under which nothing asks.

    `known` are the names of the graphs around it, and `is_closed` says that these are all.
    """
    known |= spec.question_names
    is_closed = is_closed and graph.code_questions.is_closed
    bars = [*(bar for question in spec.own_questions for bar in of_question(question))]
    for question, name in (*bars, *graph.code_questions.bars) if is_closed else ():
        if name not in known:
            names = ", ".join(map(repr, sorted(known - ALWAYS_KNOWN)))
            yield (
                f"the question {question!r}, not_by=: nothing asks {name!r}, which would bar nobody: "
                f"{spec.name!r} and the graphs around it ask {names}"
            )
    for node in spec.nodes.values():
        if isinstance(node, SubgraphNode) and node.id in graph.subgraphs:
            yield from misnamed(graph.subgraphs[node.id], node.graph, known, is_closed=is_closed)


def _may_ask(code: CodeType) -> bool:
    inside = (each for each in code.co_consts if isinstance(each, CodeType))
    named = not {_ASK, _LIST, _QUESTION}.isdisjoint(code.co_names)
    return named or any(map(_may_ask, inside))


def _called(function: FunctionType, depth: int) -> Iterator[FunctionType]:
    """Yield the functions that a function may call by name, and those that these may call."""
    names = _names(function.__code__)
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [value for value in values if isinstance(value, ModuleType)]
    values += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            # It has no value yet.
            continue
    for value in values:
        if isinstance(value, FunctionType) and value is not function:
            yield value
            if depth > 1:
                yield from _called(value, depth - 1)


def _names(code: CodeType) -> set[str]:
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names}.union(*map(_names, inside))


def _read(definition: ast.AST, contexts: set[str]) -> CodeQuestions:
    names: set[str] = set()
    bars: list[tuple[str, str]] = []
    is_closed = True
    # Its own attributes say nothing; anything else that is done with a context may ask.
    harmless: set[ast.AST] = set()
    for node in ast.walk(definition):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=id_), attr=attr) as used) if (
                id_ in contexts and attr == _ASK
            ):
                harmless |= {used, used.value}
            case ast.Call(func=ast.Name(id="Interrupt") | ast.Attribute(attr="Interrupt")):
                pass
            case ast.Attribute(value=ast.Name(id=id_) as used, attr=attr) if id_ in contexts:
                harmless.add(used)
                # `ctx.interrupts(...)` asks what is constructed by name.
                is_closed = is_closed and (attr != _ASK or node in harmless)
                continue
            case ast.Name(id=id_) if id_ in contexts:
                is_closed = is_closed and node in harmless
                continue
            case _:
                continue
        named = {each.arg: each.value for each in node.keywords}
        name = _literal(node.args[0] if node.args else named.get("name"))
        if not isinstance(name, str):
            is_closed = False
            continue
        names.add(name)
        match _literal(named.get("not_by")):
            case str() as other:
                bars.append((name, other))
            case list() | tuple() as others:
                bars += [(name, other) for other in others]
            case _:
                pass
    return CodeQuestions(names=frozenset(names), bars=tuple(bars), is_closed=is_closed)


def _literal(value: ast.expr | None) -> object:
    """Return what is written out; None for what is computed."""
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None
