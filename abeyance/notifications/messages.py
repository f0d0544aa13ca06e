"""What a receiver reads: the body of a webhook, and the title and text for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from abeyance.core.json import rfc3339
from abeyance.core.text import truncate, visible
from abeyance.notifications.moments import Moment

MOST_BYTES: Final = 65_536
"""The size of the largest body of a webhook."""

_CUT_CHARS: Final = 2_000
_PROMPT_CHARS: Final = 1_500
_TITLE_CHARS: Final = 200
_BULK: Final = ("payload", "response_schema", "reason", "parents", "preview")
"""Parts of a question that a body which is too large has not, in the order in which they are left out."""
_TITLES: Final = {
    "interrupt.opened": "{graph} asks: {name}",
    "interrupt.reminded": "Reminder: {graph} asks: {name}",
    "interrupt.escalated": "Escalated: {graph} asks: {name}",
    "interrupt.reassigned": "Assigned to you: {graph} asks: {name}",
    "run.failed": "{graph} failed: {run_id}",
    "run.halted": "{graph} was halted: {run_id}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A notice for people."""

    title: str
    body: str


def body(
    moment: Moment, *, id_: str, url: str | None, format_: Literal["standard", "cloudevents"]
) -> bytes:
    """Return the body of a webhook. Without room for all, its data is marked as `truncated`."""
    data = _data(moment, url)
    if _is_cut(moment):
        data["truncated"] = True
    encoded = _encoded(moment, data, id_, format_)
    if len(encoded) <= MOST_BYTES:
        return encoded
    data["truncated"] = True
    question = data.get("interrupt") or {}
    for name in _BULK:
        if question.get(name):
            question[name] = None
            if len(encoded := _encoded(moment, data, id_, format_)) <= MOST_BYTES:
                return encoded
    data["event"]["data"] = {
        name: _short(value) for name, value in data["event"]["data"].items() if _is_plain(value)
    }
    if question:
        data["interrupt"] = {
            name: _short(value) for name, value in question.items() if _is_plain(value)
        }
    return _encoded(moment, data, id_, format_)


def text(moment: Moment, *, url: str | None) -> Text:
    """Return the title and the text for people. What is invisible in them is shown as code points."""
    question = moment.interrupt or {}
    about = {
        "graph": moment.graph,
        "run_id": moment.run_id,
        "event": moment.event,
        "name": question.get("name", ""),
    }
    title = _TITLES.get(moment.event, "{graph}: {event}").format(**about)
    lines = [truncate(str(question["prompt"]), _PROMPT_CHARS)] if question.get("prompt") else []
    facts = {
        "Deadline": question.get("deadline"),
        "Priority": None if question.get("priority") == "normal" else question.get("priority"),
        "Reason": moment.data.get("reason") or moment.data.get("message"),
        "By": moment.actor,
        "Run": moment.run_id,
    }
    lines += [
        f"{name}: {truncate(str(value), _TITLE_CHARS)}" for name, value in facts.items() if value
    ]
    if url is not None:
        lines += ["", url]
    return Text(title=visible(truncate(title, _TITLE_CHARS)), body=visible("\n".join(lines)))


def _data(moment: Moment, url: str | None) -> dict[str, Any]:
    event = {
        "time": rfc3339(moment.time),
        "type": moment.event,
        "run_id": moment.run_id,
        "address": moment.address,
        "actor": moment.actor,
        "data": moment.data,
    }
    run = {"run_id": moment.run_id, "graph": moment.graph, "status": moment.status}
    data: dict[str, Any] = {"event": event, "run": run}
    if moment.interrupt is not None:
        data["interrupt"] = dict(moment.interrupt)
    if url is not None:
        data["url"] = url
    return data


def _is_cut(moment: Moment) -> bool:
    """Return whether the run has already left out what was too large for a moment."""
    return "truncated" in moment.data or bool((moment.interrupt or {}).get("abridged"))


def _encoded(moment: Moment, data: Mapping[str, Any], id_: str, format_: str) -> bytes:
    when = rfc3339(moment.time)
    content: dict[str, Any] = {"type": moment.event, "timestamp": when, "data": data}
    if format_ == "cloudevents":
        content = {
            "specversion": "1.0",
            "id": id_,
            "source": f"/runs/{moment.run_id}",
            "type": moment.event,
            "subject": moment.data.get("id") or moment.run_id,
            "time": when,
            "datacontenttype": "application/json",
            "data": data,
        }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _short(value: Any) -> Any:
    return truncate(value, _CUT_CHARS) if isinstance(value, str) else value
