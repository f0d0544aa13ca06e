"""Runs, interrupts and answers as a person reads them in a terminal.

Text from a run is somebody else's: a prompt that carries escape sequences must not repaint the
terminal of whoever decides on it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

_LABEL: Final = 11


class Line(NamedTuple):
    """One line, or several under one label."""

    label: str
    text: str


def show(lines: Iterable[Line]) -> None:
    """Print lines, with the labels in bold where the terminal can and `rich` is installed."""
    write = _write_bold if sys.stdout.isatty() and find_spec("rich") else _write_plain
    for label, text in lines:
        first, *others = readable(text).split("\n")
        write(label.ljust(_LABEL), first)
        for other in others:
            _write_plain(" " * _LABEL, other)
    sys.stdout.flush()


def _write_plain(head: str, text: str) -> None:
    sys.stdout.write(f"{head}{text}".rstrip(" ") + "\n")


def _write_bold(head: str, text: str) -> None:
    from rich.console import Console  # noqa: PLC0415  (an extra, and only where it is of use)
    from rich.text import Text  # noqa: PLC0415

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
    """The text without control characters, invisible ones and odd spaces."""
    return "".join(_readable(character) for character in text)


def _readable(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return (
        " " if unicodedata.category(character) in ("Zs", "Zl", "Zp") or character == "\t" else "�"
    )


def run_lines(view: Mapping[str, Any]) -> list[Line]:
    """What somebody wants to know first of a run."""
    lines = [Line("run", str(view["run_id"])), Line("status", _status(view))]
    lines.append(Line("graph", f"{view['graph']}, started {view['created_at']}"))
    if view.get("ended_at"):
        lines.append(Line("ended", str(view["ended_at"])))
    if view.get("labels"):
        told = ", ".join(f"{name}={value}" for name, value in view["labels"].items())
        lines.append(Line("labels", told))
    if view.get("running"):
        lines.append(Line("at work", "\n".join(view["running"])))
    if error := view.get("error"):
        at = f" at {error['address']}" if error.get("address") else ""
        lines.append(Line("error", f"{error['code']}: {error['message']}{at}"))
    if view.get("undelivered"):
        lines.append(Line("messages", f"{len(view['undelivered'])} could not be delivered"))
    if view.get("degraded"):
        lines.append(Line("note", "no worker can be asked: this is what Temporal knows"))
    lines.extend(interrupt_lines(view.get("interrupts") or []))
    return lines


def interrupt_lines(interrupts: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Each interrupt with its question; an open one with the way to answer it."""
    lines = []
    for entry in interrupts:
        is_open = entry["status"] == "open"
        lines.append(Line("question" if is_open else entry["status"], entry["prompt"]))
        lines.append(Line("", f"{entry['id']}  at {entry['address']}"))
        if is_open:
            if entry.get("deadline"):
                then = entry.get("on_timeout")
                then = then if isinstance(then, str) else json.dumps(then)
                lines.append(Line("", f"until {entry['deadline']}, then {then}"))
            if entry.get("requested_capability"):
                lines.append(Line("", f"needs the capability {entry['requested_capability']}"))
            answer = json.dumps(example(entry.get("response_schema")), ensure_ascii=False)
            lines.append(Line("", f"abeyance respond {entry['id']} {shlex.quote(answer)}"))
        elif entry.get("answered_by"):
            lines.append(Line("", f"by {entry['answered_by']} at {entry['answered_at']}"))
    return lines


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


def example(schema: Any) -> Any:
    """A value of about the form that a JSON Schema wants, to be edited by a person."""
    if not isinstance(schema, Mapping):
        return None
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return example(schema[key][0])
    match schema.get("type"):
        case "object":
            fields = schema.get("properties") or {}
            return {name: example(fields.get(name)) for name in schema.get("required") or ()}
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


def _status(view: Mapping[str, Any]) -> str:
    told = str(view["status"])
    if view.get("outcome") and view["outcome"] != told:
        told += f" ({view['outcome']})"
    if view.get("reason"):
        told += f": {view['reason']}"
    if view.get("paused") and view["status"] != "paused":
        told += ", paused"
    return told
