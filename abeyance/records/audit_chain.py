"""The lines of an audit: their content, chained by hashes and signed, and their verification. Pure.

A line is a JSON object in the canonical form of RFC 8785, without the line break after it. Beside its
content it has:

n          its number, from 1
prev       the SHA-256 of the bytes of the line before, in hexadecimal; null in the first
hash       the SHA-256 of the canonical form of all its other members but `signature`
signature  the ed25519 signature of the bytes of `hash`, in base64; only with a key

The last line is of the type `end` (the run has ended), `open` (it had not, when the audit was read) or
`erased` (a tombstone). So a missing tail shows.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import rfc8785

from abeyance import views
from abeyance.core.delegations import ADMIN
from abeyance.core.json import Json, rfc3339
from abeyance.core.policy import Principal
from abeyance.keyring import SigningKey, VerifyingKey

END: Final = "end"
OPEN: Final = "open"
ERASED: Final = "erased"
LAST: Final = frozenset({END, OPEN, ERASED})
"""The types of a last line."""

_EXACT: Final = 2**53
_MARKS: Final = ("hash", "signature")
_MOST_FAULTS: Final = 20


def content_of(event: views.Event, audit: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the content of an event's line, with what the audit alone adds to the event.

    Later events do not change the line: only the line of a rewind says that the rewind discarded events.
    """
    return {
        **event.model_dump(mode="json", exclude={"data", "rewound_by"}, exclude_none=True),
        "data": event.data,
        **(audit or {}),
    }


def closing(
    view: views.RunView,
    settled: Iterable[views.InterruptView],
    *,
    execution: str,
    now: datetime,
) -> dict[str, Json]:
    """Return the content of the last line of an audit."""
    return {
        "type": OPEN if view.ended_at is None else END,
        "run_id": view.run_id,
        "time": rfc3339(view.ended_at or now),
        "execution": execution,
        "run": view.model_dump(mode="json", exclude_defaults=True),
        "interrupts": [each.model_dump(mode="json", exclude_defaults=True) for each in settled],
    }


def written(
    contents: Iterable[Mapping[str, Json]],
    *,
    reader: Principal | None = None,
    key: SigningKey | None = None,
) -> bytes:
    """Return the lines of an audit, `redacted` for its reader, and signed if there is a key."""
    chain = Chain(key)
    return b"".join(chain.add(redacted(content, reader)) + b"\n" for content in contents)


def redacted(content: Mapping[str, Json], reader: Principal | None) -> Mapping[str, Json]:
    """Return the content of a line without answers to questions whose capability the reader lacks,
    unless the reader has `admin`; None reads all.
    """
    if reader is None or reader.may(ADMIN):
        return content
    if "interrupts" in content:
        return {**content, "interrupts": [_hidden(each, reader) for each in content["interrupts"]]}
    if "answer" not in content or reader.may(content["capability"]):
        return content
    return {**content, "answer": None, "redacted": True}


def _hidden(interrupt: Mapping[str, Json], reader: Principal) -> Mapping[str, Json]:
    if reader.may(interrupt.get("requested_capability")):
        return interrupt
    return {name: it for name, it in interrupt.items() if name != "answer"}


