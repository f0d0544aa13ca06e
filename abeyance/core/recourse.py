"""What a person may do about a visit that has failed: try it again, skip it with a patch, or let it fail.

It is asked where the node says `on_error="interrupt"`. The visit keeps its place and its journal, so
trying again runs no finished step twice.
"""

from __future__ import annotations

from typing import Final

from abeyance.core import gate
from abeyance.core.canonical import Json
from abeyance.core.draft import Draft
from abeyance.core.model import GraphSpec, Question
from abeyance.core.outcome import Asked
from abeyance.core.state import Failure, Phase, Visit

NAME: Final = "error"
"""What the question is called; its answer is `{action: retry, skip or fail, patch?}`."""


def ask(draft: Draft, visit: Visit, failure: Failure) -> None:
    """Ask what to do about a visit that failed, which was dropped and comes back to wait."""
    draft.put_back(visit)
    visit.phase, visit.stage, visit.started_at = Phase.WAITING, "error", draft.now
    visit.stopping, visit.failure = False, failure
    question = Question(
        name=NAME,
        prompt=(
            f"{visit.node!r} failed: {failure.message} ({failure.code}). "
            "Try it again, skip it, or let it fail?"
        ),
        reason={"code": failure.code, "message": failure.message, "address": failure.address},
        response_schema=_answers(draft.graph(visit.scope)),
    )
    gate.ask(draft, visit, Asked(question=question, kind="error"))


def fields_schema(graph: GraphSpec) -> tuple[Json, Json]:
    """The JSON Schema of a mapping of some fields of a graph's values, and its definitions."""
    state = graph.input_schema if isinstance(graph.input_schema, dict) else {}
    known: dict[str, Json] = dict.fromkeys(graph.fields, True) | state.get("properties", {})
    schema = {"type": "object", "properties": known, "additionalProperties": graph.open_values}
    return schema, state.get("$defs", {})


def _answers(graph: GraphSpec) -> Json:
    patch, definitions = fields_schema(graph)
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"action": {"enum": ["retry", "skip", "fail"]}, "patch": patch},
        "required": ["action"],
        "additionalProperties": False,
        "if": {"properties": {"action": {"enum": ["retry", "fail"]}}},
        "then": {"properties": {"patch": False}},
    }
    return {**schema, "$defs": definitions} if definitions else schema
