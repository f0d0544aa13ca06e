"""Collections of which a changed copy costs what was changed, not what they hold.

A fan-out has thousands of visits, items and questions, and an event changes a few of them. The run
before the event stays as it was, so its collections are not changed in place.

A `Table` has what a run holds, in the order in which it came, and finds by an `Index` what belongs
together without looking at the rest. A `Row` has the items of a fan-out. Only the `advance` that made a
copy changes it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar, overload

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
ALL: Final = "all"
"""The group of an index that has one group."""


@dataclass(frozen=True, eq=False)
class Index(Generic[_V]):
    """Which values of a table belong together: those that have a group in common. The oldest comes first,
    unless `order` says otherwise.
    """

    groups: Callable[[_V], tuple[Any, ...]]
    order: Callable[[_V], Any] | None = None


class _Entry(NamedTuple):
    """A value, which came as the `number`th, and where it stands in each group of each index."""

    number: int
    value: Any
    places: Mapping[tuple[Index[Any], Any], Any] = MappingProxyType({})

    def place(self, index: Index[Any]) -> Any:
        """Return by what it is ordered in an index."""
        return self.number if index.order is None else (index.order(self.value), self.number)

    def placed(self, indices: tuple[Index[Any], ...]) -> _Entry:
        """Return the entry with its places."""
        number, value = self.number, self.value
        places = {
            (index, group): number if index.order is None else self.place(index)
            for index in indices
            for group in index.groups(value)
        }
        return _Entry(number, value, places)


@dataclass(slots=True)
class _Store:
    """What the latest version of a table holds, and the places of each group in order."""

    entries: dict[Any, _Entry] = field(default_factory=dict)
    keys: dict[int, Any] = field(default_factory=dict)
    places: dict[tuple[Index[Any], Any], list[Any]] = field(default_factory=dict)

    def put(self, key: Any, entry: _Entry | None) -> None:
        """Replace, add or remove an entry."""
        before = self.entries.pop(key, None) if entry is None else self.entries.get(key)
        old = {} if before is None else before.places
        new = {} if entry is None else entry.places
        if before is not None:
            del self.keys[before.number]
        if entry is not None:
            self.entries[key], self.keys[entry.number] = entry, key
        if old == new:
            return
        for group, place in old.items():
            if new.get(group) != place:
                places = self.places[group]
                del places[bisect_left(places, place)]
                if not places:
                    del self.places[group]
        for group, place in new.items():
            if old.get(group) != place:
                insort(self.places.setdefault(group, []), place)


class _Version:
    """A table at one time. The latest version has the store; an earlier one knows how it differs from the
    next, and makes a store of its own if somebody still reads it.
    """

    _next: _Version
    _undo: Mapping[Any, _Entry | None]

    def __init__(self, store: _Store) -> None:
        self.store = store

    @cached_property
    def store(self) -> _Store:
        """What the table holds."""
        version, undone = self, dict[Any, _Entry | None]()
        while "store" not in vars(version):
            # What the earliest of these versions knows of an entry counts.
            undone = {**version._undo, **undone}
            version = version._next
        entries = {**version.store.entries, **undone}
        known = [(key, entry) for key, entry in entries.items() if entry is not None]
        store = _Store()
        for key, entry in sorted(known, key=lambda each: each[1].number):
            store.put(key, entry)
        del self._next, self._undo
        return store

    def changed(self, changes: Mapping[Any, _Entry | None]) -> _Version:
        """Return the next version."""
        store = self.store
        self._undo = {key: store.entries.get(key) for key in changes}
        for key, entry in changes.items():
            store.put(key, entry)
        del self.store
        self._next = _Version(store)
        return self._next


class Table(MutableMapping[_K, _V]):
    """A mapping in the order in which its keys came.

    What a draft has changed is in no index before it is settled, because it may still change in place.
    """

    INDICES: ClassVar[tuple[Index[Any], ...]] = ()
    __slots__ = ("_last", "_recent", "_version")

    def __init__(self, entries: Mapping[_K, _V] | None = None) -> None:
        self._version = _Version(_Store())
        self._recent: dict[_K, _Entry | None] = {}
        self._last = 0
        self.update(entries or {})
        self.settle()

    def copied(self, each: Callable[[_V], _V] | None = None) -> Self:
        """Return a copy, in which `each` has been applied to what is not settled."""
        copy = object.__new__(type(self))
        copy._version, copy._last, copy._recent = self._version, self._last, {**self._recent}
        for key, entry in self._recent.items():
            if entry is not None and each is not None:
                copy._recent[key] = _Entry(entry.number, each(entry.value))
        return copy

    def settle(self) -> None:
        """Put what was changed into the indices. It may not change in place any more."""
        if self._recent:
            placed = {
                key: None if entry is None else entry.placed(self.INDICES)
                for key, entry in self._recent.items()
            }
            self._version, self._recent = self._version.changed(placed), {}

    def found(self, index: Index[Any], group: Any, most: int | None = None) -> list[_V]:
        """Return what an index has in a group, in its order; the first ones, if `most` says how many."""
        store, recent = self._version.store, self._recent
        entries: list[_Entry] = []
        for place in store.places.get((index, group), ()):
            if len(entries) == most:
                break
            key = store.keys[place if index.order is None else place[1]]
            if key not in recent:
                entries.append(store.entries[key])
        own = [e for e in recent.values() if e is not None and group in index.groups(e.value)]
        if own:
            entries = sorted([*entries, *own], key=lambda entry: entry.place(index))
        return [entry.value for entry in entries[:most]]

    def number(self, key: _K) -> int:
        """Return as the how manyth a key came, of all that ever came."""
        return (self._recent.get(key) or self._version.store.entries[key]).number

    def following(
        self, index: Index[Any], *groups: Any, after: Any = None
    ) -> tuple[Any, _V] | None:
        """Return what comes first in these groups of an index, or first after a place; with its place."""
        store, recent = self._version.store, self._recent
        found: list[_Entry] = [
            entry
            for entry in recent.values()
            if entry is not None
            and (after is None or entry.place(index) > after)
            and not set(groups).isdisjoint(index.groups(entry.value))
        ]
        for group in groups:
            places = store.places.get((index, group), ())
            for at in range(0 if after is None else bisect_right(places, after), len(places)):
                place = places[at]
                key = store.keys[place if index.order is None else place[1]]
                if key not in recent:
                    found.append(store.entries[key])
                    break
        first = min(found, key=lambda entry: entry.place(index), default=None)
        return None if first is None else (first.place(index), first.value)

    def first(self, index: Index[Any], group: Any) -> _V | None:
        """Return what comes first in a group of an index, None if nothing is in it."""
        if self._recent:
            found = self.following(index, group)
            return None if found is None else found[1]
        store = self._version.store
        for place in store.places.get((index, group), ()):
            key = store.keys[place if index.order is None else place[1]]
            value: _V = store.entries[key].value
            return value
        return None

    def count(self, index: Index[Any], group: Any) -> int:
        """Return how many an index has in a group."""
        store, at = self._version.store, (index, group)
        number = len(store.places.get(at, ()))
        for key, entry in self._recent.items():
            before = store.entries.get(key)
            number -= before is not None and at in before.places
            number += entry is not None and group in index.groups(entry.value)
        return number

    def groups(self, index: Index[Any]) -> set[Any]:
        """Return the groups of an index that have a value."""
        known = {group for of, group in self._version.store.places if of is index}
        for entry in self._recent.values():
            known.update(() if entry is None else index.groups(entry.value))
        return {group for group in known if self.count(index, group)}

    def is_like(self, before: Mapping[_K, _V]) -> bool:
        """Return whether nothing has changed since this was copied from another table."""
        is_same = isinstance(before, Table) and before._version is self._version  # noqa: SLF001 its own class
        return is_same and all(before.get(key) == self.get(key) for key in self._recent)

    def _entry(self, key: _K) -> _Entry | None:
        recent = self._recent
        return recent[key] if key in recent else self._version.store.entries.get(key)

    def __getitem__(self, key: _K) -> _V:
        # As in `_entry`: nothing else is called as often.
        recent = self._recent
        entry = recent[key] if key in recent else self._version.store.entries.get(key)
        if entry is None:
            raise KeyError(key)
        value: _V = entry.value
        return value

    def __contains__(self, key: object) -> bool:
        return self._entry(key) is not None  # type: ignore[arg-type]

    def __setitem__(self, key: _K, value: _V) -> None:
        if (entry := self._entry(key)) is None:
            self._last += 1
        number = self._last if entry is None else entry.number
        self._recent[key] = _Entry(number, value)

    def __delitem__(self, key: _K) -> None:
        if self._entry(key) is None:
            raise KeyError(key)
        self._recent[key] = None

    def __iter__(self) -> Iterator[_K]:
        known: dict[_K, _Entry | None] = {**self._version.store.entries, **self._recent}
        keys = {entry.number: key for key, entry in known.items() if entry is not None}
        return (keys[number] for number in sorted(keys))

    def __len__(self) -> int:
        entries = self._version.store.entries
        recent = self._recent.items()
        return len(entries) + sum((each is not None) - (key in entries) for key, each in recent)

    def clear(self) -> None:
        """Remove everything."""
        for key in self:
            del self[key]


class Row(Sequence[_V]):
    """A sequence of a fixed length, of which a copy may be changed in place."""

    __slots__ = ("_lower", "_upper")

    def __init__(self, values: Sequence[_V] = ()) -> None:
        self._lower: Sequence[_V] = values
        self._upper: dict[int, _V] = {}

    @classmethod
    def of(cls, values: Sequence[_V]) -> Row[_V]:
        """Return these values as a row."""
        return values if isinstance(values, cls) else cls(values)

    def copied(self, each: Callable[[_V], _V] | None = None) -> Row[_V]:
        """Return a copy, in which `each` has been applied to the latest changes."""
        upper = {i: v if each is None else each(v) for i, v in self._upper.items()}
        if len(upper) ** 2 > len(self._lower):
            # Each change costs the root of the length: it copies so many, or has a part in this.
            return Row([upper.get(index, value) for index, value in enumerate(self._lower)])
        copy = Row(self._lower)
        copy._upper = upper
        return copy

    def put(self, index: int, value: _V) -> None:
        """Replace a value."""
        self._upper[index] = value

    @overload
    def __getitem__(self, index: int) -> _V: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_V]: ...
    def __getitem__(self, index: int | slice) -> _V | Sequence[_V]:
        if isinstance(index, slice):
            return tuple(self)[index]
        index = range(len(self._lower))[index]
        return self._upper[index] if index in self._upper else self._lower[index]

    def __iter__(self) -> Iterator[_V]:
        upper = self._upper
        return (upper.get(index, value) for index, value in enumerate(self._lower))

    def __len__(self) -> int:
        return len(self._lower)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]
