"""Text output of commands, for people. Programs read JSON."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from abeyance.core.json import canonical
from abeyance.core.ledger import is_yes
from abeyance.core.terms import KINDS, STARTER, is_template
from abeyance.core.text import truncate, visible

_GAP: Final = "  "


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, one line per row. The last column is not cut."""
    flat = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(heads, *flat, strict=True)]
    write(_line(heads, widths))
    for row in flat:
        sys.stdout.write(f"{_line(row, widths)}\n")
    sys.stdout.flush()


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)
    )
    return _GAP.join(padded).rstrip()


def one_line(text: str) -> str:
    """Return the text as one printable line."""
    return " ".join(readable(text).split())


def _width(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


_ODD_SPACES: Final = re.compile("[\t\u2028\u2029]")
_LABEL: Final = 11
_LONGEST: Final = 160
"""Maximum characters of an event's data in its line."""
_REASON: Final = 300
_ARGUMENT: Final = 300
_AGENTS: Final = 10
_NO_WORKER: Final = (
    "the form of the answer, and what happens at a deadline, are known only while a worker is up"
)
_NOT_READ: Final = "details require the capability runs:read"
_SENT: Final = (
    "the run has the call; what comes of it cannot be read now: `abeyance doctor` says why"
)
_OF_CALLS: Final = frozenset(kind for kind, row in KINDS.items() if row.asked_by == "call")


class Line(NamedTuple):
    """One line, or several under one label."""

    label: str
    text: str


def show(lines: Iterable[Line]) -> None:
    """Print lines. Labels are bold if the terminal supports it and `rich` is installed."""
    for label, text in lines:
        first, *others = readable(text).split("\n")
        write(f"{label} ".ljust(_LABEL), first)
        for other in others:
            _write_plain(" " * _LABEL, other)
    sys.stdout.flush()


def write(head: str, text: str = "") -> None:
    """Print a line. Its head is bold if the terminal supports it and `rich` is installed."""
    (_write_bold if can_draw() else _write_plain)(head, text)


def can_draw() -> bool:
    """Return True if stdout is a terminal with cursor control and `rich` is installed."""
    is_smart = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return is_smart and find_spec("rich") is not None


def _write_plain(head: str, text: str) -> None:
    sys.stdout.write(f"{head}{text}".rstrip(" ") + "\n")


def _write_bold(head: str, text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text.assemble((head, "bold"), text), soft_wrap=True)


def readable(text: str) -> str:
    """Replace unusual spaces by spaces, and control and invisible characters by their code points."""
    return "".join(_readable(character) for character in visible(_ODD_SPACES.sub(" ", text)))


def _readable(character: str) -> str:
    # Not covered by `visible`: a character unknown to this version of Python, for example.
    if character.isprintable() or character == "\n":
        return character
    return " " if unicodedata.category(character) == "Zs" else f"<U+{ord(character):04X}>"


def run_lines(view: Mapping[str, Any]) -> list[Line]:
    """Return the summary of a run, or of a signal that it has got while it cannot be read."""
    if "status" not in view:
        return [Line("run", str(view["run_id"])), Line("note", _SENT)]
    error = view.get("error")
    # The reason is shown once, with its code.
    is_shown_below = error is not None and error["message"] == view.get("reason")
    status = status_of({**view, "reason": None} if is_shown_below else view)
    lines = [Line("run", str(view["run_id"])), Line("status", status)]
    if "graph" not in view:
        return [*lines, Line("note", _NOT_READ)]
    sent = f" for {one_line(view['started_by'])}" if view.get("sent_by") else ""
    by = view.get("sent_by") or view.get("started_by")
    who = "" if by is None else f" by {one_line(by)}{sent}"
    lines.append(Line("graph", f"{view['graph']}, started {view['created_at']}{who}"))
    if view.get("conversation_id"):
        lines.append(Line("", f"in the conversation {one_line(view['conversation_id'])}"))
    if view.get("ended_at"):
        lines.append(Line("ended", str(view["ended_at"])))
    if pause := view.get("pause"):
        why = f": {pause['reason']}" if pause.get("reason") else ""
        lines.append(Line("paused", f"by {pause['actor']} at {pause['since']}{why}"))
        if pause.get("deadline"):
            lines.append(Line("", f"until {pause['deadline']}, then {pause['on_timeout']}"))
        lines.append(Line("", f"abeyance resume {view['run_id']}"))
    if view.get("labels"):
        labels = ", ".join(f"{name}={value}" for name, value in view["labels"].items())
        lines.append(Line("labels", labels))
    if agents := view.get("agents"):
        shown = [agent_text(agent) for agent in agents[:_AGENTS]]
        rest = ["and others"] if len(agents) > _AGENTS else []
        lines.append(Line("agents", "\n".join([*shown, *rest])))
    if view.get("running"):
        lines.append(Line("running", "\n".join(view["running"])))
    then = "it can be read" if view.get("ended_at") else "the run continues"
    for why in view.get("blocked") or []:
        since = f" since {why['since']}" if why.get("since") else ""
        where = f"{why['node']}: " if why.get("node") else ""
        lines.append(Line("blocked", f"{where}{why.get('message') or why['code']}"))
        lines.append(Line("", f"{why['code']}{since}; {then} once this is fixed"))
    for each in view.get("retrying") or []:
        lines.append(Line("retrying", f"{each['node']}: {one_line(each['message'])}"))
        count = each["attempts"]
        failed = f"failed {count} time{'' if count == 1 else 's'}"
        lines.append(Line("", f"{failed}; runs again at {each['due']}"))
    if error is not None:
        at = f" at {error['address']}" if error.get("address") else ""
        lines.append(Line("error", f"{error['code']}: {error['message']}{at}"))
    if view.get("undelivered"):
        lines.append(Line("messages", f"{len(view['undelivered'])} could not be delivered"))
    if rejected := view.get("rejected"):
        codes = ", ".join(dict.fromkeys(each["code"] for each in rejected))
        lines.append(Line("messages", f"{len(rejected)} refused: {codes}"))
    if view.get("degraded"):
        lines.append(
            Line(
                "note",
                "no worker is up, or none can read the run (its log says why): this is the last state "
                "that was recorded",
            )
        )
    lines.extend(interrupt_lines(view.get("interrupts") or []))
    return lines


def agent_text(agent: Mapping[str, Any]) -> str:
    """Return the progress of an agent: `... after 2 turns, 113 tokens in, 47 out`."""
    turns, usage = agent["turns"], agent["usage"]
    text = f"{agent['address']}  after {turns} turn{'' if turns == 1 else 's'}"
    if not usage:
        return text
    return f"{text}, {usage.get('input_tokens', 0)} tokens in, {usage.get('output_tokens', 0)} out"


def call_text(tool: str, arguments: Any) -> str:
    """Return a tool call in one line: `transfer(amount=5, to="ada")`."""
    if not isinstance(arguments, Mapping):
        # A model may write arguments that are not JSON.
        text = arguments if isinstance(arguments, str) else _json(arguments)
        return f"{tool}({truncate(text, _ARGUMENT)})"
    listed = (f"{name}={truncate(_json(value), _ARGUMENT)}" for name, value in arguments.items())
    return f"{tool}({', '.join(listed)})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def interrupt_lines(interrupts: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Return interrupts with their questions, and for open ones the command that answers."""
    lines = []
    for entry in interrupts:
        is_open = entry["status"] == "open"
        if "prompt" not in entry:
            lines += [Line("interrupt", entry["id"]), Line("status", entry["status"])]
            lines.append(Line("note", _NOT_READ))
            continue
        lines.append(Line("question" if is_open else entry["status"], entry["prompt"]))
        lines.append(Line("", f"{entry['id']}  at {entry['address']}"))
        if is_open:
            lines.extend(_shown_lines(entry))
            if entry.get("deadline"):
                lines.append(Line("", f"until {entry['deadline']}{_then(entry)}"))
            if entry.get("requested_capability"):
                lines.append(Line("", f"requires the capability {entry['requested_capability']}"))
            lines.extend(_urgency_lines(entry))
            lines.extend(_for_whom_lines(entry))
            if entry.get("missing") is not None:
                lines.extend(_progress(entry))
            ways = [f"abeyance respond {entry['id']} {way}" for way in _ways(entry)]
            lines.extend(Line("", way) for way in ways or [_NO_WORKER])
        elif entry.get("answered_by"):
            at = f" at {entry['answered_at']}" if entry.get("answered_at") else ""
            lines.append(Line("", f"by {entry['answered_by']}{_for(entry)}{at}"))
            if entry["status"] == "held":
                lines.append(Line("", f"until {entry['held_until']}, and then it counts"))
                lines.append(Line("", f"abeyance take-back {entry['id']}"))
            if entry.get("answer") is not None:
                lines.append(Line("", f"answer {truncate(_json(entry['answer']), _ARGUMENT)}"))
            if entry.get("note"):
                lines.append(Line("", f"note {one_line(entry['note'])}"))
    return lines


def _progress(entry: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the number of missing approvals, and each vote: its answer, its time, and its note."""
    missing = entry["missing"]
    yield Line("", f"{missing} more approval{'' if missing == 1 else 's'} needed")
    for vote in entry.get("votes") or ():
        way = "approved" if is_yes(vote.get("answer")) else "rejected"
        answer = (
            "" if isinstance(vote.get("answer"), bool) else f" with {_json(vote.get('answer'))}"
        )
        note = f": {one_line(vote['note'])}" if vote.get("note") else ""
        said = f"{one_line(vote['by'])}{_for(vote)} {way}{truncate(answer, _ARGUMENT)}"
        yield Line("", f"{said} at {vote['at']}{note}")


def _shown_lines(entry: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the tool call that an approver decides on, or the reason and payload; and the preview."""
    shown = {"because": entry.get("reason"), "payload": entry.get("payload")}
    match entry.get("reason"):
        case {"tool": str(tool), "arguments": arguments} if entry["kind"] in _OF_CALLS:
            # The payload of a call is for programs.
            shown = {}
            if canonical(arguments) not in entry["prompt"]:
                yield Line("", f"about {call_text(tool, arguments)}")
    shown["preview"] = entry.get("preview")
    for name, value in shown.items():
        if value is not None:
            text = json.dumps(value, ensure_ascii=False)
            yield Line("", f"{name} {truncate(text, _REASON)}")


def _then(entry: Mapping[str, Any]) -> str:
    """Return the consequence of the deadline, as far as it is known."""
    then = entry.get("on_timeout")
    if then is None and entry.get("abridged"):
        return ""
    return f", then {then if isinstance(then, str) else json.dumps(then)}"


_WAYS: Final = {"approve": "--approve", "reject": "--reject 'why'", "respond": "--result '...'"}


def _ways(entry: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `abeyance respond ID` that answer an interrupt, if they are known."""
    if entry["kind"] == "approval":
        allowed = entry.get("decisions") or _WAYS
        return [way for decision, way in _WAYS.items() if decision in allowed]
    if entry.get("abridged") or entry.get("degraded"):
        return []
    # It imports a library that takes a while, and most commands show no question.
    from abeyance.schemas.example import answer_example

    answer = json.dumps(answer_example(entry.get("response_schema")), ensure_ascii=False)
    return [shlex.quote(answer)]


def receipt_lines(receipts: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Return the receipts of answers."""
    return [
        Line(
            "accepted" if not receipt.get("replayed") else "unchanged",
            f"{receipt['interrupt_id']}, answered by {receipt['answered_by']}{_for(receipt)} at "
            f"{receipt['accepted_at']}{_what_it_did(receipt)}",
        )
        for receipt in receipts
    ]


def _for(entry: Mapping[str, Any]) -> str:
    name = entry.get("on_behalf_of")
    return f" for {name}" if name else ""


def _urgency_lines(entry: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the urgency of a question, and the times of its reminders."""
    priority = entry.get("priority") or "normal"
    marks = [f"{priority} priority"] if priority != "normal" else []
    if entry.get("risk") is not None:
        marks.append(f"risk {entry['risk']}")
    if marks:
        yield Line("", ", ".join(marks))
    if entry.get("reminders"):
        yield Line("", f"reminders at {', '.join(entry['reminders'])}")


def _why_barred(rule: str) -> str:
    if is_template(rule):
        return f"the run's {one_line(rule[1:-1])}"
    return "started the run" if rule == STARTER else f"answered {one_line(rule)}"


def _for_whom_lines(entry: Mapping[str, Any]) -> Iterator[Line]:
    """Yield for whom a question is, who has claimed it, and why its reader may not answer it."""
    if entry.get("assignees"):
        only = "only " if entry.get("assignees_only") else ""
        yield Line("", f"{only}for {', '.join(entry['assignees'])}")
    if barred := entry.get("barred"):
        people = (f"{one_line(who)} ({_why_barred(rule)})" for who, rule in barred.items())
        yield Line("", f"not by {', '.join(people)}")
    for step in entry.get("escalations") or ():
        others = [*step["to"], step["requested_capability"]]
        yield Line("", f"from {step['at']} also for {', '.join(filter(None, others))}")
    if claim := entry.get("claim"):
        yield Line("", f"claimed by {claim['by']}{_for(claim)} until {claim['until']}")
    for warning in entry.get("warnings", ()):
        yield Line("", warning)
    if entry.get("may_answer") is False and entry.get("why_not"):
        yield Line("", f"not for you: {entry['why_not']['detail']}")


def _what_it_did(receipt: Mapping[str, Any]) -> str:
    match receipt.get("status"):
        case "voted":
            did = f"; a vote; approvals that are missing: {receipt['missing']}"
        case "held":
            did = f"; held until {receipt['held_until']}, and until then it can be taken back"
        case _:
            did = ""
    if receipt.get("asked_again"):
        did += "; with other arguments it is asked again, with a new preview: approve that too"
    return did


def result_lines(result: Mapping[str, Any]) -> list[Line]:
    """Return the outcome and values of an ended run."""
    lines = [Line("outcome", str(result["outcome"]))]
    if result.get("reason"):
        lines.append(Line("reason", str(result["reason"])))
    values = json.dumps(result.get("values"), ensure_ascii=False, indent=2)
    return [*lines, Line("values", values)]


def event_line(event: Mapping[str, Any], *, with_run: bool = False) -> str:
    """Return an event in one line: time, type, address, actor, and its data as JSON.

    `with_run`: the id of its run comes after the type.
    """
    data = {name: value for name, value in (event.get("data") or {}).items() if value is not None}
    data_text = truncate(json.dumps(data, ensure_ascii=False), _LONGEST) if data else ""
    by = f"by {event['actor']}" if event.get("actor") else ""
    parts = (
        short_time(event["time"]),
        event["type"].ljust(25),
        event["run_id"] if with_run else None,
        event.get("address"),
        by,
        data_text,
    )
    return " ".join(readable("  ".join(part for part in parts if part)).split("\n")).rstrip()


def short_time(moment: str) -> str:
    """Return a time of the API to the second: `2026-03-05T09:00:00Z`."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def status_of(view: Mapping[str, Any]) -> str:
    """Return the status of a run with its outcome and reason."""
    text = str(view["status"])
    if view.get("outcome") and view["outcome"] != text:
        text += f" ({view['outcome']})"
    if view.get("reason"):
        text += f": {view['reason']}"
    if view.get("paused") and view["status"] != "paused":
        text += ", paused"
    return text
