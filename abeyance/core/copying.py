"""Values that are frozen for everyone but one `advance`, which changes its own copies.

At run time a `changeable` class is a frozen dataclass: setting an attribute of a value raises
FrozenInstanceError. `working` makes a copy that can be changed in place, and `freeze` freezes it again.
Only `working_state` uses the two. To type checkers the class is a mutable dataclass, so the rules that
change one are checked; changing a frozen value fails at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["changeable", "freeze", "frozen", "is_working", "make_working", "working"]

_T = TypeVar("_T")

if TYPE_CHECKING:
    from dataclasses import dataclass as changeable
else:
    from dataclasses import dataclass

    def changeable(**options: bool) -> Callable[[type], type]:
        """A frozen dataclass with slots, of whose values working copies can be made."""

        def decorated(cls: type) -> type:
            frozen = dataclass(frozen=True, **options)(cls)
            own = {"__slots__": (), "__setattr__": object.__setattr__, "__module__": cls.__module__}
            _WORKING[frozen] = type(cls.__name__, (frozen,), own)
            names = [each.name for each in fields(frozen)]
            _SLOTS[frozen] = [(attrgetter(name), getattr(frozen, name).__set__) for name in names]
            return frozen

        return decorated


_WORKING: Final[dict[type, type]] = {}
_SLOTS: Final[dict[type, list[tuple[Any, Any]]]] = {}


def is_working(value: object) -> bool:
    """Return whether a value is a copy that may be changed."""
    return type(value) not in _WORKING


def working(value: _T) -> _T:
    """Return a changeable copy of a frozen value; its contents are shared."""
    kind = type(value)
    copy: _T = object.__new__(_WORKING[kind])
    for get, put in _SLOTS[kind]:
        put(copy, get(value))
    return copy


def frozen(value: _T) -> _T:
    """Return a frozen copy of a working copy, or the value itself if it is frozen."""
    if not is_working(value):
        return value
    kind: Any = type(value).__base__
    copy: _T = object.__new__(kind)
    for get, put in _SLOTS[kind]:
        put(copy, get(value))
    return copy


def make_working(value: _T) -> _T:
    """Make a newly created, unshared value changeable, and return it."""
    object.__setattr__(value, "__class__", _WORKING[type(value)])
    return value


def freeze(value: object) -> None:
    """Freeze a working copy."""
    object.__setattr__(value, "__class__", type(value).__base__)
