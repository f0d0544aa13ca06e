"""Errors of tool calls, with a text for the model.

No text holds a traceback: a model cannot use it, and readers of the conversation must not learn the
internals of the worker. The log has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from abeyance.core.text import truncate
from abeyance.errors import AbeyanceError

MAX_ERROR_CHARS: Final = 2_000
"""The text stays in the conversation, and is sent with every later turn."""


class CallError(Exception):
    """A tool call without a result. `text` is for the model."""

    def __init__(self, text: str) -> None:
        self.text = truncate(text, MAX_ERROR_CHARS)
        super().__init__(self.text)


class ArgumentsError(CallError):
    """The arguments of a call are invalid. The tool did not run."""


class CallDenied(CallError):
    """A hook or an approver has denied the call. The tool did not run."""


class ToolFailed(CallError):
    """The tool raised `__cause__`. A tool may raise this itself, to choose the text."""


class ResultError(CallError):
    """The tool has run, but its result is not JSON, or too large."""


class ToolDeclarationError(AbeyanceError):
    """The declaration of a tool is invalid. `faults` holds one sentence for each error."""

    def __init__(self, name: str, faults: Sequence[str]) -> None:
        self.name = name
        self.faults = tuple(faults)
        listed = "\n".join(f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1))
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"the tool {name!r} has {count}:\n{listed}")


def described(error: BaseException) -> str:
    """Return the type and the text of an exception, for a person or a model."""
    try:
        text = truncate(str(error), MAX_ERROR_CHARS)
    except Exception as broken:  # noqa: BLE001 the author's own `__str__` may raise anything
        text = f"(its text is not available: {type(broken).__name__})"
    if isinstance(error, BaseExceptionGroup):
        # Its own text holds only the number of exceptions.
        text = truncate(f"{text}: {'; '.join(map(described, error.exceptions))}", MAX_ERROR_CHARS)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
