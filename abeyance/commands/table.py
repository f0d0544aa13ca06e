"""Lists as columns of text, for people; programs read JSON."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import Final

from abeyance.commands.terminal import readable, write

_GAP: Final = "  "


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their heads, each row in a line; the last column is as wide as it is."""
    flat = [[_flat(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(heads, *flat, strict=True)]
    write(_line(heads, widths))
    for row in flat:
        sys.stdout.write(f"{_line(row, widths)}\n")
    sys.stdout.flush()


def cut(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    flat = _flat(text)
    return flat if len(flat) <= most else f"{flat[: most - 3]}..."


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)
    )
    return _GAP.join(padded).rstrip()


def _flat(text: str) -> str:
    return " ".join(readable(text).split())


def _width(text: str) -> int:
    """How many columns of a terminal it takes."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)
