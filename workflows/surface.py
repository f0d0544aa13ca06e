"""What a run shows of itself in Temporal: memo, search attributes, the texts of timer and failure.

Pure projections of the state, each within the server's budget, because the server does not refuse
what is too large: it ends the run. A memo may hold 2 MB in all and a search attribute 2 KB; we stay
far below both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from abeyance import wire
from abeyance.core.canonical import Json, size
from abeyance.core.effects import Publish
from abeyance.core.ledger import Interrupt
from abeyance.core.model import OnTimeout
from abeyance.core.state import Failure, RunState
from abeyance.views import on_timeout_text

_MEMO_BYTES = 48_000
_MEMO_ROWS = 50
_FACTS_BYTES = 8_000
_ATTRIBUTE_BYTES = 1_500
_PROMPT_CHARS = 200
_FIELD_CHARS = 300
_FAR = "9999"


def memo_rows(state: RunState) -> dict[str, Json]:
    """The open interrupts for the memo, by key: the nearest deadlines first, within the budget."""
    rows: dict[str, Json] = {}
    spent = 0
    for entry in nearest_first(state):
        row = _row(entry)
        spent += size(row) + len(entry.id) + 100
        if len(rows) == _MEMO_ROWS or spent > _MEMO_BYTES:
            break
        rows[f"{wire.MEMO_INTERRUPT}{entry.id}"] = row
    return rows


def memo_summary(state: RunState, rows: Mapping[str, Json]) -> dict[str, Json]:
    """The run in a few words, for lists that must not wake a worker."""
    ending = state.ending
    deadline = state.next_deadline()
    return {
        "status": str(state.status),
        "paused": state.pause is not None,
        "open": len(state.ledger.open),
        "more": len(state.ledger.open) - len(rows),
        "queue_depth": len(state.mailbox.queue),
        "deadline": deadline and deadline.isoformat(),
        "reason": ending and cut(ending.reason or "", _FIELD_CHARS),
        "updated_at": state.updated_at.isoformat(),
    }


def fact_batches(facts: Sequence[Publish]) -> Iterator[list[Json]]:
    """The facts in batches that fit beside the rest of the memo, in order."""
    batch: list[Json] = []
    spent = 0
    for fact in facts:
        row = {
            "n": fact.number,
            "time": fact.time.isoformat(),
            "type": fact.type,
            "address": fact.address,
            "actor": fact.actor,
            "data": fact.data,
        }
        spent += size(row)
        if batch and spent > _FACTS_BYTES:
            yield batch
            batch, spent = [], size(row)
        batch.append(row)
    if batch:
        yield batch


def capabilities(state: RunState) -> list[str]:
    """The capabilities that open interrupts ask for; `*` alone if they are too many to list."""
    asked = {entry.requested_capability for entry in state.ledger.open.values()}
    return within_attribute(sorted(name for name in asked if name is not None))


def within_attribute(names: list[str]) -> list[str]:
    """A list that fits a search attribute: itself, or `*`, which says: look in the view."""
    return names if sum(len(name.encode()) + 8 for name in names) <= _ATTRIBUTE_BYTES else ["*"]


def interrupt_deadline(state: RunState) -> datetime | None:
    """The nearest deadline of an open interrupt."""
    due = [entry.deadline for entry in state.ledger.open.values() if entry.deadline is not None]
    return min(due, default=None)


def timer_summary(state: RunState) -> str:
    """What the deadline timer is for, as Temporal's UI shows it beside the timer."""
    moment = state.next_deadline()
    for entry in state.ledger.open.values():
        if entry.deadline == moment:
            return cut(f"deadline of {entry.name}: {_short(entry.on_timeout)}", 200)
    return "grace of the ending" if state.ending is not None else "deadline of the pause"


def failure_message(failure: Failure | None) -> str:
    """The message with which a failed run ends in Temporal: what failed, and where."""
    if failure is None:
        return "the run failed"
    return f"{failure.address}: {failure.message}" if failure.address else failure.message


def nearest_first(state: RunState) -> list[Interrupt]:
    """The open interrupts by deadline, those without one last."""
    return sorted(
        state.ledger.open.values(),
        key=lambda entry: (entry.deadline.isoformat() if entry.deadline else _FAR, entry.number),
    )


def _short(policy: OnTimeout) -> str:
    # A default answer is an answer, and those are shown to nobody.
    text = on_timeout_text(policy)
    return text if isinstance(text, str) else "default"


def _row(entry: Interrupt) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": cut(entry.name, _FIELD_CHARS),
        "kind": entry.kind,
        "address": cut(entry.address, _FIELD_CHARS),
        "capability": entry.requested_capability,
        "prompt": cut(entry.prompt, _PROMPT_CHARS),
        "created_at": entry.created_at.isoformat(),
        "deadline": entry.deadline and entry.deadline.isoformat(),
        "digest": entry.digest,
    }


def cut(text: str, most: int) -> str:
    """The text, with dots at its end if it had more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
