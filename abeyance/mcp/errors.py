"""What can go wrong with a server of the Model Context Protocol, named by what to do next.

McpError
  McpDown         try again later
  McpUnusable     do not try again: a person has to change something
  McpToolError    tell the model: it may call differently, or do without
"""

from __future__ import annotations

from typing import Final

from abeyance.errors import AbeyanceError

_LEAST_ERROR: Final = 400
_LEAST_SERVER_ERROR: Final = 500
_LATER: Final = frozenset({408, 425, 429})
"""What a client did, and need not do differently the next time."""


class McpError(AbeyanceError):
    """Root of everything in this module."""


class McpDown(McpError):
    """The server is not there, died in the middle, or took too long. The call may be made again.

    `sent` says whether the call may have reached the server: what it did is then unknown, so a tool
    that must not act twice is not to be called again without asking.
    """

    def __init__(self, message: str, *, sent: bool = False) -> None:
        self.sent = sent
        super().__init__(message)


class McpUnusable(McpError):
    """The server cannot be used as it is declared or as it behaves; another attempt would be wrong."""


class McpToolError(McpError):
    """This call did not do. The text is a result that the model should see.

    `code` is `unknown_tool`, `result_too_large`, `bad_elicitation`, `declined` or `refused`.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def of_status(status: int | None, told: str) -> McpDown | McpUnusable | None:
    """What the status of an answer over HTTP means by itself; None if it is no error."""
    if status is None or status < _LEAST_ERROR:
        return None
    message = f"{told} with status {status}"
    if status < _LEAST_SERVER_ERROR and status not in _LATER:
        return McpUnusable(message)
    return McpDown(message, sent=status not in _LATER)
