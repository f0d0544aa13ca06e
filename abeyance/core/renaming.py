"""Rename what the rows of a run refer to, by the types of their fields.

A field of one of the types in `address` (`NodeName`, `EdgeKey`) gets the name that it has in the other
graph; every other field stays as it is. So a new field needs a type, and no rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar, assert_never, get_args, get_type_hints

from abeyance.core.address import Means
from abeyance.core.outcome import Call
from abeyance.core.places import Path, Places

_Row = TypeVar("_Row")

_OPAQUE: Final = (Call,)
"""The questions of a call lead to no node."""


@dataclass(frozen=True, slots=True)
class _Around:
    """Where a text is: in the graph at `path`, at an address, and at a visit of `node`."""

    path: Path
    address: str
    node: Path


class Renaming:
    """Gives rows the names that they have in another graph. What has no place there is an obstacle."""

    def __init__(self, to: Places) -> None:
        self._to = to

    def row(self, row: _Row, path: Path, address: str, node: Path = ()) -> _Row:
        """Return a row of the graph at `path` with its new names. `address` is where an obstacle is, and
        `node` is that of its visit.
        """
        return self._row(row, _Around(path, address, node))

    def _row(self, row: _Row, around: _Around) -> _Row:
        kind: Any = type(row)
        renamed = {
            name: self._renamed(getattr(row, name), hint, around)
            for name, hint in _referring(kind).items()
        }
        return replace(row, **renamed) if renamed else row  # type: ignore[type-var]

    def _renamed(self, value: Any, hint: Any, around: _Around) -> Any:
        hint = _if_there(hint)
        match value:
            case None:
                return None
            case str():
                return self._text(value, hint.__metadata__[0], around)
            case Mapping():
                key, each = get_args(hint)
                return {
                    self._renamed(name, key, around) if _refers(key) else name: (
                        self._renamed(held, each, around) if _refers(each) else held
                    )
                    for name, held in value.items()
                }
            case tuple() | list():
                each = get_args(hint)[0]
                return type(value)(self._renamed(held, each, around) for held in value)
            case _:
                return self._row(value, around)

    def _text(self, text: str, means: Means, around: _Around) -> str:
        match means:
            case Means.ADDRESS:
                return self._to.address(text)
            case Means.NODE:
                return self._to.names.get((*around.path, text), text)
            case Means.VISITED | Means.TARGET | Means.APPROVED:
                return self._to.node((*around.path, text), means.value, around.address)
            case Means.EDGE:
                return self._to.edge(around.path, text, around.address)
            case Means.QUESTION:
                return self._to.question(around.node, text)
            case Means.ANSWER:
                return self._to.answer(around.path, text)
            case Means.BARRING:
                return self._to.barring(around.path, text)
            case _:
                assert_never(means)


@cache
def _referring(row: type) -> Mapping[str, Any]:
    """Return the types of the fields of a row that refer to something, by name."""
    if row in _OPAQUE or not is_dataclass(row):
        return {}
    hints = get_type_hints(row, include_extras=True)
    return {name: hint for name, hint in hints.items() if _refers(hint)}


@cache
def _refers(hint: Any) -> bool:
    if isinstance(hint, Means):
        return True
    if isinstance(hint, type) and is_dataclass(hint):
        return bool(_referring(hint))
    return any(map(_refers, get_args(hint)))


def _if_there(hint: Any) -> Any:
    """Return the type that a value has if it is not None."""
    choices = get_args(hint)
    return next(filter(_refers, choices)) if type(None) in choices else hint
