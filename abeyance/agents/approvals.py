"""Approvals of tool calls: their declarations, their questions, and their answers.

An approval is bound to what the approver saw: the question carries a digest of the tool and its
arguments, and a call with another digest is not approved. Nothing fails open: a predicate that raises, or
returns anything but True or False, requires an approval; an unreadable answer rejects the call.

If the worker of an approved call was lost, a person is asked what became of the call.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
)
from pydantic.dataclasses import dataclass

from abeyance.agents import tool_results
from abeyance.agents.tool_errors import ArgumentsError, CallDenied, CallError
from abeyance.agents.tool_results import UNANSWERED
from abeyance.agents.tool_schema import Arguments
from abeyance.authoring.callables import call
from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.core import terms as core
from abeyance.core.answering import call_digest
from abeyance.core.json import Json, Spans, canonical, fill_marked, sha256, size
from abeyance.core.outcome import Asked, key_of
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import WHERE, Terms, Where, is_restricted
from abeyance.core.text import truncate
from abeyance.duration import Duration, positive_seconds, seconds
from abeyance.schemas.json_schema import resolved, without_loops

if TYPE_CHECKING:
    from abeyance.agents.tool import Tool

APPROVE: Final = "approve"
"""The name of an approval question."""
APPROVAL: Final = key_of("approval", APPROVE)
"""The key of its answer in the visit of the call."""
OUTCOME: Final = "outcome"
"""The name of the question about the outcome of a call."""

Approve: TypeAlias = bool | Callable[[dict[str, Any]], bool | Awaitable[bool]]
OnApprovalTimeout: TypeAlias = Literal["halt", "reject"] | Mapping[Literal["default"], Json]

_MAX_SHOWN_BYTES: Final = 100_000
"""The most bytes that an approval may show: an open question stays in the run's state."""
_MAX_PROMPT_ARGUMENTS: Final = 300
_MAX_WORDS: Final = 1_000
_ROOT_KEYWORDS: Final = frozenset({"$schema", "$id", "$defs", "definitions"})
_LONGEST_DAYS: Final = 90
_LONGEST: Final = _LONGEST_DAYS * 86_400.0
_logger = logging.getLogger("abeyance.approvals")


def _longest(most: Duration) -> Duration:
    if seconds(most) > _LONGEST:
        raise ValueError(f"{seconds(most):g} s is invalid: use at most {_LONGEST_DAYS}d")
    return most


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Remember:
    """How far approvers may remember their yes: for up to `most` (at most 90 days), and for calls of the
    same run (`"run"`) or of all runs of the graph (`"graph"`).

    A later call is covered if its arguments `same` have the same values, and its arguments `below` are
    numbers under their bounds.
    """

    most: Annotated[Duration, BeforeValidator(positive_seconds), AfterValidator(_longest)]
    where: Annotated[Sequence[Where], Field(min_length=1)] = ("run",)
    same: str | Sequence[str] = ()
    below: Mapping[str, StrictInt | StrictFloat] = Field(default_factory=dict)


def remembered(value: object, schema: Json, errors: DeclarationErrors) -> core.Remember | None:
    """Return how far approvals of a tool whose arguments have this schema may be remembered; None if they
    may not, or if the declaration has faults, which are collected.
    """
    if value is None:
        return None
    label, before = "remember=", len(errors.faults)
    if not isinstance(value, Remember):
        errors.note(f"{label}{value!r} is invalid: use Remember(most='7d', where=['run', 'graph'])")
        return None
    same = errors.texts(value.same, f"{label}, same=")
    given = schema.get("properties")
    fields: Mapping[str, Json] = given if isinstance(given, Mapping) else {}
    for name in (*same, *value.below):
        if name not in fields:
            listed = ", ".join(map(repr, fields)) or "none"
            errors.note(
                f"{label} names {name!r}, which is not an argument of the tool; there are {listed}"
            )
    for name in value.below:
        if name in fields and not _is_number(fields[name], schema):
            errors.note(f"{label}, below=: the argument {name!r} is not a number, and has no bound")
    if len(errors.faults) > before:
        return None
    return core.Remember(
        most=seconds(value.most),
        where=tuple(each for each in WHERE if each in value.where),
        same=tuple(dict.fromkeys(same)),
        below=dict(value.below),
    )


def _is_number(field_: Json, schema: Json) -> bool:
    found = resolved(field_, schema)
    return isinstance(found, Mapping) and found.get("type") in ("number", "integer")


