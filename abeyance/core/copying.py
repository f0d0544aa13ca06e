"""Values that are frozen for everyone but one `advance`, which changes its own copies.

At run time a `changeable` class is a frozen dataclass: setting an attribute of a value raises
FrozenInstanceError. `working` makes a copy that can be changed in place, and `freeze` freezes it again.
Only `working_state` uses the two. To type checkers the class is a mutable dataclass, so the rules that
change one are checked; changing a frozen value fails at run time.

`replace` is that of `dataclasses`, for classes without `__post_init__`. It takes a tenth of the time,
because it sets only what changes; the rules call it several times for every event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = [
    "changeable",
    "derived",
    "freeze",
    "frozen",
    "is_working",
    "make_working",
    "replace",
    "working",
]

_T = TypeVar("_T")
_V = TypeVar("_V")

if TYPE_CHECKING:
    from dataclasses import dataclass as changeable
    from dataclasses import replace
else:
    from dataclasses import dataclass

    def changeable(**options: bool) -> Callable[[type], type]:
        """A frozen dataclass with slots, of whose values working copies can be made."""

        def decorated(cls: type) -> type:
            frozen = dataclass(frozen=True, **options)(cls)
            _WORKING[frozen] = _twin(frozen)
            return frozen

        return decorated

    def replace(value: _T, /, **changes: object) -> _T:
        """Return a copy of a value of a dataclass, with these changes."""
        kind = type(value)
        if kind not in _COPIED:
            _twin(kind)
        copy = _COPIED[kind](value)
        for name, changed in changes.items():
            setattr(copy, name, changed)
        freeze(copy)
        return copy


_WORKING: Final[dict[type, type]] = {}
_COPIED: Final[dict[type, Callable[[Any], Any]]] = {}
"""What makes a copy that can be changed, by the class of a value."""


def _twin(kind: type) -> type:
    """Return the class of the copies that can be changed."""
    own = {
        "__slots__": (),
        "__setattr__": object.__setattr__,
        # With both of `object`, setting an attribute calls no method.
        "__delattr__": object.__delattr__,
        "__module__": kind.__module__,
    }
    twin = type(kind.__name__, (kind,), own)
    # Written out like the methods of a dataclass: a loop would take five times as long.
    each = "".join(f"\n    copy.{entry.name} = value.{entry.name}" for entry in fields(kind))
    made: dict[str, Any] = {"new": object.__new__, "twin": twin}
    exec(f"def copied(value):\n    copy = new(twin){each}\n    return copy", made)  # noqa: S102
    _COPIED[kind] = made["copied"]
    return twin


def derived(rule: Callable[[_V, str], _T]) -> Callable[[_V, str], _T]:
    """Have a rule asked only once about a name in a frozen value, which keeps what the rule said. Its
    class has no slots.
    """

    @wraps(rule)
    def kept(value: _V, name: str) -> _T:
        known: dict[str, _T] = vars(value).setdefault(f"derived by {rule.__qualname__}", {})
        if name not in known:
            known[name] = rule(value, name)
        return known[name]

    return kept


def is_working(value: object) -> bool:
    """Return whether a value is a copy that may be changed."""
    return type(value) not in _WORKING


def working(value: _T) -> _T:
    """Return a changeable copy of a frozen value; its contents are shared."""
    copy: _T = _COPIED[type(value)](value)
    return copy


def frozen(value: _T, /, **changes: object) -> _T:
    """Return a frozen copy of a working copy, with these changes; a frozen value is returned as it is."""
    if not is_working(value):
        assert not changes  # noqa: S101 they would be lost
        return value
    copy: _T = _COPIED[type(value).__base__](value)  # type: ignore[index]
    for name, changed in changes.items():
        setattr(copy, name, changed)
    freeze(copy)
    return copy


def make_working(value: _T) -> _T:
    """Make a newly created, unshared value changeable, and return it."""
    object.__setattr__(value, "__class__", _WORKING[type(value)])
    return value


def freeze(value: object) -> None:
    """Freeze a working copy."""
    object.__setattr__(value, "__class__", type(value).__base__)
