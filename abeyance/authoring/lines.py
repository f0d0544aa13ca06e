"""The lines of an author's code that declare a graph. The graph's faults name them.

Declarations from YAML have no lines here: the document has lines of its own.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

import pydantic

Line: TypeAlias = tuple[str, int]
"""A file and the number of a line in it."""

_OURS: Final = "abeyance."
_DECLARING: Final = tuple(
    f"{Path(each)}{os.sep}" for each in (Path(__file__).parents[1], Path(pydantic.__file__).parent)
)
"""The folders of the code with which authors declare."""
_PYTHON: Final = f"{sysconfig.get_path('stdlib')}{os.sep}"
_YAML: Final = "abeyance.yaml."
_PLACED: Final = re.compile(r" \((?P<file>[^()]+), line (?P<line>\d+)\)\Z")


def here() -> Line | None:
    """Return the line of the author's code that led to this call; None if YAML led to it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 `inspect.stack` reads the source of every frame
    while frame is not None:
        module = f"{frame.f_globals.get('__name__')}."
        if module.startswith(_YAML):
            return None
        if not module.startswith(_OURS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def placed(fault: str, line: Line | None) -> str:
    """Return a fault with its line added, unless it has one, as a fault of a nested graph has."""
    if line is None or _PLACED.search(fault):
        return fault
    file, number = line
    path, folder = Path(file), Path.cwd()
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{fault} ({shown}, line {number})"


def raised_at(error: BaseException) -> str:
    """Return the line of the author's code in which an error was raised, as `graphs.py, line 12`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_authors(frame.filename)]
    last = (own or frames)[-1]
    return f"{last.filename}, line {last.lineno}"


def _is_authors(file: str) -> bool:
    # Methods of dataclasses have the file <string>. An installed package may be an author's.
    is_pythons = file.startswith(_PYTHON) and "site-packages" not in file
    return not (file.startswith((*_DECLARING, "<")) or is_pythons)


def line_of(fault: str) -> int | None:
    """Return the line that a fault names, or None."""
    found = _PLACED.search(fault)
    return None if found is None else int(found["line"])


class Lines:
    """The lines of one graph's declarations, by the subjects that begin its faults."""

    def __init__(self) -> None:
        self._whole = here()
        self._by_subject: dict[str, Line | None] = {}

    def declare(self, subjects: Iterable[str]) -> None:
        """Record the author's current line for the subjects; the last of several declarations counts."""
        self._by_subject.update(dict.fromkeys(subjects, here()))

    def placed(self, faults: Iterable[str]) -> list[str]:
        """Return the faults without duplicates, each with the line of its subject, else of the graph."""
        # A nested graph and the outer one may report the same fault.
        found: dict[str, str] = {}
        for fault in faults:
            found.setdefault(_PLACED.sub("", fault), self._placed(fault))
        return [*found.values()]

    def _placed(self, fault: str) -> str:
        subject = max(filter(fault.startswith, self._by_subject), key=len, default=None)
        return placed(fault, self._whole if subject is None else self._by_subject[subject])


def subjects_of_node(name: str) -> list[str]:
    """Return the names that faults give a node of any kind."""
    kinds = ("node", "interrupt", "nested graph", "agent", "finally node", "node name")
    return [
        *(f"the {kind} {name!r}" for kind in kinds),
        f"two nodes are named {name!r}",
        f"{name!r} is a reserved word",
    ]


def subjects_of_edge(source: object, target: object) -> list[str]:
    """Return the names that faults give an edge or a join."""
    names = _sources(source)
    return [
        f"the edge from {source!r} to {target!r}",
        _edge(names, target),
        f"the join {'+'.join(names) + f'>{target}'!r}",
        f"an edge to {target!r} has no source",
    ]


def subjects_of_condition(source: object, target: object, when: object) -> dict[str, str]:
    """Return the name that faults give each path of an edge's condition: other edges may join the same
    nodes.
    """
    paths = when if isinstance(when, Mapping) else ()
    return {path: f"{_edge(_sources(source), target)} looks at {path!r}" for path in paths}


def _sources(source: object) -> list[str]:
    sources = [source] if isinstance(source, str) or not isinstance(source, Iterable) else source
    return [*map(str, sources)]


def _edge(names: Iterable[str], target: object) -> str:
    return f"the edge from {', '.join(map(repr, names))} to {target!r}"
