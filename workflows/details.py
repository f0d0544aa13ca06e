"""The current details of a run in Temporal's UI: Markdown for the person who has to act.

Temporal's UI drops nested list items and does not wrap code blocks, so each question has a heading, and
code is in spans. Text of authors, callers and approvers is always in a code span, which disables markup;
invisible characters are shown by their code points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from abeyance import projections, wire
from abeyance.core import ledger
from abeyance.core.json import canonical
from abeyance.core.ledger import NEAREST, Interrupt
from abeyance.core.spec import Default, GoTo, Halt, OnPauseTimeout, OnTimeout, ResumeRun
from abeyance.core.state import RunState
from abeyance.core.tables import ALL
from abeyance.core.terms import KINDS, PLAIN, Decision, Quorum
from abeyance.core.text import truncate, visible
from abeyance.core.visit import Running
from abeyance.schemas.json_schema import resolved

_ANY: Final = "any JSON"
_DEEPEST: Final = 4
_MOST: Final = 8
"""Maximum properties of an object, and alternatives of a value."""
_DECISIONS: Final[Mapping[Decision, tuple[str, str]]] = {
    "approve": ("approve", '{"approved": true}'),
    "reject": ("reject", '{"approved": false, "reason": "..."}'),
    "respond": ("answer in its place", '{"approved": false, "result": ...}'),
}
_QUESTIONS = 10
_RUNNING = 20
_AGENTS = 10
_BLOCKED = 5
_BESIDE = 10
_VOTES: Final = 10
_REMINDERS: Final = 5
_FIELD_CHARS = 300
_PROMPT_CHARS = 1_200
_CALL_CHARS = 1_200
_PROMPT_LINES = 20


def details(state: RunState, start: wire.StartRun) -> str:
    """Return Markdown with open questions, deadlines, and how to answer."""
    parts = [_standing(state)]
    agents = [
        f"{code(agent.address)} after {agent.turns} turn{'' if agent.turns == 1 else 's'}"
        for agent in projections.agents(state)
    ]
    if agents:
        more = f" and {len(agents) - _AGENTS} more" if len(agents) > _AGENTS else ""
        parts.append(f"Agents: {', '.join(agents[:_AGENTS])}{more}")
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
    for number, entry in enumerate(nearest_first(state, _QUESTIONS), start=1):
        parts += _asked(number, entry, start)
    if asked > _QUESTIONS:
        parts.append(f"... and {asked - _QUESTIONS} more: see the inbox.")
    parts.append(_about(start))
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
            f"Beside that: {code(failure.message)}" for failure in ending.secondary_errors[:_BESIDE]
        ]
        return "\n\n".join([shown, *beside])
    if pause is None:
        return f"**{state.status}**"
    text = f"**{state.status}** by {code(pause.actor)} since {_time(pause.since)}"
    if pause.reason:
        text += f": {code(pause.reason)}"
    if pause.deadline is not None:
        text += f"; {_then(pause.deadline, pause.on_timeout)}"
    return f"{text}\n\nTo go on, send the signal `resume` (no argument). Answers count meanwhile."


def _about(start: wire.StartRun) -> str:
    sent = "" if start.sent_by is None else f" (sent by {code(start.sent_by)})"
    facts = [f"Started by {code(start.started_by)}{sent}"]
    if start.conversation_id is not None:
        facts.append(f"conversation {code(start.conversation_id)}")
    if start.labels:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(start.labels.items()))
        facts.append(f"labels {code(labels)}")
    return ", ".join(facts) + "."


def _asked(number: int, entry: Interrupt, start: wire.StartRun) -> list[str]:
    # A code span swallows line breaks, so each line is its own span.
    prompt = truncate(entry.prompt, _PROMPT_CHARS)
    lines = [line for line in prompt.splitlines() if line.strip()] or [""]
    facts = [f"asked at {code(entry.address)}"]
    is_cut = len(entry.prompt) > _PROMPT_CHARS or len(lines) > _PROMPT_LINES
    match entry.reason:
        case {"tool": str(tool), "arguments": arguments} if KINDS[entry.kind].asked_by == "call":
            arguments_text = canonical(arguments)
            is_cut = is_cut or len(arguments_text) > _CALL_CHARS
            if arguments_text not in prompt:
                facts.append(
                    f"about the tool {code(tool)} with {code(arguments_text, most=_CALL_CHARS)}"
                )
        case _:
            pass
    if is_cut:
        facts.insert(0, "more than is shown here: see the inbox")
    if (held := entry.held) is not None:
        facts.append(
            f"approved by {code(held.by)}, which can be taken back until {_time(entry.held_until)}"
        )
    elif entry.deadline is None:
        facts.append("without a deadline")
    else:
        facts.append(_then(entry.deadline, entry.on_timeout))
    match entry.preview:
        case {"summary": str(said)} | {"error": str(said)}:
            facts.append(f"a preview of the call: {code(said)}")
        case _:
            pass
    facts += _times(entry)
    if entry.requested_capability is not None:
        facts.append(f"asks for the capability {code(entry.requested_capability)}")
    facts += _for_whom(entry)
    if entry.quorum is not None:
        facts.append(_progress(entry, entry.quorum))
    return [
        f"### {number}. {code(entry.name)}",
        "\n>\n".join(f"> {code(line, most=_PROMPT_CHARS)}" for line in lines[:_PROMPT_LINES]),
        "\n".join(f"- {fact}" for fact in facts),
        *_ways(entry, start),
    ]


def _for_whom(entry: Interrupt) -> list[str]:
    """Return the assignees of a question, the people who may not answer it, and its claim."""
    terms, facts = entry.terms or PLAIN, []
    if terms.assignees:
        only = "only " if terms.assignees_only else ""
        facts.append(f"{only}for {_people(terms.assignees)}")
    if entry.barred:
        facts.append(f"not by {_people(tuple(entry.barred))}")
    if (claim := entry.claim) is not None:
        facts.append(f"claimed by {code(claim.by)} until {_time(claim.until)}")
    return facts


def _people(names: tuple[str, ...]) -> str:
    more = [f"{len(names) - _BESIDE} more"] if len(names) > _BESIDE else []
    return ", ".join([*map(code, names[:_BESIDE]), *more])


def _progress(entry: Interrupt, quorum: Quorum) -> str:
    people = [f"{code(v.by)} {'approves' if v.is_yes else 'rejects'}" for v in entry.votes[:_VOTES]]
    more = [f"{len(entry.votes) - _VOTES} more"] if len(entry.votes) > _VOTES else []
    so_far = f" (so far {', '.join([*people, *more])})" if people else ""
    missing = ledger.missing_approvals(quorum, entry.votes)
    return f"{missing} of {quorum.count} approvals are missing{so_far}"


def _times(entry: Interrupt) -> list[str]:
    """Return the times of reminders and escalations, and who may answer after each escalation."""
    lines = []
    if entry.reminders:
        lines.append(f"reminds at {', '.join(map(_time, entry.reminders[:_REMINDERS]))}")
    for each, at in zip((entry.terms or PLAIN).escalate, entry.escalations, strict=True):
        whom = [code(name) for name in each.to]
        if each.requested_capability is not None:
            whom.append(f"the capability {code(each.requested_capability)}")
        lines.append(f"from {_time(at)} on also for {', '.join(whom)}")
    return lines


def _ways(entry: Interrupt, start: wire.StartRun) -> list[str]:
    if entry.held is not None:
        return ["To take it back, send the update `take_back` with", _body_of(entry)]
    answer = truncate(form(entry.response_schema), _FIELD_CHARS)
    if entry.kind != "approval":
        return [_how("answer", entry, start), _body(entry, answer)]
    allowed = (entry.terms or PLAIN).decisions
    ways = [_DECISIONS[decision] for decision in allowed if decision in _DECISIONS]
    verbs = [_how(verb, entry, start) for verb, _ in ways[:1]]
    verbs += [f"and to {verb}, with" for verb, _ in ways[1:]]
    bodies = [_body(entry, body) for _, body in ways]
    lines = [line for both in zip(verbs, bodies, strict=True) for line in both]
    return [*lines, f"All that may be answered: {code(answer)}; decisions: {', '.join(allowed)}"]


def _how(verb: str, entry: Interrupt, start: wire.StartRun) -> str:
    if entry.requested_capability is None and entry.quorum is None:
        return f"To {verb}, send the update `respond` with"
    way = f"`POST /runs/{start.run_id}/respond`"
    if entry.quorum is not None:
        return f"Through Temporal nobody has a vote, so {verb} through the API, {way}, with"
    return f"Through Temporal nobody has it, so {verb} through the API, {way}, with"


def _body(entry: Interrupt, answer: str) -> str:
    # The UI does not wrap code blocks.
    return code(f'{{"interrupt_id": "{entry.id}", "response": {answer}}}', most=1_000)


def _body_of(entry: Interrupt) -> str:
    return code(f'{{"interrupt_id": "{entry.id}"}}', most=1_000)


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


def nearest_first(state: RunState, most: int) -> list[Interrupt]:
    """Return the first open interrupts by deadline; those without one come last."""
    return state.ledger.open.found(NEAREST, ALL, most)


def form(schema: Any) -> str:
    """Return the shape of an answer, such as `{"approved": boolean, "note"?: string}`.

    `?` marks optional properties. It is not valid JSON, so that nobody sends it as an answer. Formats,
    ranges and deep levels are omitted; the run validates answers by the whole schema.
    """
    root = schema if isinstance(schema, Mapping) else {}
    return _form(schema, root, 0)


def _form(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = resolved(schema, root)
    is_deep = depth == _DEEPEST
    match schema:
        case {"const": value}:
            return _value(value)
        case {"enum": [_, *_] as values}:
            return _either([_value(value) for value in values])
        case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options} if not is_deep:
            return _either([_form(option, root, depth + 1) for option in options[: _MOST + 1]])
        case {"type": "object", "properties": Mapping() as properties} if (
            properties and not is_deep
        ):
            needed = schema.get("required", ())
            return _object(properties, needed, root, depth)
        case {"type": "array", "items": items} if not is_deep:
            return f"[{_form(items, root, depth + 1)}, ...]"
        case {"type": str(name)}:
            return name
        case {"type": [_, *_] as names}:
            return _either([str(name) for name in names])
        case _:
            return _ANY


def _object(properties: Mapping[str, Any], needed: Any, root: Mapping[str, Any], depth: int) -> str:
    parts = [
        f"{_value(name)}{'' if name in needed else '?'}: {_form(of, root, depth + 1)}"
        for name, of in list(properties.items())[:_MOST]
    ]
    return "{" + ", ".join([*parts, "..."] if len(properties) > _MOST else parts) + "}"


def _either(options: list[str]) -> str:
    return " or ".join([*options[:_MOST], "..."] if len(options) > _MOST else options)


def _value(value: Any) -> str:
    # ASCII only, so without marks that change the text direction.
    return json.dumps(value)