class Chain:
    """Makes the lines of an audit. Without a key it signs none."""

    def __init__(self, key: SigningKey | None) -> None:
        self._key = key
        self._prev: str | None = None
        self._count = 0

    def add(self, content: Mapping[str, Json]) -> bytes:
        """Return the next line."""
        number = self._count + 1
        ended = {"lines": number} if content["type"] in LAST else {}
        line = _exact({**content, **ended, "n": number, "prev": self._prev})
        digest = hashlib.sha256(rfc8785.dumps(line))
        line["hash"] = digest.hexdigest()
        if self._key is not None:
            line["signature"] = self._key.sign(digest.digest())
        data = rfc8785.dumps(line)
        self._count += 1
        self._prev = hashlib.sha256(data).hexdigest()
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A mismatch in a line."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of a verification. `last` is the content of the last line, empty if it was cut off.

    `is_signed`: the lines have signatures, which were checked only with a key.
    """

    lines: int
    faults: tuple[Fault, ...]
    last: Mapping[str, Any]
    is_signed: bool


def verify(data: bytes, key: VerifyingKey | None = None) -> Verified:
    """Verify an audit by its bytes alone; with a key also that every line was signed by it.

    Reports the mismatch of each line, but not the consequences of a changed line.
    """
    lines = data.split(b"\n")
    rest = lines.pop()
    faults: list[Fault] = []
    if rest:
        # Without its line break it may be half a line.
        lines.append(rest)
    before: bytes | None = None
    last: dict[str, Any] = {}
    is_signed = False
    for number, line in enumerate(lines, 1):
        content, fault = _read(line, key)
        if fault is None and before is not None:
            fault = _out_of_order(number, content, last)
            if fault is None and content["prev"] != hashlib.sha256(before).hexdigest():
                message = f"its bytes do not have the hash that line {number} names as `prev`"
                faults.append(Fault(line=number - 1, message=message))
        elif fault is None and number == 1 and (content["prev"], content["n"]) != (None, 1):
            fault = "it is not the first line: what was before it was cut off"
        if fault is not None:
            faults.append(Fault(line=number, message=fault))
        is_signed = is_signed or "signature" in content
        # The line after one that does not match cannot be compared with it.
        before, last = (line, content) if fault is None else (None, {})
    if not faults:
        faults += _cut(len(lines), last, has_rest=bool(rest))
    is_whole = last.get("type") in LAST
    return Verified(
        lines=len(lines),
        faults=tuple(faults[:_MOST_FAULTS]),
        last=last if is_whole else {},
        is_signed=is_signed,
    )


def _read(line: bytes, key: VerifyingKey | None) -> tuple[dict[str, Any], str | None]:
    """Return the content of a line, and its fault, if it has one by itself."""
    try:
        content = _parsed(line)
        is_canonical = rfc8785.dumps(content) == line
    except (ValueError, RecursionError):
        return {}, "it is not a JSON object"
    if not is_canonical:
        return content, "it is not in the canonical form of RFC 8785"
    hashed = {name: value for name, value in content.items() if name not in _MARKS}
    digest = hashlib.sha256(rfc8785.dumps(hashed))
    if content.get("hash") != digest.hexdigest():
        return content, "its `hash` is not the hash of its content"
    match content:
        case {"n": int(), "prev": str() | None, "type": str()}:
            pass
        case _:
            return content, "it is not a line of an audit"
    if key is not None:
        if "signature" not in content:
            return content, "it is not signed"
        if not key.verifies(str(content["signature"]), digest.digest()):
            return content, "its `signature` is not one of this key for its `hash`"
    return content, None


def _out_of_order(number: int, content: Mapping[str, Any], last: Mapping[str, Any]) -> str | None:
    if content["n"] != last["n"] + 1:
        return f"its number is {content['n']}, after {last['n']}: lines were taken out, or moved"
    if content.get("run_id") != last.get("run_id"):
        return f"it is of another run than line {number - 1}: {content.get('run_id')!r}"
    if last["type"] in LAST:
        return f"it follows the last line, of the type {last['type']!r}"
    return None


def _cut(count: int, last: Mapping[str, Any], *, has_rest: bool) -> list[Fault]:
    if has_rest:
        return [Fault(line=count, message="its line break was cut off")]
    if last.get("type") not in LAST:
        return [
            Fault(line=count, message=f"what followed was cut off: no line is {END!r} or {OPEN!r}")
        ]
    if last.get("lines") != last["n"]:
        return [Fault(line=count, message=f"it counts {last.get('lines')} lines")]
    return []


def _parsed(line: bytes) -> dict[str, Any]:
    content = json.loads(line, parse_int=_number)
    if not isinstance(content, dict):
        message = "not an object"
        raise ValueError(message)  # noqa: TRY004  (as for all other lines that are not of an audit)
    return content


def _number(text: str) -> int | float:
    # In RFC 8785 every number is a double, and large ones are written without an exponent.
    number = int(text)
    return number if abs(number) < _EXACT else float(text)


def _exact(value: Json) -> Any:
    """Return a value that has a canonical form: a number that is not exactly a double becomes text."""
    match value:
        case bool() | None:
            return value
        case int():
            return value if abs(value) < _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value.encode(errors="backslashreplace").decode()
        case Mapping():
            return {_exact(str(name)): _exact(item) for name, item in value.items()}
        case _:
            return [_exact(item) for item in value]
