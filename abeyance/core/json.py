"""Canonical JSON, hashes and sizes; paths and `{field}` templates over JSON values.

Equal values have one canonical text, and so equal hashes: keys are sorted, there is no whitespace, and
a float without a fraction is written as an integer, so `1` from a browser and `1.0` from a program are
the same answer. NaN and infinities are not JSON and are refused.

A template is filled once, with plain values, and never evaluated. A field is a plain name, and dots walk
mappings only: there is no attribute access and no index. A format such as `{amount:,.2f}` is Python's,
for numbers and texts, of at most 99 characters and digits. What was filled in is not filled again, so a
value that contains `{secret}` shows just that. A missing field stays as written. `{{` gives a brace.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Any JSON value: null, boolean, number, text, list, or mapping with text keys."""

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""The beginnings and ends of parts of a text, in order."""

MAX_DEPTH = 120
"""Maximum nesting of lists and mappings in stored or hashed values: a fixed bound, so that it does not
depend on the recursion limit of a process.
"""

_SHORT = 16
_EXACT = 2**53
"""Below this, every integer is exactly one floating-point number."""


# `JSONEncoder.encode` makes such an encoder for each value, which takes longer than to write most values.
_encoder = partial(
    c_make_encoder,
    markers=None,
    default=json.JSONEncoder().default,
    encoder=encode_basestring,
    indent=None,
    key_separator=":",
    item_separator=",",
    skipkeys=False,
)
_parts_in_order = _encoder(sort_keys=True, allow_nan=False)
_parts = _encoder(sort_keys=False, allow_nan=True)
_LITERALS = {None: "null", True: "true", False: "false"}
_LEAVES = frozenset({str, int, bool, type(None)})
"""Types of the values that have one text anyway."""


def canonical(value: Json) -> str:
    """Return the canonical text of a JSON value. Raises ValueError or TypeError if it is not JSON."""
    if value is None or value is True or value is False:
        return _LITERALS[value]
    return "".join(_parts_in_order(_plain(value), 0))


def why_not_json(value: Json) -> str | None:
    """Return why a value cannot be written as JSON, or None if it can.

    What was parsed from JSON is not always JSON: `1e400` is read as an infinity.
    """
    if value is None or (type(value) is int and -_EXACT < value < _EXACT):
        return None
    try:
        canonical(value).encode()
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def sha256(value: Json) -> str:
    """Return `sha256:<hex>` of the canonical text of a JSON value."""
    return f"sha256:{hashlib.sha256(canonical(value).encode()).hexdigest()}"


def short_hash(value: Json) -> str:
    """Return the first 16 hexadecimal digits of a value's hash, for ids and tables of many."""
    return sha256(value).removeprefix("sha256:")[:_SHORT]


def size(value: Json) -> int:
    """Return the size of a JSON value in bytes, as it is sent."""
    if not value:
        if value is None:
            return len(_LITERALS[None])
        if isinstance(value, dict | list | tuple | str):
            return len("[]")
    return len("".join(_parts(value, 0)).encode())


def size_of_all(values: Collection[Json]) -> int:
    """Return the size of several JSON values together."""
    between = len("[]") + max(0, len(values) - 1)
    return size([*values]) - between


def rfc3339(moment: datetime) -> str:
    """Format a UTC time, such as 2026-03-02T09:00:00Z."""
    return moment.isoformat().replace("+00:00", "Z")


