"""The lines of an audit: canonical, chained by hashes, signed; and their verification. Pure.

A line is a JSON object in the canonical form of RFC 8785, without the line break after it. Beside its
content it has:

n          its number, from 1
prev       the SHA-256 of the bytes of the line before, in hexadecimal; null in the first
hash       the SHA-256 of the canonical form of all its other members but `signature`
signature  that of the bytes of `hash`, by ed25519, in base64; only with a key

The last line is of the type `end` (the run has ended), `open` (it had not, when the audit was read) or
`erased` (a tombstone). So a cut tail is seen.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import rfc8785

from abeyance.core.json import Json
from abeyance.keyring import SigningKey, VerifyingKey

END: Final = "end"
OPEN: Final = "open"
ERASED: Final = "erased"
LAST: Final = frozenset({END, OPEN, ERASED})
"""The types of a last line."""

_EXACT: Final = 2**53
_MARKS: Final = ("hash", "signature")
_MOST_FAULTS: Final = 20


class Chain:
    """Makes the lines of an audit, after `lines` that it has already. Without a key it signs none."""

    def __init__(self, key: SigningKey | None, lines: Iterable[bytes] = ()) -> None:
        self._key = key
        self._prev: str | None = None
        self._count = 0
        for line in lines:
            self._append(line)

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
        self._append(data)
        return data

    def _append(self, line: bytes) -> None:
        self._count += 1
        self._prev = hashlib.sha256(line).hexdigest()


def content_of(line: bytes) -> dict[str, Any]:
    """Return the content of a line, without what the chain added to it."""
    added = {*_MARKS, "n", "prev", "lines"}
    return {name: value for name, value in _parsed(line).items() if name not in added}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What does not match in a line."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification found. `last` is the content of the last line, empty if it was cut off.

    `is_signed`: the lines have signatures, which were checked only with a key.
    """

    lines: int
    faults: tuple[Fault, ...]
    last: Mapping[str, Any]
    is_signed: bool


def verify(data: bytes, key: VerifyingKey | None = None) -> Verified:
    """Verify an audit by its bytes alone; with a key also that every line was signed by it.

    Says of each line what does not match. What follows from a changed line is not told again.
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
        # After a line that does not match, the next one has nothing to be held against.
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


def are_signed(lines: Iterable[bytes], key: VerifyingKey) -> bool:
    """Return whether each of these lines is signed by the key."""
    return all(_read(line, key)[1] is None for line in lines)


def _read(line: bytes, key: VerifyingKey | None) -> tuple[dict[str, Any], str | None]:
    """The content of a line, and what is wrong with it by itself."""
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
        return content, "its content does not have its `hash`"
    match content:
        case {"n": int(), "prev": str() | None, "type": str()}:
            pass
        case _:
            return content, "it is no line of an audit"
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
        raise ValueError(message)  # noqa: TRY004  (as all else that is no such line)
    return content


def _number(text: str) -> int | float:
    # In RFC 8785 every number is a double, and large ones are written without an exponent.
    number = int(text)
    return number if abs(number) < _EXACT else float(text)


def _exact(value: Json) -> Any:
    """Return a value of which the canonical form exists: as text, what no double is exactly."""
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
