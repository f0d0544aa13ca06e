"""JSON that everybody reads alike: UTF-8, finite numbers, whole characters, each key once, not too deep.

How much there is in a body is counted before it is parsed: a parser makes an object of every two
brackets, so a body of a megabyte could hold up everybody else for as long as that takes.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import accumulate
from typing import Any, Final

from abeyance.errors import Code, Refusal

MAX_DEPTH: Final = 64
"""How deep lists and mappings may be nested in a body."""
MAX_VALUES: Final = 100_000
"""How many values a body may hold, lists and mappings among them."""

_APART: Final = 100_000
"""In bytes: from here on a body is parsed beside the event loop."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SHOWN_CHARS: Final = 100


async def check_body(body: bytes) -> None:
    """Raise `malformed_body` or `payload_too_large` unless the bytes are JSON of which all that holds."""
    if len(body) <= _APART:
        check_json(body)
    else:
        await asyncio.to_thread(check_json, body)


def check_json(body: bytes) -> None:
    """The same, in the thread that calls."""
    _check_structure(body)
    try:
        value = json.loads(
            body.decode(),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_each_once,
        )
        if _SURROGATE.search(body):
            # Half of a pair is no character: it could be neither stored nor shown.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise _malformed("it has an unpaired surrogate") from None
    except UnicodeDecodeError as error:
        raise _malformed(f"it is not UTF-8 ({error.reason} at byte {error.start})") from None
    except ValueError as error:
        raise _malformed(str(error)) from None


def _check_structure(body: bytes) -> None:
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MAX_DEPTH and opened + body.count(b",") < MAX_VALUES:
        return
    # Text may have brackets and commas too. Where it does not end, the parser stops as well.
    bare = b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    # Each value but the outermost is the first in a list or mapping, or stands behind a comma.
    values = 1 + bare.count(b"[") + bare.count(b"{") + bare.count(b",")
    if values > MAX_VALUES:
        raise Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"The body has {values} values; the limit is {MAX_VALUES}. Send a reference to large data.",
            limit=MAX_VALUES,
            actual=values,
        )
    brackets = bare.translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise _too_deep()


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                shown = key[:_SHOWN_CHARS]
                raise Refusal(
                    Code.MALFORMED_BODY,
                    f"The body has the key {shown!r} twice in one object: send each key once.",
                    key=shown,
                )
            seen.add(key)
    return found


def _no_constant(name: str) -> Any:
    message = f"{name} is not a JSON value"
    raise ValueError(message)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        message = f"the number {text[:50]} is too large"
        raise ValueError(message)
    return value


def _malformed(why: str) -> Refusal:
    return Refusal(Code.MALFORMED_BODY, f"The body is not JSON: {why}.")


def _too_deep() -> Refusal:
    return Refusal(
        Code.MALFORMED_BODY,
        f"The body is nested more than {MAX_DEPTH} levels deep: flatten it.",
        limit=MAX_DEPTH,
    )