def remembered_of_tool(
    allowed: core.Remember | None,
    question: InterruptSpec,
    errors: DeclarationErrors,
    **about: Any,
) -> core.Remember | None:
    """Return how far an approval may be remembered, with a hash of the declaration: of the approval
    `question`, and of the facts `about` the tool.
    """
    if allowed is None:
        return None
    terms = question.terms
    if is_restricted(terms) or (terms is not None and terms.hold is not None):
        errors.note(
            "remember= has no effect with quorum=, not_by=, assignees_only= or hold=: remove one of them"
        )
    hashed = {"remember": asdict(allowed), "question": asdict(question), **about}
    return replace(allowed, declaration=sha256(hashed))


def declared_question(
    errors: DeclarationErrors,
    arguments: Arguments | None,
    *,
    is_rememberable: bool,
    requested_capability: str | None,
    timeout: Duration | None,
    on_timeout: OnApprovalTimeout,
    terms: Terms | None,
) -> InterruptSpec:
    """Return the part of an approval that all calls of a tool share; errors are added to `errors`."""
    label = "its approval"
    rejection = {"approved": False, "reason": UNANSWERED}
    default = errors.named_default(on_timeout, label, word="reject", answer=rejection)
    if timeout is None and on_timeout != "halt":
        errors.note(f"{label} has on_timeout but no approval_timeout: set approval_timeout=")
    question = question_of(
        APPROVE,
        label,
        errors,
        response=_answer_schema(arguments, is_rememberable=is_rememberable),
        requested_capability=errors.plain_capability(requested_capability, label),
        timeout=timeout,
        on_timeout=default,
        terms=terms,
    )
    # The types of the arguments may write an edit differently than the approver did.
    return replace(question, rewrites=arguments is not None and arguments.rewrites)


def _answer_schema(arguments: Arguments | None, *, is_rememberable: bool) -> Json:
    # Where the schema refers to itself, only the tool's types check the arguments.
    whole = without_loops({"type": "object"} if arguments is None else arguments.schema)
    # Not `oneOf`: its validation errors name no field and repeat the whole answer.
    edits: Json = {key: value for key, value in whole.items() if key not in _ROOT_KEYWORDS}
    if arguments is not None and arguments.is_judged_elsewhere:
        # An approver may edit the arguments to values that their schema does not allow.
        edits = {"anyOf": [edits, {"type": "object"}]}
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "arguments": edits,
            "reason": {"type": "string", "maxLength": 2_000},
            "result": {
                "description": "What the model reads in place of the call, which is not made."
            },
            **({"remember": _REMEMBER_SCHEMA} if is_rememberable else {}),
        },
        "required": ["approved"],
        "additionalProperties": False,
        "if": {"properties": {"approved": {"const": True}}},
        "then": {"properties": {"reason": False, "result": False}},
        "else": {
            "properties": {"arguments": False, **({"remember": False} if is_rememberable else {})},
            "if": {"required": ["result"]},
            "then": {"properties": {"reason": False}},
        },
    }
    # References resolve from the root of a schema, so their definitions belong there.
    return schema | {key: whole[key] for key in {"$defs", "definitions"} & whole.keys()}


_REMEMBER_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "for": {"type": ["string", "number"], "description": "How long, such as `8h`."},
        "where": {"enum": [*WHERE]},
        "uses": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
    },
    "required": ["for", "where"],
    "additionalProperties": False,
}


async def needs_approval(tool: Tool, arguments: Mapping[str, Json]) -> bool:
    """Return True if a call with these parsed arguments needs an approval.

    The predicate gets a copy of them. It may be a coroutine function; a plain one runs in a thread.
    """
    if isinstance(tool.approve, bool):
        return tool.approve
    try:
        verdict = await call(tool.approve, copy.deepcopy(dict(arguments)))
    except Exception:
        _logger.warning(
            "tool=%s | approve= raised, so the call needs an approval", tool.name, exc_info=True
        )
        return True
    if not isinstance(verdict, bool):
        _logger.warning(
            "tool=%s | approve= returned a %s, not True or False, so the call needs an approval",
            tool.name,
            type(verdict).__name__,
        )
        return True
    return verdict


