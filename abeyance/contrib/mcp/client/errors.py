"""Errors of MCP servers, classified by what to do next.

McpError
  McpDown         retry later
  McpUnusable     do not retry: the declaration or the server must change
  McpToolError    return the text to the model: it may call differently, or do without
"""

from __future__ import annotations

from typing import Final

from abeyance.errors import AbeyanceError

_FIRST_ERROR: Final = 400
_FIRST_SERVER_ERROR: Final = 500
_RETRYABLE: Final = frozenset({408, 425, 429})
"""Client errors for which the same request may succeed later."""


class McpError(AbeyanceError):
    """Base of the errors in this module."""


class McpDown(McpError):
    """The server is unreachable, died during the call, or took too long. The call may be retried.

    If `sent`, the call may have reached the server and its effect is unknown, so a tool that must not act
    twice must not be called again without asking.
    """

    def __init__(self, message: str, *, sent: bool = False) -> None:
        self.sent = sent
        super().__init__(message)


class McpUnusable(McpError):
    """The server cannot be used as declared, or misbehaves. A retry does not help."""


class McpToolError(McpError):
    """The call failed. The text is a result for the model.

    `code` is `unknown_tool`, `result_too_large`, `bad_elicitation`, `declined` or `refused`.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def of_status(status: int | None, label: str) -> McpDown | McpUnusable | None:
    """Return the error for an HTTP status, or None if it is not an error."""
    if status is None or status < _FIRST_ERROR:
        return None
    message = f"{label} with status {status}"
    if status < _FIRST_SERVER_ERROR and status not in _RETRYABLE:
        return McpUnusable(message)
    return McpDown(message, sent=status not in _RETRYABLE)
