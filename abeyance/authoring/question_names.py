"""The names under which the code of a graph asks, as its source shows them, and who may not answer.

`not_by` names questions, and a name that nothing asks under would bar nobody. So a graph keeps the names
that its code writes out, and refuses others where no code can ask under a name that is computed.

A visit finds the answer to `ctx.interrupt("amount")` by the name, so a second question of that name in
one visit is an author's error. What is found is a name written out in the code that is asked on one way
through the function more than once: in a loop that goes on afterwards, or twice in a row. Code without
source, and names that are computed, are left to the run.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_LEAVES: Final = (ast.Return, ast.Raise, ast.Break)
_INSIDE: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_EITHER: Final = (ast.IfExp, ast.BoolOp)
"""What is in them may not be evaluated, so nothing in them is certain."""
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


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
    if (definition := _definition(function)) is None:
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


def _definition(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the source of a function, None if there is none."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return None
    return definition if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) else None


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


def repeated_faults(function: Callable[..., Any], label: str) -> Iterator[str]:
    """Yield the faults of a node's function that asks the same question twice in one visit."""
    for question in _repeated_questions(function):
        yield (
            f"{label} asks {question!r} again in the same visit, whose answers are found by "
            "name: end the loop after the question, or give each one a name of its own, as "
            f'f"{question}-{{n}}"'
        )


def _repeated_questions(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names that the function certainly asks, or would ask if its loop went on, twice."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType) or not _may_ask(code):
        return ()
    if (definition := _definition(function)) is None:
        return ()
    parameters = [each.arg for each in (*definition.args.posonlyargs, *definition.args.args)]
    repeated = _RepeatedNames({"ctx", "context", *parameters[1:2]})
    return tuple(dict.fromkeys([*repeated.of(definition.body), *_listed(definition)]))


class _RepeatedNames:
    """The statements of a function. `contexts` are the names that its Context may have."""

    def __init__(self, contexts: set[str]) -> None:
        self._contexts = contexts

    def of(
        self, block: Sequence[ast.stmt], asked: Iterable[str] = (), *, goes_on: bool = False
    ) -> Iterator[str]:
        """Yield the repeated names of a block, before which `asked` were asked.

        `goes_on` says that the block is in a loop that begins again after it.
        """
        before = {*asked}
        for index, statement in enumerate(block):
            left = any(isinstance(each, _LEAVES) for each in block[index:])
            again = goes_on and not left
            names, looped = self._names(statement)
            yield from looped
            repeats = again or isinstance(statement, ast.While)
            yield from (name for name in names if repeats or name in before)
            before |= names
            is_loop = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
            for name, part in _blocks(statement):
                yield from self.of(part, before, goes_on=again or (is_loop and name == "body"))

    def _names(self, statement: ast.stmt) -> tuple[set[str], set[str]]:
        """What a statement asks without the blocks in it, and what it asks in a comprehension."""
        names: set[str] = set()
        looped: set[str] = set()
        todo: list[tuple[ast.AST, bool]] = [(statement, False)]
        while todo:
            node, in_loop = todo.pop()
            if isinstance(node, ast.Call) and (name := self._asked(node)) is not None:
                (looped if in_loop else names).add(name)
            if isinstance(node, (*_INSIDE, *_EITHER)):
                continue
            in_loop = in_loop or isinstance(node, _COMPREHENSIONS)
            todo += [
                (child, in_loop)
                for child in ast.iter_child_nodes(node)
                if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
            ]
        return names, looped

    def _asked(self, call: ast.Call) -> str | None:
        match call.func:
            case ast.Attribute(value=ast.Name(id=context), attr="interrupt"):
                return _name_of(call) if context in self._contexts else None
            case _:
                return None


def _blocks(statement: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    if isinstance(statement, _INSIDE):
        return
    for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            yield name, getattr(part, name, [])


def _listed(definition: ast.AST) -> Iterator[str]:
    for node in ast.walk(definition):
        if isinstance(node, ast.List | ast.Tuple):
            counts = Counter(filter(None, map(_question, node.elts)))
            yield from (name for name, count in counts.items() if count > 1)


def _question(node: ast.expr) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id="Interrupt") | ast.Attribute(attr="Interrupt")):
            return _name_of(node)
        case _:
            return None


def _name_of(call: ast.Call) -> str | None:
    named = {each.arg: each.value for each in call.keywords}
    if None in named or "process" in named:
        return None
    match call.args[0] if call.args else named.get("name"):
        case ast.Constant(value=str() as name):
            return name
        case _:
            return None
