"""Lists as columns of text, for people; programs read JSON."""

from __future__ import annotations

import asyncio
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

from abeyance.core.json import canonical, truncate
from abeyance.schemas.json_schema import resolved
from abeyance.wire import visible

_GAP: Final = "  "


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their heads, each row in a line; the last column is as wide as it is."""
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
    """How many columns of a terminal it takes."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


_ODD_SPACES: Final = re.compile("[\t\u2028\u2029]")
_LABEL: Final = 11
_LONGEST: Final = 160
"""In characters: the data of an event in its line."""
_REASON: Final = 300
_ARGUMENT: Final = 300
_AGENTS: Final = 10
_NOT_READ: Final = "to be shown more takes the capability runs:read"
_OF_CALLS: Final = frozenset({"approval", "outcome"})
_UNITS: Final = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


class Line(NamedTuple):
    """One line, or several under one label."""

    label: str
    text: str


def show(lines: Iterable[Line]) -> None:
    """Print lines, with the labels in bold where the terminal can and `rich` is installed."""
    for label, text in lines:
        first, *others = readable(text).split("\n")
        write(label.ljust(_LABEL), first)
        for other in others:
            _write_plain(" " * _LABEL, other)
    sys.stdout.flush()


def write(head: str, text: str = "") -> None:
    """Print a line whose head is bold where the terminal can and `rich` is installed."""
    (_write_bold if can_draw() else _write_plain)(head, text)


def can_draw() -> bool:
    """Whether there is a terminal that knows more than lines, and `rich` to draw in it."""
    is_smart = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return is_smart and find_spec("rich") is not None


def _write_plain(head: str, text: str) -> None:
    sys.stdout.write(f"{head}{text}".rstrip(" ") + "\n")


def _write_bold(head: str, text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text.assemble((head, "bold"), text), soft_wrap=True)


async def read_line(prompt: str) -> str | None:
    """A line that a person types, without the spaces around it; None where the input ends.

    Not `input`: the thread that waits in it could not be ended by Ctrl-C.
    """
    sys.stdout.write(prompt)
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    line = sys.stdin.readline()
    return line.strip() if line else None


def readable(text: str) -> str:
    """The text without odd spaces, and with controls and what cannot be seen as code points."""
    return "".join(_readable(character) for character in visible(_ODD_SPACES.sub(" ", text)))


def _readable(character: str) -> str:
    # What is in no table of ours, such as a character that this Python does not know yet.
    if character.isprintable() or character == "\n":
        return character
    return " " if unicodedata.category(character) == "Zs" else f"<U+{ord(character):04X}>"


def run_lines(view: Mapping[str, Any], now: datetime | None = None) -> list[Line]:
    """What somebody wants to know first of a run; with `now`, also how far its deadlines are."""
    lines = [Line("run", str(view["run_id"])), Line("status", status_of(view))]
    if "graph" not in view:
        return [*lines, Line("note", _NOT_READ)]
    lines.append(Line("graph", f"{view['graph']}, started {view['created_at']}"))
    if view.get("ended_at"):
        lines.append(Line("ended", str(view["ended_at"])))
    if view.get("labels"):
        told = ", ".join(f"{name}={value}" for name, value in view["labels"].items())
        lines.append(Line("labels", told))
    if agents := view.get("agents"):
        shown = [agent_text(agent) for agent in agents[:_AGENTS]]
        rest = ["and others"] if len(agents) > _AGENTS else []
        lines.append(Line("agents", "\n".join([*shown, *rest])))
    if view.get("running"):
        lines.append(Line("at work", "\n".join(view["running"])))
    if error := view.get("error"):
        at = f" at {error['address']}" if error.get("address") else ""
        lines.append(Line("error", f"{error['code']}: {error['message']}{at}"))
    if view.get("undelivered"):
        lines.append(Line("messages", f"{len(view['undelivered'])} could not be delivered"))
    if view.get("degraded"):
        lines.append(Line("note", "no worker can be asked: this is what Temporal knows"))
    lines.extend(interrupt_lines(view.get("interrupts") or [], now))
    return lines


def agent_text(agent: Mapping[str, Any]) -> str:
    """How far an agent is: `... after 2 turns, 113 tokens in, 47 out`."""
    turns, usage = agent["turns"], agent["usage"]
    told = f"{agent['address']}  after {turns} turn{'' if turns == 1 else 's'}"
    if not usage:
        return told
    return f"{told}, {usage.get('input_tokens', 0)} tokens in, {usage.get('output_tokens', 0)} out"


