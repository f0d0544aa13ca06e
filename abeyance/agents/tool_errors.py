"""A tool call that gave no result: what the model is told about it, so that it can do better.

Nothing here carries a traceback: a model can do nothing with one, and whoever reads the conversation
should not learn how the worker is built. The log has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from abeyance.core.json import truncate
from abeyance.errors import AbeyanceError

_LONGEST: Final = 2_000
"""In characters: what is told stays in the conversation, and is sent with every turn that follows."""


class CallError(Exception):
    """A call of a tool gave no result. `text` is for the model."""

    def __init__(self, text: str) -> None:
        self.text = cut(text)
        super().__init__(self.text)


class ArgumentsError(CallError):
    """The arguments of a call do not fit the tool, which was not run."""


class ToolFailed(CallError):
    """The tool raised: `__cause__` says what. A tool that raises this itself says what is told."""


class ResultError(CallError):
    """The tool has run, but what it returned cannot be told: it is no JSON, or too large."""


class ToolDeclarationError(AbeyanceError):
    """A function cannot be a tool as it is declared. `faults` holds a sentence for each reason."""

    def __init__(self, name: str, faults: Sequence[str]) -> None:
        self.name = name
        self.faults = tuple(faults)
        listed = "\n".join(f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1))
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"the tool {name!r} has {count}:\n{listed}")


def described(error: BaseException) -> str:
    """What an exception says, with its type, for a person or a model."""
    try:
        text = cut(str(error))
    except Exception as unsayable:  # noqa: BLE001 the author's own `__str__` may raise anything
        text = f"(its text cannot be told: {type(unsayable).__name__})"
    if isinstance(error, BaseExceptionGroup):
        # Its own text says only how many there are.
        text = cut(f"{text}: {'; '.join(map(described, error.exceptions))}")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cut(text: str, longest: int = _LONGEST) -> str:
    """A text that can be sent, and is not too long to be told."""
    text = text.encode(errors="replace").decode()
    return truncate(text, longest)
