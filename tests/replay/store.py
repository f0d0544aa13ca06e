"""The stored histories: where they lie, and how they are packed."""

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
"""Histories of faults that only chance brings about."""
ENDING: Final = ".json.gz"
RECORDER: Final = "recorder"
"""Who did it, in a stored history, whoever did it."""


def scenario_of(path: Path) -> str:
    """The scenario that a stored history is of: its name up to the first dot."""
    return path.name.split(".")[0]


def stored() -> list[Path]:
    """All stored histories, by name."""
    return sorted(HISTORIES.glob(f"*{ENDING}"))


def replace(scenario: str, histories: Sequence[WorkflowHistory]) -> list[Path]:
    """Store the first and the last history of a run in place of what is stored of the scenario."""
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
    """A history as it is stored: JSON without what names a machine, compressed without a time."""
    events = _without_machine(json.loads(history.to_json()))
    return gzip.compress(json.dumps(events, separators=(",", ":")).encode(), 9, mtime=0)


def unpacked(path: Path) -> WorkflowHistory:
    """A stored history."""
    return WorkflowHistory.from_json(scenario_of(path), text(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The names of the signals and of the accepted updates of a history."""

    signals: frozenset[str]
    updates: frozenset[str]


def handled(path: Path) -> Handled:
    """What a stored run was sent and took."""
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
    """The JSON of a stored history."""
    return gzip.decompress(path.read_bytes()).decode()


def _without_machine(value: Any) -> Any:
    match value:
        case {"name": str(), "kind": "TASK_QUEUE_KIND_STICKY"}:
            # Named after the process and its machine.
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
