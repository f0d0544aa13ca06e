"""A run's current details, as Temporal's UI shows them: Markdown for a person who has to act.

Temporal's UI leaves out what is nested in a list and does not wrap a block of code, so there is a
heading for each question and code stands in spans. Whatever an author, a caller or a person wrote is
shown in a code span, in which nothing is markup, and what cannot be seen in it by its code point.
"""

from __future__ import annotations

from datetime import datetime

from abeyance import projections, wire
from abeyance.core.json import canonical
from abeyance.core.ledger import Interrupt
from abeyance.core.spec import Default, GoTo, Halt, OnPauseTimeout, OnTimeout, ResumeRun
from abeyance.core.state import Phase, RunState
from abeyance.wire import visible
from abeyance.workflows.visibility import cut, form, nearest_first

_QUESTIONS = 10
_RUNNING = 20
_AGENTS = 10
_BESIDE = 10
_FIELD_CHARS = 300
_PROMPT_CHARS = 1_200
_CALL_CHARS = 1_200
_PROMPT_LINES = 20


def details(state: RunState, start: wire.StartRun) -> str:
    """Markdown for Temporal's UI: what the run waits for, until when, and how to answer."""
    parts = [_standing(state)]
    agents = [
        f"{code(agent.address)} after {agent.turns} turn{'' if agent.turns == 1 else 's'}"
        for agent in projections.agents(state)
    ]
    if agents:
        more = f" and {len(agents) - _AGENTS} more" if len(agents) > _AGENTS else ""
        parts.append(f"Agents: {', '.join(agents[:_AGENTS])}{more}")
    running = [visit.address for visit in state.in_phase(Phase.RUNNING)]
    if running:
        more = f" and {len(running) - _RUNNING} more" if len(running) > _RUNNING else ""
        shown = ", ".join(code(address) for address in running[:_RUNNING])
        parts.append(f"Running: {shown}{more}")
    entries = nearest_first(state)
    if entries:
        parts.append(f"Waits for {len(entries)} answer{'s' if len(entries) > 1 else ''}:")
    for number, entry in enumerate(entries[:_QUESTIONS], start=1):
        parts += _asked(number, entry, start)
    if len(entries) > _QUESTIONS:
        parts.append(f"... and {len(entries) - _QUESTIONS} more: see the query `interrupts`.")
    parts.append(_about(start))
    if state.ending is None:
        other = "" if state.pause is not None else "`pause` stops it for a while, "
        parts.append(f"Signals, without an argument: {other}`cancel` ends it in good order.")
    return "\n\n".join(parts)


def code(text: str | None, *, most: int = _FIELD_CHARS) -> str:
    """A text as a code span of Markdown, in which nothing is a link, an image or HTML."""
    flat = visible(" ".join((text or "").split())).replace("`", "'")
    # Two backticks without a text between them would open a longer span, up to the next such pair.
    return f"`{cut(flat, most)}`" if flat else "(nothing)"


def _standing(state: RunState) -> str:
    ending, pause = state.ending, state.pause
    if ending is not None:
        shown = f"**{state.status}**"
        if not state.finished:
            shown += f" as {ending.outcome}"
        if ending.error is not None and ending.error.address is not None:
            shown += f" at {code(ending.error.address)}"
        if ending.reason:
            shown += f": {code(ending.reason)}"
        if ending.outcome == "cancelled" and ending.actor is not None:
            shown += f", by {code(ending.actor)}"
        beside = [
            f"Beside that: {code(each.message)}" for each in ending.secondary_errors[:_BESIDE]
        ]
        return "\n\n".join([shown, *beside])
    if pause is None:
        return f"**{state.status}**"
    told = f"**{state.status}** by {code(pause.actor)} since {_time(pause.since)}"
    if pause.reason:
        told += f": {code(pause.reason)}"
    if pause.deadline is not None:
        told += f"; {_then(pause.deadline, pause.on_timeout)}"
    return f"{told}\n\nTo go on, send the signal `resume` (no argument). Answers count meanwhile."


def _about(start: wire.StartRun) -> str:
    told = [f"Started by {code(start.started_by)}"]
    if start.conversation_id is not None:
        told.append(f"conversation {code(start.conversation_id)}")
    if start.labels:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(start.labels.items()))
        told.append(f"labels {code(labels)}")
    return ", ".join(told) + "."


def _asked(number: int, entry: Interrupt, start: wire.StartRun) -> list[str]:
    # Each line is a code span of its own: a span would swallow the ends of lines.
    prompt = cut(entry.prompt, _PROMPT_CHARS)
    lines = [line for line in prompt.splitlines() if line.strip()] or [""]
    facts = [f"asked at {code(entry.address)}"]
    is_cut = prompt is not entry.prompt or len(lines) > _PROMPT_LINES
    match entry.reason:
        case {"tool": str(tool), "arguments": arguments} if entry.kind in ("approval", "outcome"):
            told = canonical(arguments)
            is_cut = is_cut or len(told) > _CALL_CHARS
            if told not in prompt:
                facts.append(f"about the tool {code(tool)} with {code(told, most=_CALL_CHARS)}")
        case _:
            pass
    if is_cut:
        facts.insert(0, "more than is shown here: see the query `interrupts`")
    if entry.deadline is None:
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
    answer = cut(form(entry.response_schema), _FIELD_CHARS)
    if entry.kind != "approval":
        return [_how("answer", entry, start), _body(entry, answer)]
    return [
        _how("approve", entry, start),
        _body(entry, '{"approved": true}'),
        "and to reject, with",
        _body(entry, '{"approved": false, "reason": "..."}'),
        f"All that may be answered: {code(answer)}",
    ]


def _how(verb: str, entry: Interrupt, start: wire.StartRun) -> str:
    if entry.requested_capability is None:
        return f"To {verb}, send the update `respond` with"
    way = f"`POST /runs/{start.run_id}/respond`"
    return f"Through Temporal nobody has it, so {verb} through the API, {way}, with"


def _body(entry: Interrupt, answer: str) -> str:
    # A block would not be wrapped, and its end would stand outside of the page.
    return code(f'{{"interrupt_id": "{entry.id}", "response": {answer}}}', most=1_000)


def _then(deadline: datetime, policy: OnTimeout | OnPauseTimeout) -> str:
    match policy:
        case Halt():
            then = "the run halts"
        case ResumeRun():
            then = "the run goes on"
        case GoTo(node=node):
            then = f"the run goes to {code(node)}"
        case Default():
            then = "a default answer counts"
    return f"until {_time(deadline)}, then {then}"


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
