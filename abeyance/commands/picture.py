"""A run as it is drawn in a terminal while it moves. Needs `rich`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from abeyance.commands.terminal import Line, readable, run_lines

_EVENTS: Final = 8
_QUESTIONS: Final = 3
_PROMPT: Final = 6
"""How many events, questions and lines of a question are shown: a terminal is not high."""
_TYPE: Final = 25
_LABEL: Final = 9


class Picture:
    """What is known of a run: its `view`, the last of its events, and what keeps more from coming."""

    def __init__(self, view: Mapping[str, Any]) -> None:
        self.view = view
        self.trouble = ""
        self._events: deque[Mapping[str, Any]] = deque(maxlen=_EVENTS)

    def add(self, event: Mapping[str, Any]) -> None:
        """Another event has come."""
        self._events.append(event)

    @property
    def is_clouded(self) -> bool:
        """Whether the view may be an old one, or not all there is to know."""
        return bool(self.trouble or self.view.get("degraded"))

    def lines(self, now: datetime) -> Sequence[Line]:
        """What is to be seen now; where nothing has changed, the same as before."""
        asked = self.view["interrupts"]
        shown = [{**entry, "prompt": _shortened(entry["prompt"])} for entry in asked[:_QUESTIONS]]
        lines = run_lines({**self.view, "interrupts": shown}, now)
        if (more := len(asked) - _QUESTIONS) > 0:
            lines.append(Line("", f"and {more} more: abeyance interrupts {self.view['run_id']}"))
        lines.extend(
            Line("" if number else "events", _moved(event))
            for number, event in enumerate(self._events)
        )
        if self.trouble:
            lines.append(Line("trouble", self.trouble))
        return lines


def drawn(lines: Sequence[Line]) -> Table:
    """Lines as a picture that is as wide as the terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_LABEL)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(Text(label), Text(readable(text)))
    return table


def _moved(event: Mapping[str, Any]) -> str:
    moment = datetime.fromisoformat(event["time"]).astimezone(UTC)
    return (
        f"{moment:%H:%M:%SZ}  {event['type'].ljust(_TYPE)}  {event.get('address') or ''}".rstrip()
    )


def _shortened(prompt: str) -> str:
    lines = prompt.split("\n")
    return "\n".join([*lines[:_PROMPT], "..."] if len(lines) > _PROMPT else lines)
