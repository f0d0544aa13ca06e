"""The stored histories: where they lie, how they are packed, and the list that keeps them as they are."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.client import WorkflowHistory

HISTORIES: Final = Path(__file__).parent / "histories"
MANIFEST: Final = HISTORIES / "MANIFEST"
ENDING: Final = ".json.gz"
RECORDER: Final = "recorder"
"""Who did it, in a stored history, whoever did it."""


def scenario_of(path: Path) -> str:
    """The scenario that a stored history is of: its name up to the first dot."""
    return path.name.split(".")[0]


def stored() -> list[Path]:
    """All stored histories, by name."""
    return sorted(HISTORIES.glob(f"*{ENDING}"))


def paths_for(scenario: str, count: int, *, folder: Path = HISTORIES) -> list[Path]:
    """Where the histories of one run belong, the oldest first: numbered if there are several."""
    numbers = [""] if count == 1 else [f".{number}" for number in range(1, count + 1)]
    return [folder / f"{scenario}{number}{ENDING}" for number in numbers]


def free_name(scenario: str) -> str:
    """The name to store the next recording of a scenario under: its own, or with a number."""
    taken = {name.split(".")[0] for name in manifest()}
    number = 1
    while (name := scenario if number == 1 else f"{scenario}-{number}") in taken:
        number += 1
    return name


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


def manifest(file: Path = MANIFEST) -> dict[str, str]:
    """The sha256 of each history that was ever stored, by file name."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: digest for digest, name in (line.split() for line in lines)}


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def add(packs: dict[Path, bytes], file: Path = MANIFEST) -> None:
    """Store packed histories. Nothing is written if one of them is there already."""
    taken = sorted(path.name for path in packs if path.exists() or path.name in manifest(file))
    if taken:
        message = (
            f"{', '.join(taken)}: stored already, and histories are never edited, only added. To "
            "record what today's code does, say --again."
        )
        raise FileExistsError(message)
    for path, pack in packs.items():
        path.write_bytes(pack)
    listed = manifest(file) | {path.name: digest(path) for path in packs}
    _list(listed, file)


def _list(listed: Mapping[str, str], file: Path) -> None:
    file.write_text("".join(f"{listed[name]}  {name}\n" for name in sorted(listed)))


def delete(scenarios: Collection[str]) -> None:
    """Delete the stored histories of scenarios."""
    kept = {
        name: digest for name, digest in manifest().items() if name.split(".")[0] not in scenarios
    }
    for path in stored():
        if path.name not in kept:
            path.unlink()
    _list(kept, MANIFEST)


def edited(file: Path = MANIFEST) -> list[str]:
    """What is not as the list says: histories that are missing, were changed, or are not listed."""
    listed = manifest(file)
    found = {path.name: digest(path) for path in file.parent.glob(f"*{ENDING}")}
    return [
        *(f"{name} is missing" for name in sorted(listed.keys() - found.keys())),
        *(
            f"{name} was changed"
            for name in sorted(listed.keys() & found.keys())
            if listed[name] != found[name]
        ),
        *(f"{name} is not in MANIFEST" for name in sorted(found.keys() - listed.keys())),
    ]


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
