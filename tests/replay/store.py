"""The stored histories: their folder, and their format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.client import WorkflowHistory

HISTORIES: Final = Path(__file__).parent / "histories"
FOUND: Final = Path(__file__).parent / "found"
"""Histories of faults that only random runs show."""
ENDING: Final = ".json.gz"
RECORDER: Final = "recorder"
"""The identity that replaces every worker's and client's in a stored history."""


def scenario_of(path: Path) -> str:
    """Return the scenario of a stored history: its file name up to the first dot."""
    return path.name.split(".")[0]


def stored() -> list[Path]:
    """Return the paths of all stored histories, sorted by name."""
    return sorted(HISTORIES.glob(f"*{ENDING}"))


def replace(scenario: str, histories: Sequence[WorkflowHistory]) -> list[Path]:
    """Replace the stored histories of a scenario by the first and the last history of a run."""
    for path in stored():
        if scenario_of(path) == scenario:
            path.unlink()
    ends = [*histories[:1], *histories[1:][-1:]]
    numbers = [""] if len(ends) == 1 else [".1", ".2"]
    paths = [HISTORIES / f"{scenario}{number}{ENDING}" for number in numbers[: len(ends)]]
    for path, history in zip(paths, ends, strict=True):
        path.write_bytes(packed(history))
    return paths


def packed(history: WorkflowHistory) -> bytes:
    """Return a history in the stored format: JSON without machine names, compressed without a time."""
    events = _without_machine(json.loads(history.to_json()))
    return gzip.compress(json.dumps(events, separators=(",", ":")).encode(), 9, mtime=0)


def unpacked(path: Path) -> WorkflowHistory:
    """Read a stored history."""
    return WorkflowHistory.from_json(scenario_of(path), text(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The names of the signals and of the accepted updates of a history."""

    signals: frozenset[str]
    updates: frozenset[str]


def handled(path: Path) -> Handled:
    """Return the signals and the accepted updates of a stored history."""
    signals, updates = set(), set()
    for event in json.loads(text(path))["events"]:
        match event:
            case {"workflowExecutionSignaledEventAttributes": {"signalName": str(name)}}:
                signals.add(name)
            case {"workflowExecutionUpdateAcceptedEventAttributes": attributes}:
                updates.add(attributes["acceptedRequest"]["input"]["name"])
            case _:
                pass
    return Handled(signals=frozenset(signals), updates=frozenset(updates))


def text(path: Path) -> str:
    """Return the JSON of a stored history."""
    return gzip.decompress(path.read_bytes()).decode()


def _without_machine(value: Any) -> Any:
    match value:
        case {"name": str(), "kind": "TASK_QUEUE_KIND_STICKY"}:
            # The SDK names a sticky queue after the process and its machine.
            return {**value, "name": RECORDER}
        case dict():
            return {
                name: RECORDER if name == "identity" else _without_machine(each)
                for name, each in value.items()
                # A stack trace shows paths of the recording machine, and no replay looks at it.
                if name != "stackTrace"
            }
        case list():
            return [_without_machine(each) for each in value]
        case _:
            return value
