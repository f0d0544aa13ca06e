"""Questions that the source of a node asks again under the same name, found before a run asks them.

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
from types import CodeType
from typing import Any, Final

_ASK: Final = "interrupt"
_QUESTION: Final = "Interrupt"
_LEAVES: Final = (ast.Return, ast.Raise, ast.Break)
_INSIDE: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_EITHER: Final = (ast.IfExp, ast.BoolOp)
"""What is in them may not be evaluated, so nothing in them is certain."""
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


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
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return ()
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return ()
    parameters = [each.arg for each in (*definition.args.posonlyargs, *definition.args.args)]
    source = _Source({"ctx", "context", *parameters[1:2]})
    return tuple(dict.fromkeys([*source.of(definition.body), *_listed(definition)]))


def _may_ask(code: CodeType) -> bool:
    # A comprehension has code of its own.
    inside = (each for each in code.co_consts if isinstance(each, CodeType))
    return not {_ASK, _QUESTION}.isdisjoint(code.co_names) or any(map(_may_ask, inside))


class _Source:
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
