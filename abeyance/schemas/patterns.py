"""Cost of matching texts against the regular expressions of a schema.

Most patterns are matched in one go through a text, at a cost for each byte that grows with the pattern:
`(?:x{1,100}){1,100}y` stands for ten thousand states, each of which may have to be looked at for each
byte. Patterns with lookaround or backreferences backtrack instead; after a number of attempts the text
counts as not matching.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import jsonschema_rs

from abeyance.core.text import truncate

Options: TypeAlias = jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions

_LARGEST: Final = 1_000_000
_SIZES: Final = (*(2**power for power in range(9, 20)), _LARGEST)
"""In bytes. How large a pattern is when compiled shows in the least of these that it can do with."""
_PER_UNIT: Final = 100
"""A state of a pattern takes about as many bytes, and at each byte of a text a unit of work."""
_LOOKAROUND: Final = 1_000
"""Units at a byte of a text. So all texts of an answer that are held against such patterns may have
20,000 bytes together, however harmless the pattern is: that does not show."""
_LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=_LARGEST)
_BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=1_000, size_limit=_LARGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled pattern: `size` in bytes, `cost` in units of work for each byte of a text."""

    size: int
    looks_around: bool

    @property
    def cost(self) -> int:
        return _LOOKAROUND if self.looks_around else 1 + self.size // _PER_UNIT


@lru_cache(maxsize=10_000)
def pattern_of(text: str) -> Pattern:
    """Measure a pattern. Raise ValueError if it is invalid or too large."""
    for size in _SIZES:
        if _is_compiled(text, jsonschema_rs.RegexOptions(size_limit=size)):
            return Pattern(size=size, looks_around=False)
    if _is_compiled(text, _BACKTRACKING):
        return Pattern(size=_LARGEST, looks_around=True)
    message = f"the pattern {truncate(text, 200)!r} is not a regular expression, or is too large"
    raise ValueError(message)


def options(*, looks_around: bool) -> Options:
    """Return the options for compiling patterns."""
    return _BACKTRACKING if looks_around else _LINEAR


def _is_compiled(text: str, options: Options) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": text}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return False
    return True
