"""The current details of a run in Temporal's UI: Markdown for the person who has to act.

Temporal's UI drops nested list items and does not wrap code blocks, so each question has a heading, and
code is in spans. Text of authors, callers and approvers is always in a code span, which disables markup;
invisible characters are shown by their code points. The query `state` says the rest.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from abeyance import projections, wire
from abeyance.core.json import canonical
from abeyance.core.ledger import NEAREST, Interrupt
from abeyance.core.spec import Default, GoTo, Halt, OnPauseTimeout, OnTimeout, ResumeRun
from abeyance.core.state import RunState
from abeyance.core.tables import ALL
from abeyance.core.terms import KINDS
from abeyance.core.text import truncate, visible
from abeyance.core.visit import Running

_QUESTIONS: Final = 10
_RUNNING: Final = 20
_BLOCKED: Final = 5
_FIELD_CHARS: Final = 300
_PROMPT_CHARS: Final = 1_200
_PROMPT_LINES: Final = 20
_APPROVES: Final = '{"approved": true}'
_REJECTS: Final = '{"approved": false, "reason": "..."}'


def details(state: RunState, start: wire.StartRun) -> str:
    """Return Markdown with open questions, deadlines, and how to answer."""
    parts = [_standing(state)]
    running = [visit.address for visit in state.visits_in(Running)]
    if running:
        more = f" and {len(running) - _RUNNING} more" if len(running) > _RUNNING else ""
        shown = ", ".join(code(address) for address in running[:_RUNNING])
        parts.append(f"Running: {shown}{more}")
    for why in projections.blocked_visits(state)[:_BLOCKED]:
        since = "" if why.since is None else f" since {_time(why.since)}"
        parts.append(f"**Blocked**{since} at {code(why.address)}: {code(why.message)}")
    if asked := len(state.ledger.open):
        parts.append(f"Waits for {asked} answer{'s' if asked > 1 else ''}:")
    nearest = state.ledger.open.found(NEAREST, ALL, _QUESTIONS)
    for number, entry in enumerate(nearest, start=1):
        parts += _asked(number, entry, start)
    if asked > _QUESTIONS:
        parts.append(f"... and {asked - _QUESTIONS} more: see the inbox.")
    parts.append(f"Started by {code(start.started_by)}.")
    if state.ending is None:
        other = "" if state.pause is not None else "`pause` stops it for a while, "
        parts.append(f"Signals, without an argument: {other}`cancel` ends it gracefully.")
    return "\n\n".join(parts)


def code(text: str | None, *, most: int = _FIELD_CHARS) -> str:
    """Return a text as a Markdown code span."""
    flat = visible(" ".join((text or "").split())).replace("`", "'")
    # Two backticks without a text in between would open a longer span.
    return f"`{truncate(flat, most)}`" if flat else "(nothing)"


def _standing(state: RunState) -> str:
    ending, pause = state.ending, state.pause
    text = f"**{state.status}**"
    if ending is not None:
        if not state.finished:
            text += f" as {ending.outcome}"
        if ending.error is not None and ending.error.address is not None:
            text += f" at {code(ending.error.address)}"
        if ending.reason:
            text += f": {code(ending.reason)}"
        if ending.outcome == "cancelled" and ending.actor is not None:
            text += f", by {code(ending.actor)}"
        return text
    if pause is None:
        return text
    text += f" by {code(pause.actor)} since {_time(pause.since)}"
    if pause.reason:
        text += f": {code(pause.reason)}"
    if pause.deadline is not None:
        text += f"; {_then(pause.deadline, pause.on_timeout)}"
    return f"{text}\n\nTo go on, send the signal `resume` (no argument). Answers count meanwhile."


def _asked(number: int, entry: Interrupt, start: wire.StartRun) -> list[str]:
    # A code span swallows line breaks, so each line is its own span.
    prompt = truncate(entry.prompt, _PROMPT_CHARS)
    lines = [line for line in prompt.splitlines() if line.strip()] or [""]
    facts = [f"asked at {code(entry.address)}"]
    is_cut = len(entry.prompt) > _PROMPT_CHARS or len(lines) > _PROMPT_LINES
    match entry.reason:
        case {"tool": str(tool), "arguments": arguments} if KINDS[entry.kind].asked_by == "call":
            text = canonical(arguments)
            is_cut = is_cut or len(text) > _PROMPT_CHARS
            if text not in prompt:
                facts.append(f"about the tool {code(tool)} with {code(text, most=_PROMPT_CHARS)}")
        case _:
            pass
    if is_cut:
        facts.insert(0, "more than is shown here: see the inbox")
    if (held := entry.held) is not None and entry.held_until is not None:
        until = _time(entry.held_until)
        facts.append(f"approved by {code(held.by)}, which can be taken back until {until}")
    elif entry.deadline is None:
        facts.append("without a deadline")
    else:
        facts.append(_then(entry.deadline, entry.on_timeout))
    if entry.requested_capability is not None:
        facts.append(f"asks for the capability {code(entry.requested_capability)}")
    return [
        f"### {number}. {code(entry.name)}",
        "\n>\n".join(f"> {code(line, most=_PROMPT_CHARS)}" for line in lines[:_PROMPT_LINES]),
        "\n".join(f"- {fact}" for fact in facts),
        *_ways(entry, start),
    ]


def _ways(entry: Interrupt, start: wire.StartRun) -> list[str]:
    id_ = f'"interrupt_id": "{entry.id}"'
    if entry.held is not None:
        return ["To take it back, send the update `take_back` with", code(f"{{{id_}}}", most=1_000)]
    how = "send the update `respond`"
    if entry.requested_capability is not None or entry.quorum is not None:
        # Through Temporal nobody has a capability, or a vote.
        how = f"call `POST /runs/{start.run_id}/respond` of the API"
    if entry.kind == "approval":
        bodies = [code(f'{{{id_}, "response": {it}}}', most=1_000) for it in (_APPROVES, _REJECTS)]
        return [f"To approve, {how} with", bodies[0], "and to reject, with", bodies[1]]
    schema = "any JSON" if entry.response_schema is None else canonical(entry.response_schema)
    body = code(f'{{{id_}, "response": ...}}', most=1_000)
    return [f"To answer, {how} with", body, f"The response fits {code(schema, most=_PROMPT_CHARS)}"]


def _then(deadline: datetime, policy: OnTimeout | OnPauseTimeout) -> str:
    match policy:
        case Halt():
            then = "the run halts"
        case ResumeRun():
            then = "the run goes on"
        case GoTo(node=node):
            then = f"the run goes to {code(node)}"
        case Default():
            # Answers are not shown, and a default is one.
            then = "a default answer counts"
    return f"until {_time(deadline)}, then {then}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
