"""JSON that everybody reads alike: UTF-8, finite numbers, whole characters, and not too deep."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any, Final

from abeyance.errors import Code, Refusal

MAX_DEPTH: Final = 64
"""How deep lists and mappings may be nested in a body."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def check_json(body: bytes) -> None:
    """Raise `malformed_body` unless the bytes are JSON that everybody reads alike."""
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE.search(body):
            # Half of a pair is no character: it could be neither stored nor shown.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise _malformed("it holds half of a surrogate pair, which is no character") from None
    except UnicodeDecodeError as error:
        raise _malformed(f"it is not UTF-8 ({error.reason} at byte {error.start})") from None
    except ValueError as error:
        raise _malformed(str(error)) from None
    brackets = _STRING.sub(b"", body).translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise _too_deep()


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
        f"The body nests lists and mappings deeper than {MAX_DEPTH} levels.",
        limit=MAX_DEPTH,
    )