def _plain(value: Json, depth: int = 0) -> Json:
    if type(value) in _LEAVES:
        return value
    match value:
        case float():
            return int(value) if value.is_integer() and abs(value) < _EXACT else value
        case dict() | Mapping() | list() | tuple() if depth == MAX_DEPTH:
            raise ValueError(f"lists and mappings are nested in it deeper than {MAX_DEPTH} levels")
        case dict() | Mapping():
            return {
                _key(key): item if type(item) in _LEAVES else _plain(item, depth + 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return [item if type(item) in _LEAVES else _plain(item, depth + 1) for item in value]
        case int() | str():
            return value
        case _:
            raise TypeError(f"{type(value).__name__} is not a JSON value")


def _key(key: Json) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"the key {key!r} of a JSON mapping is not text")


_PATH = r"[A-Za-z_]\w*(?:\.\w+)*"
_FORMAT = r"(?:[^{}]?[<>=^])?[+\- ]?0?\d{0,2}[,_]?(?:\.\d{1,2})?[deEfFgGsxX%]?"
_TEMPLATE = re.compile(rf"\{{\{{([^{{}}]*)\}}\}}|(\{{\{{)|\{{({_PATH})(?::({_FORMAT}))?\}}")
"""`{{text}}` is `{text}` and `{{` is `{`; `{field}` and `{field:format}` are a field."""
_MISFORMATTED = re.compile(rf"\{{{_PATH}[!:][^{{}}]*\}}")
_MISSING = object()
_KEPT_DEPTH = 100
"""Nesting to which a reason keeps the type of a field: what is hashed around it nests it deeper."""
_WRITTEN_OUT = 400
"""Digits of a number in a text that are written out at most: a text may say 1e999999999."""


def fill(text: str, values: Mapping[str, Json]) -> str:
    """Return the text with every existing `{field}` replaced by its value. `{{` gives a brace.

    If the format does not fit the value, such as `{amount:.2f}` and null, the value is shown without it.
    """
    return fill_marked(text, values)[0]


def fill_marked(text: str, values: Mapping[str, Json]) -> tuple[str, Spans]:
    """Return the filled text, and where the values are in it."""

    def shown(match: re.Match[str]) -> str | None:
        value = look_up(values, match[3], _MISSING)
        return None if value is _MISSING else _formatted(value, match[4] or "")

    return _filled(text, shown)


def fill_by(text: str, value_of: Callable[[str], str]) -> str:
    """Return the text with every `{field}` replaced by what `value_of` returns for its path.

    A field with a format stays as written.
    """
    return _filled(text, lambda match: value_of(match[3]) if match[4] is None else None)[0]


def _filled(text: str, shown: Callable[[re.Match[str]], str | None]) -> tuple[str, Spans]:
    spans: list[tuple[int, int]] = []
    longer = 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal longer
        quoted, brace, path, _ = match.groups()
        value = None if path is None else shown(match)
        if value is not None:
            begin = match.start() + longer
            spans.append((begin, begin + len(value)))
        elif path is None:
            value = "{" if brace else f"{{{quoted}}}"
        else:
            value = match[0]
        longer += len(value) - len(match[0])
        return value

    return _TEMPLATE.sub(replacement, text), tuple(spans)


def _formatted(value: Json, format_: str) -> str:
    plain = value if isinstance(value, str) else canonical(value)
    if not format_ or isinstance(value, bool) or not isinstance(value, str | int | float):
        return plain
    try:
        return format(value, format_)
    except (ValueError, OverflowError):
        return _as_number(plain, format_)


def _as_number(text: str, format_: str) -> str:
    # A Decimal of a state model is a text in JSON.
    try:
        number = Decimal(text)
        if abs(number.adjusted()) > _WRITTEN_OUT:
            return text
        return format(number, format_)
    except (ValueError, InvalidOperation):
        return text


def fill_all(value: Json, values: Mapping[str, Json], depth: int = 0) -> Json:
    """Return a JSON value with every text in it filled; keys stay as they are.

    A text that is one `{field}` and nothing else becomes the value, with its type. `depth` is how deep
    the value is nested.
    """
    match value:
        case str():
            return _one_field(value, values, depth)
        case Mapping():
            return {key: fill_all(item, values, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [fill_all(item, values, depth + 1) for item in value]
        case _:
            return value


def _one_field(text: str, values: Mapping[str, Json], depth: int) -> Json:
    match = _TEMPLATE.fullmatch(text)
    if match is None or match[3] is None or match[4] is not None:
        return fill(text, values)
    value = look_up(values, match[3], text)
    return value if depth + _nesting(value) <= _KEPT_DEPTH else canonical(value)


def _nesting(value: Json) -> int:
    level, nesting = [value], 0
    while level := [item for outer in level for item in _inside(outer)]:
        nesting += 1
    return nesting


def _inside(value: Json) -> Iterable[Json]:
    match value:
        case Mapping():
            return value.values()
        case list() | tuple():
            return value
        case _:
            return ()


def paths(value: Json) -> Iterator[str]:
    """Yield the paths of all fields in the texts of a JSON value, existing or not."""
    match value:
        case str():
            yield from (match[3] for match in _TEMPLATE.finditer(value) if match[3])
        case Mapping():
            for item in value.values():
                yield from paths(item)
        case list() | tuple():
            for item in value:
                yield from paths(item)
        case _:
            pass


def misformatted(text: str) -> Iterator[str]:
    """Yield the parts of a text that look like a field with a format and are not: `{amount!r}`,
    `{amount:>999}`.
    """
    yield from _MISFORMATTED.findall(_TEMPLATE.sub("", text))


def look_up(values: Mapping[str, Json], path: str, missing: Json = None) -> Json:
    """Return the value at a dotted path through mappings, or `missing`."""
    value: Json = values
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return missing
        value = value[name]
    return value


def differing(before: Mapping[str, Json], after: Mapping[str, Json]) -> set[str]:
    """Return the names that have other values in one mapping than in the other."""
    return {
        name
        for name in {*before, *after}
        if name not in before
        or name not in after
        or (before[name] is not after[name] and canonical(before[name]) != canonical(after[name]))
    }


def matches(equals: Mapping[str, Json], values: Mapping[str, Json]) -> bool:
    """Return whether every path of the values has its value; a missing one counts as null."""
    return all(
        canonical(look_up(values, path)) == canonical(value) for path, value in equals.items()
    )