def call_text(tool: str, arguments: Any) -> str:
    """The call of a tool in one line: `transfer(amount=5, to="ada")`."""
    if not isinstance(arguments, Mapping):
        # What a model wrote that is no JSON.
        text = arguments if isinstance(arguments, str) else _json(arguments)
        return f"{tool}({truncate(text, _ARGUMENT)})"
    listed = (f"{name}={truncate(_json(value), _ARGUMENT)}" for name, value in arguments.items())
    return f"{tool}({', '.join(listed)})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def interrupt_lines(
    interrupts: Sequence[Mapping[str, Any]], now: datetime | None = None
) -> list[Line]:
    """Each interrupt with its question; an open one with the way to answer it."""
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
            lines.extend(_shown(entry))
            if entry.get("deadline"):
                then = entry.get("on_timeout")
                then = then if isinstance(then, str) else json.dumps(then)
                far = f" ({distance(entry['deadline'], now)})" if now else ""
                lines.append(Line("", f"until {entry['deadline']}{far}, then {then}"))
            if entry.get("requested_capability"):
                lines.append(Line("", f"needs the capability {entry['requested_capability']}"))
            lines.extend(Line("", f"abeyance respond {entry['id']} {way}") for way in _ways(entry))
        elif entry.get("answered_by"):
            lines.append(Line("", f"by {entry['answered_by']} at {entry['answered_at']}"))
    return lines


def _shown(entry: Mapping[str, Any]) -> Iterator[Line]:
    """What somebody needs who decides: the call that is meant, or what else was given as the reason."""
    match entry.get("reason"):
        case None:
            pass
        case {"tool": str(tool), "arguments": arguments} if entry["kind"] in _OF_CALLS:
            if canonical(arguments) not in entry["prompt"]:
                yield Line("", f"about {call_text(tool, arguments)}")
        case reason:
            text = json.dumps(reason, ensure_ascii=False)
            yield Line("", f"because {truncate(text, _REASON)}")


def _ways(entry: Mapping[str, Any]) -> list[str]:
    """How to answer, as what follows on `abeyance respond ID`."""
    if entry["kind"] == "approval":
        return ["--approve", "--reject 'why'"]
    answer = json.dumps(schema_example(entry.get("response_schema")), ensure_ascii=False)
    return [shlex.quote(answer)]


def receipt_lines(receipts: Sequence[Mapping[str, Any]]) -> list[Line]:
    """What became of answers."""
    return [
        Line(
            "accepted" if not receipt.get("replayed") else "as before",
            f"{receipt['interrupt_id']}, answered by {receipt['answered_by']} at "
            f"{receipt['accepted_at']}",
        )
        for receipt in receipts
    ]


def result_lines(result: Mapping[str, Any]) -> list[Line]:
    """How a run ended, and with which values."""
    lines = [Line("outcome", str(result["outcome"]))]
    if result.get("reason"):
        lines.append(Line("reason", str(result["reason"])))
    values = json.dumps(result.get("values"), ensure_ascii=False, indent=2)
    return [*lines, Line("values", values)]


def event_line(event: Mapping[str, Any]) -> str:
    """An event in one line: when, what, where, by whom, and the rest as JSON."""
    data = {name: value for name, value in (event.get("data") or {}).items() if value is not None}
    told = truncate(json.dumps(data, ensure_ascii=False), _LONGEST) if data else ""
    by = f"by {event['actor']}" if event.get("actor") else ""
    parts = (short_time(event["time"]), event["type"].ljust(25), event.get("address"), by, told)
    return " ".join(readable("  ".join(part for part in parts if part)).split("\n")).rstrip()


def short_time(moment: str) -> str:
    """A time of the API, to the second: `2026-03-05T09:00:00Z`."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def distance(moment: str, now: datetime) -> str:
    """How far a time is, in its two largest units: `in 2 d 3 h`, `5 min ago`."""
    seconds = int((datetime.fromisoformat(moment) - now).total_seconds())
    rest = abs(seconds)
    told: list[str] = []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count or told or unit == "s":
            told.append(f"{count} {unit}")
    text = " ".join(told[:2])
    return f"in {text}" if seconds >= 0 else f"{text} ago"


def status_of(view: Mapping[str, Any]) -> str:
    """The status of a run, with how and why it came to it."""
    told = str(view["status"])
    if view.get("outcome") and view["outcome"] != told:
        told += f" ({view['outcome']})"
    if view.get("reason"):
        told += f": {view['reason']}"
    if view.get("paused") and view["status"] != "paused":
        told += ", paused"
    return told


_DEEPEST: Final = 8


def schema_example(schema: Any) -> Any:
    """A value that fits the schema, or nearly: ranges, formats and patterns are left to the person."""
    return _specimen(schema, schema, 0)


def _specimen(schema: Any, root: Any, depth: int) -> Any:
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth == _DEEPEST:
        return None
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _specimen(schema[key][0], root, depth + 1)
    match schema.get("type"):
        case "object":
            return _object(schema, root, depth)
        case "boolean":
            return True
        case "integer" | "number":
            return 0
        case "array":
            return []
        case "null":
            return None
        case _:
            return "..."


def _object(schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
    fields = schema.get("properties") or {}
    needed = [*(schema.get("required") or ())]
    found = {name: _specimen(fields.get(name), root, depth + 1) for name in needed}
    # As of who accepts what an MCP server asks, who then has to fill something in.
    match schema:
        case {"if": {"properties": Mapping() as cases}, "then": {"required": [*more]}} if all(
            isinstance(case, Mapping) and name in found and found[name] == case.get("const")
            for name, case in cases.items()
        ):
            found |= {name: _specimen(fields.get(name), root, depth + 1) for name in more}
        case _:
            pass
    return found
