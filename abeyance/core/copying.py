"""Values that are frozen for everybody but one `advance`, which changes copies of its own.

A class that is `changeable` is a frozen dataclass when it runs: to set an attribute of a value raises
FrozenInstanceError. `working` makes a copy that may be changed in place, and `freeze` makes that a value
like any other. Only `draft` uses the two. Type checkers see a dataclass that can be changed, so the
rules are checked where they change one; who tries it with a frozen value learns it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["changeable", "freeze", "is_working", "make_working", "working"]

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
    """Whether a value is a copy that may be changed."""
    return type(value) not in _WORKING


def working(value: _T) -> _T:
    """A copy of a frozen value that may be changed; what is in it is shared."""
    kind = type(value)
    copy: _T = object.__new__(_WORKING[kind])
    for get, put in _SLOTS[kind]:
        put(copy, get(value))
    return copy


def make_working(value: _T) -> _T:
    """The same value, which was made just now and which nobody else has, to be changed."""
    object.__setattr__(value, "__class__", _WORKING[type(value)])
    return value


def freeze(value: object) -> None:
    """Nobody changes this copy any more."""
    object.__setattr__(value, "__class__", type(value).__base__)
