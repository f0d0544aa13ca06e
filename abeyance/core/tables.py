"""Rows by key, and indices that find those that belong together without looking at the rest.

A fan-out has thousands of visits and questions, and an event changes a few of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NoReturn, TypeAlias, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
ALL: Final = "all"
"""The group of an index that has one group."""


@dataclass(frozen=True, eq=False)
class Index(Generic[_V]):
    """Groups rows. In a group the oldest comes first, unless `order` says otherwise."""

    groups: Callable[[_V], tuple[Any, ...]]
    order: Callable[[_V], Any] | None = None


_Group: TypeAlias = tuple[Index[Any], Any]
"""One group of one index."""


class Table(dict[_K, _V]):
    """A dictionary in the order in which its keys came, with the indices of its class.

    Put a row in, or take it out, by its key. After a change of a row in place call `moved`.
    """

    ROW: ClassVar[Any]
    INDICES: ClassVar[tuple[Index[Any], ...]]
    __slots__ = ("_at", "_keys", "_next", "_numbers", "_places")

    def __init__(self, rows: Mapping[_K, _V] | None = None) -> None:
        super().__init__()
        self._next = 1
        self._numbers: dict[_K, int] = {}
        self._keys: dict[int, _K] = {}
        self._places: dict[_Group, list[Any]] = {}
        self._at: dict[_K, dict[_Group, Any]] = {}
        for key, row in (rows or {}).items():
            self[key] = row

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Read and write the rows as a plain dictionary; the owner of the table makes a table of it
        again.
        """
        del source
        return handler(dict[str, cls.ROW])  # type: ignore[name-defined] # named by each class

    def __setitem__(self, key: _K, row: _V) -> None:
        if key not in self:
            self._numbers[key], self._keys[self._next] = self._next, key
            self._next += 1
        super().__setitem__(key, row)
        self.moved(key)

    def __delitem__(self, key: _K) -> None:
        super().__delitem__(key)
        self._place(key, {})
        del self._at[key], self._keys[self._numbers.pop(key)]

    def clear(self) -> None:
        for key in [*self]:
            del self[key]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what would change the rows without their places in the indices."""
        raise TypeError("put a row in by table[key] = row, and take it out by del table[key]")

    pop = popitem = setdefault = update = __ior__ = _refuse

    def moved(self, key: _K) -> None:
        """Find the places of a row in the indices again."""
        row, number = self[key], self._numbers[key]
        places: dict[_Group, Any] = {}
        for index in self.INDICES:
            for name in index.groups(row):
                place = number if index.order is None else (index.order(row), number)
                places[index, name] = place
        self._place(key, places)

    def _place(self, key: _K, new: dict[_Group, Any]) -> None:
        old = self._at.get(key, {})
        self._at[key] = new
        for group, place in old.items():
            if new.get(group) != place:
                places = self._places[group]
                del places[bisect_left(places, place)]
                if not places:
                    del self._places[group]
        for group, place in new.items():
            if old.get(group) != place:
                insort(self._places.setdefault(group, []), place)

    def found(self, index: Index[Any], name: Any, most: int | None = None) -> list[_V]:
        """Return the rows of a group, in its order; the first ones, if `most` says how many."""
        return [self[self._key(index, place)] for place in self._group(index, name)[:most]]

    def first(self, index: Index[Any], name: Any) -> _V | None:
        """Return the first row of a group, None if it has none."""
        return next((self[self._key(index, place)] for place in self._group(index, name)), None)

    def after(self, index: Index[Any], name: Any, place: Any) -> tuple[Any, _V] | None:
        """Return the first row of a group behind a place, with its own place."""
        places = self._group(index, name)
        for behind in places[bisect_right(places, place) :][:1]:
            return behind, self[self._key(index, behind)]
        return None

    def count(self, index: Index[Any], name: Any) -> int:
        return len(self._group(index, name))

    def number(self, key: _K) -> int:
        """Return the place of a row in the order in which all rows came."""
        return self._numbers[key]

    def _group(self, index: Index[Any], name: Any) -> list[Any]:
        return self._places.get((index, name), [])

    def _key(self, index: Index[Any], place: Any) -> _K:
        return self._keys[place if index.order is None else place[1]]
