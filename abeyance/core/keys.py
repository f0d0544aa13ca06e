"""The keys under which people control a run: a control that comes again has no second effect.

A signal has no id that outlives its history, so the run itself remembers the keys of the last controls,
as hashes, each with a hash of what it came with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from abeyance.core import events
from abeyance.core.canonical import sha256
from abeyance.core.draft import Draft
from abeyance.errors import Code, Refusal

_REMEMBERED: Final = 100
_HASH_CHARS: Final = 16
_SHOWN_CHARS: Final = 200
_UNSAID: Final = frozenset({"now", "key", "capabilities"})


def is_repeat(known: Mapping[str, str], event: events.Event) -> bool:
    """Whether this very control, by the same actor, came before under its key.

    Raises the Refusal `idempotency_conflict` if the key came with anything else.
    """
    if not isinstance(event, events.KEYED) or event.key is None:
        return False
    remembered = known.get(_hash(event.key))
    if remembered is not None and remembered != digest(event):
        raise Refusal(
            Code.IDEMPOTENCY_CONFLICT,
            f"The key {event.key[:_SHOWN_CHARS]!r} was used on this run before, for another call or by "
            "somebody else. Send the same call, or another key.",
        )
    return remembered is not None


def remember(draft: Draft, event: events.Event) -> None:
    """Know the key of a control from now on. The oldest is forgotten when there are too many."""
    if not isinstance(event, events.KEYED) or event.key is None:
        return
    known = {**draft.state.controls, _hash(event.key): digest(event)}
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
    draft.change(controls=known)


def digest(event: events.Paused | events.Resumed | events.CancelRequested) -> str:
    """A hash of what a control says and of who says it."""
    # What an actor may do can change between two calls that are the same.
    said = {name: value for name, value in asdict(event).items() if name not in _UNSAID}
    return _hash([type(event).__name__, said])


def _hash(value: object) -> str:
    return sha256(value).removeprefix("sha256:")[:_HASH_CHARS]
