"""What kinds of questions differ in. A new kind is one row of `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from abeyance.core.json import Json

Kind: TypeAlias = Literal[
    "question", "approval", "static", "error", "outcome", "rule", "elicitation", "budget"
]
"""Origin of a question: code, a gated tool call, a breakpoint, a failed visit, a call with an unknown
outcome, a rule, an MCP server, a budget that is used up.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionKind:
    """What the rules need to know about a kind of question.

    `asked_by` is the author, in the graph or in code; a call of a tool, about itself; or the run, whose
    answers no code reads. An author's answers hold only for the values that were shown.

    `edits` is the member of an answer that changes what was shown: fields of the values, or arguments of
    the call. None: no answer edits, and its type judges it as a whole.
    """

    asked_by: Literal["author", "call", "run"]
    edits: Literal["values", "patch", "arguments"] | None = None

    def edited_by(self, answer: Json) -> str | None:
        """Return the member by which an answer edits what was shown; None if it does not."""
        return self.edits if isinstance(answer, Mapping) and self.edits in answer else None


KINDS: Final[Mapping[Kind, QuestionKind]] = {
    "question": QuestionKind(asked_by="author"),
    "rule": QuestionKind(asked_by="author"),
    "approval": QuestionKind(asked_by="call", edits="arguments"),
    "outcome": QuestionKind(asked_by="call"),
    "elicitation": QuestionKind(asked_by="call"),
    "static": QuestionKind(asked_by="run", edits="values"),
    "error": QuestionKind(asked_by="run", edits="patch"),
    "budget": QuestionKind(asked_by="run"),
}
