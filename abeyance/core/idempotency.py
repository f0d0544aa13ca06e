"""Idempotency keys: a repeated call has no second effect, and gets the receipt of the first.

The run keeps the last calls that came with a key, as hashes of the key and of the whole call, each with
its receipt: across continue-as-new, and recorded with its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final, TypeAlias

from abeyance.core import answering, events, ledger, replies
from abeyance.core.json import Json, rfc3339, short_hash, why_not_json
from abeyance.core.state import Called
from abeyance.core.step import Step
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal

_MOST_KEYS: Final = 1_000
_MOST_RECEIPTS: Final = 2_000
_KEY_CHARS: Final = 200
_EXCLUDED: Final = frozenset(
    (
        *("now", "key", "capabilities", "principal", "schema_faults", "spec", "versions"),
        *("delegations", "written", "dry_run", "lasts", "vouched_until"),
        *("remember_only", "granted", "granted_bytes"),
    )
)


_RECEIPT: Final = tuple(
    each for each in fields(ledger.Receipt) if each.name not in {"replayed", "asked_again"}
)

Keys: TypeAlias = Mapping[str, Called]
"""The last calls, oldest first, by hashes of their keys."""


def earlier(keys: Keys, event: events.Event) -> Called | None:
    """Return the earlier call by the same principal with the same key and content, if there was one.

    Raises `idempotency_conflict` if the key came with anything else.
    """
    if not isinstance(event, events.Keyed) or event.key is None:
        return None
    called = keys.get(short_hash(event.key))
    if called is not None and called.digest != digest(event):
        raise conflict(event.key)
    return called


def conflict(key: str) -> Refusal:
    """Return the refusal of a key that came with another call."""
    return Refusal(
        Code.IDEMPOTENCY_CONFLICT,
        f"The key {truncate(key, _KEY_CHARS)!r} was used on this run before, for another call or by "
        "another principal: send the same call, or use another key.",
    )


def addressee(keys: Keys, key: str | None) -> str | None:
    """Return the interrupt that the call with this key answered, if it did: a repeated answer without
    an id means that one.
    """
    # No call is stored without a key.
    match keys.get(short_hash(key)):
        case Called(receipt=[{"interrupt_id": str(id_)}]):
            return id_
        case _:
            return None


def remember(step: Step, event: events.Event) -> None:
    """Store a call by its key. The oldest calls are dropped when there are too many."""
    if not isinstance(event, events.Keyed) or event.key is None:
        return
    called = Called(digest=digest(event), receipt=_receipt(step, event))
    keys = {**step.run.keys, short_hash(event.key): called}
    while len(keys) > _MOST_KEYS or sum(map(_receipts_in, keys.values())) > _MOST_RECEIPTS:
        del keys[next(iter(keys))]
    step.run.keys = keys


def digest(event: events.Keyed) -> str:
    """Return a hash of a call's content and its caller."""
    # Capabilities may change between a call and its repeat.
    content: dict[str, Any] = {n: v for n, v in asdict(event).items() if n not in _EXCLUDED}
    if isinstance(event, events.ByPrincipal):
        content["actor"] = event.principal.subject
    if content.get("on_behalf_of", "") is None:
        del content["on_behalf_of"]
    if isinstance(event, events.Migrated):
        # `request` has the patch as it was sent; this is as the model of the worker wrote it.
        del content["patch"]
    if isinstance(event, events.DeadlineEdited):
        # A timeout is a different point in time in each call.
        moment = event.deadline if event.timeout is None else None
        content["deadline"] = None if moment is None else rfc3339(moment)
    if why_not_json(content) is not None:
        return "not JSON: refused as such"
    return short_hash([type(event).__name__, content])


def _receipt(step: Step, event: events.Keyed) -> Json:
    match event:
        case events.Responded():
            return [*map(_stored, receipts(step.run.ledger, event))]
        case events.MessagesCleared():
            return len(step.run.mailbox.queue)
        case _:
            return None


def receipts(book: ledger.Ledger, event: events.Responded) -> list[ledger.Receipt]:
    """Return the receipts of these answers, if they are accepted. Raises what `check_answers` raises."""
    replays = replies.check_answers(book, event)
    return [
        replays.get(id_) or answering.receipt(book.open[id_], answer, event)
        for id_, answer in event.answers.items()
    ]


def receipts_again(called: Called) -> list[ledger.Receipt]:
    """Return the stored receipts of a repeated call."""
    assert isinstance(called.receipt, list)  # noqa: S101 the digest is that of an answer
    return [
        ledger.Receipt(**{name: _read(name, value) for name, value in each.items()}, replayed=True)
        for each in called.receipt
    ]


def _stored(receipt: ledger.Receipt) -> dict[str, Json]:
    """Return the fields of a receipt that differ from the defaults: a repeated call gets them."""
    return {
        each.name: rfc3339(value) if isinstance(value, datetime) else value
        for each in _RECEIPT
        if (value := getattr(receipt, each.name)) != each.default
    }


def _read(name: str, value: Json) -> Any:
    return datetime.fromisoformat(value) if name in {"accepted_at", "held_until"} else value


def _receipts_in(called: Called) -> int:
    return len(called.receipt) if isinstance(called.receipt, list) else 0