def approval_question(tool: Tool, arguments: Mapping[str, Json], words: str = "") -> Asked:
    """Return the approval question for a call; `words` is the text of its framework about the call.

    The answer is `{approved: true, arguments?, remember?}`, with `arguments` if the approver edits them,
    `{approved: false, reason?}`, or `{approved: false, result}`. Raises ArgumentsError if the arguments
    are too large to show.
    """
    shown = {"tool": tool.name, "arguments": copy.deepcopy(dict(arguments))}
    if tool.prompt is None:
        summary = truncate(canonical(arguments), _MAX_PROMPT_ARGUMENTS)
        prompt = f"Run {tool.name!r} with {summary}?"
        spans: Spans = ((0, len(prompt)),)
    else:
        prompt, spans = fill_marked(tool.prompt, arguments)
    if words:
        begin, prompt = len(prompt), f"{prompt} {truncate(words, _MAX_WORDS)}"
        spans = (*spans, (begin, len(prompt)))
    question = replace(
        tool.question,
        prompt=prompt,
        reason=shown,
        payload={"digest": call_digest(tool.name, arguments)},
    )
    shown_bytes = size([question.reason, question.payload, question.response_schema])
    if shown_bytes > _MAX_SHOWN_BYTES:
        raise ArgumentsError(
            f"{tool.name!r} was not run: its approval would show {shown_bytes} bytes to a person, of at "
            f"most {_MAX_SHOWN_BYTES}. Call it again with smaller arguments."
        )
    return Asked(question=question, kind="approval", prompt_values=spans, remember=tool.remember)


def shown_unasked(tool: Tool, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return the content that the approval of an unasked call would have shown, for the report; nothing
    if it is too large to show.
    """
    try:
        asked = approval_question(tool, arguments)
    except ArgumentsError:
        return {}
    shown = {name: getattr(asked.question, name) for name in ("prompt", "reason", "payload")}
    return {**shown, "prompt_values": [[*span] for span in asked.prompt_values]}


def approved_arguments(tool: Tool, answer: Json, original: Mapping[str, Json]) -> dict[str, Json]:
    """Return the approved arguments: the approver's edits, or the original ones.

    Edited arguments are validated like those of a model. Raises CallDenied if they are invalid, and if
    the answer rejects the call or cannot be read.
    """
    match answer:
        case {"approved": True, "arguments": Mapping() as edits, **rest} if not rest:
            try:
                return tool.read(edits)
            except ArgumentsError as error:
                why = f": the arguments that a person put in do not fit. {error.text}"
        case {"approved": True, **rest} if not rest:
            return copy.deepcopy(dict(original))
        case {"approved": False, "reason": str() as reason, **rest} if not rest:
            why = f": {reason}"
        case {"approved": False, **rest} if not rest:
            why = ""
        case _:
            why = ": the answer to the approval cannot be read"
    raise CallDenied(f"The call was rejected, so it was not run{why}")


def outcome_question(tool: Tool, arguments: Mapping[str, Json], number: int = 1) -> Asked:
    """Return the question about the outcome of an approved call that was cut off. `number` counts these
    questions of the call, and gives each its own name.

    The answer is `{action: "done", result?}`, `{action: "retry"}` or `{action: "fail"}`. It has no
    deadline, because no default is safe.
    """
    question = InterruptSpec(
        name=OUTCOME if number == 1 else f"{OUTCOME}.{number}",
        prompt=(
            f"The call of {tool.name!r} was cut off, and its outcome is unknown: its worker was lost, or "
            "the run was stopped. "
            "Find out whether it was done, and answer: done (with its result), retry, or fail."
        ),
        reason={"tool": tool.name, "arguments": copy.deepcopy(dict(arguments))},
        payload={"digest": call_digest(tool.name, arguments)},
        response_schema=_OUTCOME_SCHEMA,
        requested_capability=tool.question.requested_capability,
    )
    return Asked(question=question, kind="outcome")


def reported_result(tool: Tool, answer: Json) -> dict[str, Json] | None:
    """Return the result that an operator reported for a call that was cut off; None if the call must run
    again, with the same idempotency key.
    """
    match answer:
        case {"action": "done", **rest} if rest.keys() <= {"result"}:
            try:
                return tool_results.content(tool.checked_result(rest.get("result")))
            except CallError as error:
                return tool_results.error(error.text)
        case {"action": "retry", **rest} if not rest:
            return None
        case {"action": "fail", **rest} if not rest:
            text = f"The call of {tool.name!r} was cut off; an operator reports that it failed."
        case _:
            text = (
                f"The call of {tool.name!r} was cut off, and the operator's answer cannot be read. "
                "It may have been done."
            )
    return tool_results.error(text)


_OUTCOME_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"action": {"enum": ["done", "retry", "fail"]}, "result": True},
    "required": ["action"],
    "additionalProperties": False,
    "if": {"properties": {"action": {"enum": ["retry", "fail"]}}},
    "then": {"properties": {"result": False}},
}
