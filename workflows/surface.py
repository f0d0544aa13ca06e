"""What a run shows of itself in Temporal: memo, search attributes, current details, timer text.

Pure projections of the state, each within the server's budget, because the server does not refuse
what is too large: it ends the run. A memo may hold 2 MB in all and a search attribute 2 KB; we stay
far below both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from abeyance import wire
from abeyance.core.canonical import Json, size
from abeyance.core.effects import Publish
from abeyance.core.ledger import Interrupt
from abeyance.core.state import Phase, RunState
from abeyance.views import on_timeout_text

_MEMO_BYTES = 48_000
_MEMO_ROWS = 50
_FACTS_BYTES = 8_000
_ATTRIBUTE_BYTES = 1_500
_PROMPT_CHARS = 200
_FIELD_CHARS = 300
_DETAILS_ROWS = 20
_FAR = "9999"
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, among them those that turn the direction of writing, and halves of characters."""


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
        "reason": ending and _cut(ending.reason or "", _FIELD_CHARS),
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
            then = on_timeout_text(entry.on_timeout)
            return _cut(
                f"deadline of {entry.name}: {then if isinstance(then, str) else 'default'}", 200
            )
    return "grace of the ending" if state.ending is not None else "deadline of the pause"


def details(state: RunState, start: wire.StartRun) -> str:
    """Markdown for Temporal's UI: what the run waits for, until when, and how to answer."""
    reason = state.ending and state.ending.reason
    lines = [f"**{state.status}**" + (f": {code(reason)}" if reason else "")]
    if state.pause is not None:
        lines.append(
            f"Paused by {code(state.pause.actor)} since {_time(state.pause.since)}"
            + (f": {code(state.pause.reason)}" if state.pause.reason else "")
            + ". Send the signal `resume` (no argument) to go on."
        )
    running = [visit.address for visit in state.in_phase(Phase.RUNNING)]
    if running:
        lines.append("Running: " + ", ".join(code(address) for address in running[:_DETAILS_ROWS]))
    entries = nearest_first(state)
    if entries:
        lines.append(f"Waits for {len(entries)} answer{'s' if len(entries) > 1 else ''}:")
    lines += [_asked(entry, start) for entry in entries[:_DETAILS_ROWS]]
    if len(entries) > _DETAILS_ROWS:
        lines.append(f"... and {len(entries) - _DETAILS_ROWS} more: see the query `interrupts`.")
    return "\n\n".join(lines)


def nearest_first(state: RunState) -> list[Interrupt]:
    """The open interrupts by deadline, those without one last."""
    return sorted(
        state.ledger.open.values(),
        key=lambda entry: (entry.deadline.isoformat() if entry.deadline else _FAR, entry.number),
    )


def code(text: str | None) -> str:
    """A text as a code span of Markdown, in which nothing is a link, an image or HTML."""
    flat = " ".join(_UNSEEN.sub(" ", text or "").split()).replace("`", "'")
    # Two backticks without a text between them would open a longer span, up to the next such pair.
    return f"`{_cut(flat, _FIELD_CHARS)}`" if flat else "(nothing)"


def _asked(entry: Interrupt, start: wire.StartRun) -> str:
    until = f"until {_time(entry.deadline)}" if entry.deadline else "without a deadline"
    text = f"- {code(entry.prompt)}\n  - {code(entry.name)} at {code(entry.address)}, {until}"
    if entry.requested_capability is None:
        how = (
            'send the update `respond` with `{"interrupt_id": "' + entry.id + '", "response": ...}`'
        )
    else:
        how = (
            f"asks for the capability {code(entry.requested_capability)}, so answer through the API: "
            f"`POST /runs/{start.run_id}/respond`"
        )
    return f"{text}\n  - id {code(entry.id)}; {how}"


def _row(entry: Interrupt) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": _cut(entry.name, _FIELD_CHARS),
        "kind": entry.kind,
        "address": _cut(entry.address, _FIELD_CHARS),
        "capability": entry.requested_capability,
        "prompt": _cut(entry.prompt, _PROMPT_CHARS),
        "created_at": entry.created_at.isoformat(),
        "deadline": entry.deadline and entry.deadline.isoformat(),
        "digest": entry.digest,
    }


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
