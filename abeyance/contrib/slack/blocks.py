"""A question as a message of Slack: what is asked, why, until when, who has answered, and the buttons.

Texts of a run are `plain_text`, in which Slack finds neither mentions nor links. Names and the words of
this module are `mrkdwn`, escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from abeyance import views
from abeyance.contrib.slack import forms
from abeyance.core.json import Json
from abeyance.core.policy import TIMEOUT
from abeyance.core.text import truncate, visible

EVENT_TYPE: Final = "abeyance_question"
"""The type of metadata by which we find our messages again."""
APPROVE: Final = "abeyance:approve"
OPEN: Final = "abeyance:open"
PREFIX: Final = "abeyance:"

_PROMPT: Final = 2_900
_FIELDS: Final = 10
_FIELD: Final = 300
_NOTE: Final = 300
_LINK: Final = 2_900
_WITHDRAWN: Final = {
    "expired": "Nobody answered in time.",
    "cancelled": "Withdrawn: nobody needs to answer.",
    "superseded": "Withdrawn: nobody needs to answer.",
}

Mention = Callable[[str], str]


def message(question: views.InterruptView, *, link: str, mention: Mention) -> dict[str, Any]:
    """Return the text, the blocks and the metadata of a question, as it is now."""
    prompt = truncate(visible(question.prompt or question.name), _PROMPT)
    blocks = [_section(prompt), *_why(question), *_preview(question), *_about(question, mention)]
    blocks += [_context(line) for line in status(question, mention)]
    if is_waiting(question):
        blocks.append({"type": "actions", "elements": _buttons(question, link)})
    return {
        "text": escape(truncate(prompt, _FIELD)),
        "blocks": blocks,
        "metadata": {"event_type": EVENT_TYPE, "event_payload": {"id": question.id}},
    }


def gone(id_: str) -> dict[str, Any]:
    """Return the message for a question that is not known any more."""
    text = "This question is withdrawn: its run has ended."
    payload = {"event_type": EVENT_TYPE, "event_payload": {"id": id_}}
    return {"text": text, "blocks": [_section(text)], "metadata": payload}


def is_waiting(question: views.InterruptView | None) -> bool:
    """Return whether somebody may still do something about a question."""
    return (
        question is not None and question.status in ("open", "held") and question.rewound_by is None
    )


def status(question: views.InterruptView, mention: Mention) -> list[str]:
    """Return the state of a question so far, and who brought it there, as lines of mrkdwn."""
    if question.rewound_by is not None:
        return ["*Withdrawn: the run was taken back.*"]
    by = _by(question.answered_by, question.on_behalf_of, mention)
    note = f"\n{escape(truncate(question.note, _NOTE))}" if question.note else ""
    match question.status:
        case "open":
            return [*_votes(question, mention), *_claim(question, mention)]
        case "held":
            until = "" if question.held_until is None else f" until {when(question.held_until)}"
            return [f"*Approved{by}*. It can be taken back{until}: _Open_.{note}"]
        case "answered" if question.answered_by == TIMEOUT:
            return ["*Answered by its default, at its deadline.*"]
        case "answered":
            again = "" if question.settled_reason is None else f": {question.settled_reason}"
            lines = [f"*{_outcome(question)}{by}{again}*{note}"]
            return [*_votes(question, mention), *lines] if question.quorum else lines
        case other:
            return [f"*{_WITHDRAWN.get(other, escape(other))}*"]


def _outcome(question: views.InterruptView) -> str:
    answer = question.answer
    said = answer if isinstance(answer, Mapping) else {}
    approved = said.get("approved") if said else answer
    if not isinstance(approved, bool):
        return "Answered"
    # An author's own answer may have fields of these names.
    about_call = said if question.kind == "approval" else {}
    if "result" in about_call:
        return "Answered in place of the call"
    if "remember" in about_call:
        return "Approved, and the next ones"
    if not approved:
        return "Rejected"
    return "Approved with changes" if "arguments" in about_call else "Approved"


def _votes(question: views.InterruptView, mention: Mention) -> list[str]:
    lines = [
        f"{'Approved' if vote.is_yes else 'Rejected'}{_by(vote.by, vote.on_behalf_of, mention)}"
        for vote in question.votes
    ]
    if lines and question.status == "open" and question.missing:
        lines.append(f"{question.missing} more needed")
    return ["; ".join(lines)] if lines else []


def _claim(question: views.InterruptView, mention: Mention) -> list[str]:
    if question.claim is None:
        return []
    return [f"{mention(question.claim.by)} answers it, until {when(question.claim.until)}"]


def _by(who: str | None, on_behalf_of: str | None, mention: Mention) -> str:
    if who is None:
        return ""
    also = f" for {mention(on_behalf_of)}" if on_behalf_of not in (None, who) else ""
    return f" by {mention(who)}{also}"


def _why(question: views.InterruptView) -> list[dict[str, Any]]:
    reason = question.reason
    if question.kind == "approval" and isinstance(reason, Mapping) and "arguments" in reason:
        reason = reason["arguments"]
    if reason is None or reason in ({}, ""):
        return []
    if not isinstance(reason, Mapping):
        return [_section(_shown(reason, _PROMPT))]
    listed = [
        _plain(f"{truncate(visible(str(name)), 100)}\n{_shown(value, _FIELD)}")
        for name, value in reason.items()
    ]
    left_out = [_context(f"and {len(listed) - _FIELDS} more: _Open_")] if listed[_FIELDS:] else []
    return [{"type": "section", "fields": listed[:_FIELDS]}, *left_out]


def _preview(question: views.InterruptView) -> list[dict[str, Any]]:
    if question.preview is None:
        return []
    return [_section(f"What would happen:\n{_shown(question.preview, _PROMPT - 100)}")]


def _about(question: views.InterruptView, mention: Mention) -> list[dict[str, Any]]:
    parts = [f"{escape(question.graph)} · {escape(question.run_id)}"]
    if question.assignees:
        parts.append(f"for {', '.join(map(mention, question.assignees[:_FIELDS]))}")
    if question.requested_capability:
        parts.append(f"takes {escape(question.requested_capability)}")
    if question.priority != "normal":
        parts.append(f"{question.priority} priority")
    if question.risk is not None:
        parts.append(f"risk {question.risk}")
    if question.deadline is not None and question.status == "open":
        parts.append(f"until {when(question.deadline)}")
    return [_context(" · ".join(parts))]


def _buttons(question: views.InterruptView, link: str) -> list[dict[str, Any]]:
    buttons = [] if question.status == "held" else [*_answers(question)]
    if len(link) <= _LINK:
        buttons.append({**_button("Open", OPEN), "url": link})
    return buttons


def _answers(question: views.InterruptView) -> list[dict[str, Any]]:
    value = json.dumps({"id": question.id, "digest": question.digest or ""})
    labels = {
        "approve": "Approve...",
        "remember": "Approve, and the next ones…",
        "reject": "Reject",
        "edit": "Edit",
        "answer": "Answer",
    }
    buttons = []
    if forms.is_plain_yes(question):
        buttons.append({**_button("Approve", APPROVE), "value": value, "style": "primary"})
    for decision in forms.decisions(question):
        style = {"style": "danger"} if decision == "reject" else {}
        buttons.append(
            {**_button(labels[decision], f"{PREFIX}{decision}..."), "value": value, **style}
        )
    return buttons


def _button(label: str, action: str) -> dict[str, Any]:
    return {"type": "button", "text": _plain(label), "action_id": action}


def _shown(value: Json, limit: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return truncate(visible(text), limit) or " "


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _plain(text)}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _context(text: str) -> dict[str, Any]:
    element = {"type": "mrkdwn", "text": truncate(text, _PROMPT), "verbatim": True}
    return {"type": "context", "elements": [element]}


def when(moment: datetime) -> str:
    """Return a time as Slack shows it to each reader in their own zone."""
    fallback = f"{moment:%Y-%m-%d %H:%M} UTC"
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} {{time}}|{fallback}>"


def escape(text: str) -> str:
    """Return a text without mentions and links for Slack, and with invisible characters shown."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
