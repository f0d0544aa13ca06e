"""The tokens of a CLIPS text, taken one after the other.

They are CLIPS's own, less what no condition needs: variables that hold lists, global variables, names of
modules and of instances. What a token is decides this module alone, since CLIPS never sees the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

_LARGEST: Final = 10_000
_ENDLESS: Final = "this text has no end, or a control character in it"
_UNREAD: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
"""CLIPS ends its text at some of these, and deletes the character before others."""
_TOKEN: Final = re.compile(
    rf"""(?P<space>\s+|;[^\r\n]*)
      | (?P<text>"(?:[^"\\{_UNREAD}]|\\[^{_UNREAD}])*")
      | (?P<variable>\?[A-Za-z_][A-Za-z0-9_\-]*)
      | (?P<wildcard>\?)
      | (?P<sign><-|[()&|~])
      | (?P<word><>|<=|<|[^\s"()&|~;<?${_UNREAD}][^\s"()&|~;<?{_UNREAD}]*)""",
    re.VERBOSE | re.DOTALL,
)


class TextError(ValueError):
    """A text that cannot be used; what it says tells why, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token; `kind` is text, variable, wildcard, sign, word or end, and `at` counts characters."""

    kind: str
    text: str
    at: int


class Tokens:
    """The tokens of a text, of which one is seen at a time. Raises TextError where one cannot be read."""

    def __init__(self, text: str) -> None:
        if len(text) > _LARGEST:
            message = f"it has {len(text)} characters; at most {_LARGEST} are read"
            raise TextError(message)
        self._text = text
        self._read = [*self._scanned(), Token(kind="end", text="", at=len(text))]
        self._next = 0

    @property
    def seen(self) -> Token:
        """The token that comes next; behind the last one, it is the end for ever."""
        return self._read[self._next]

    def take(self) -> Token:
        """The token that comes next, and go on behind it."""
        token = self.seen
        self._next = min(self._next + 1, len(self._read) - 1)
        return token

    def expect(self, what: str, wanted: str, opened: Token | None = None) -> Token:
        """Take a token of the kind `what`, or this sign. Raises TextError: `wanted` should stand here.

        `opened` is the parenthesis that is still open, to be named too.
        """
        token = self.take()
        if what not in {token.kind, token.text if token.kind == "sign" else None}:
            since = f", for the `(` at {self._place(opened.at)}" if opened else ""
            self.refuse(token, f"here {wanted} should stand{since}")
        return token

    def refuse(self, token: Token, why: str) -> NoReturn:
        """Raise a TextError that says where the token stands, and why it cannot stand there."""
        shown = f"`{token.text[:40]}`" if token.kind != "end" else "the end"
        message = f"{self._place(token.at)}: {shown}: {why}"
        raise TextError(message)

    def _scanned(self) -> Iterator[Token]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                sign = Token(kind="sign", text=self._text[at], at=at)
                is_text = sign.text == '"'
                self.refuse(sign, _ENDLESS if is_text else "CLIPS text has no such sign")
            if found.lastgroup != "space":
                yield Token(kind=str(found.lastgroup), text=found[0], at=at)
            at = found.end()

    def _place(self, at: int) -> str:
        line = self._text.count("\n", 0, at)
        column = at - (self._text.rfind("\n", 0, at) + 1)
        return f"line {line + 1}, column {column + 1}"


def requoted(token: Token) -> str:
    """A token as it is written for CLIPS."""
    if token.kind != "text":
        return token.text
    return quoted(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL))


def quoted(text: str) -> str:
    """A text in the quotes of CLIPS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
