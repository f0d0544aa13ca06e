"""Asking people about the calls of tools: may this one be run, and what became of that one.

An approval is bound to what was shown: the digest of the tool and its arguments travels with the
question, and a call that differs by then is another call, which nobody has approved. Nothing fails open:
a predicate that raises, or says neither True nor False, asks for an approval; an answer that cannot be
read rejects.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from abeyance.agents.tool_errors import ArgumentsError, cut
from abeyance.authoring.callables import call
from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.core.json import Json, canonical, fill, sha256, size
from abeyance.core.outcome import Asked
from abeyance.core.spec import Question
from abeyance.duration import Duration
from abeyance.schemas.state_model import StateModel

if TYPE_CHECKING:
    from abeyance.agents.tool import Tool

APPROVE: Final = "approve"
"""What the question for an approval is called."""
UNANSWERED: Final = "nobody answered in time"
"""Why a call is rejected whose deadline says so."""
OUTCOME: Final = "outcome"
"""What the question is called that asks what became of a call."""

Approve: TypeAlias = bool | Callable[[dict[str, Any]], bool | Awaitable[bool]]
OnApprovalTimeout: TypeAlias = Literal["halt", "reject"] | Mapping[Literal["default"], Json]

_LARGEST: Final = 100_000
"""In bytes: what is shown stays in the run's state for as long as the question is open."""
_MOST_SHOWN: Final = 300
_OF_THE_ROOT: Final = frozenset({"$schema", "$id", "$defs", "definitions"})
_NO_STATE: Final = StateModel(None)
_logger = logging.getLogger("abeyance.approvals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A call is not run, because a person, or a deadline, said so. `reason` is theirs."""

    reason: str | None = None

    @property
    def text(self) -> str:
        """What the model is told."""
        why = "" if self.reason is None else f": {self.reason}"
        return cut(f"The call was rejected, so it was not run{why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A person knows that a call was done, with this result."""

    result: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoAgain:
    """A person wants a call to be made again. Its idempotency key stays the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """A person wants a call to count as failed, or their answer cannot be read."""

    text: str


Outcome: TypeAlias = Done | DoAgain | GiveUp


async def needs_approval(tool: Tool, arguments: Mapping[str, Json]) -> bool:
    """Whether a person has to approve this call before it is run. `arguments` are those that were read.

    The predicate gets a copy, and may be a coroutine function; a plain one runs in a thread.
    """
    if isinstance(tool.approve, bool):
        return tool.approve
    try:
        found = await call(tool.approve, copy.deepcopy(dict(arguments)))
    except Exception:
        _logger.warning(
            "tool=%s | its approve= raised, so the call needs an approval", tool.name, exc_info=True
        )
        return True
    if not isinstance(found, bool):
        _logger.warning(
            "tool=%s | its approve= returned a %s, not True or False, so the call needs an approval",
            tool.name,
            type(found).__name__,
        )
        return True
    return found


def approval(tool: Tool, arguments: Mapping[str, Json]) -> Asked:
    """The question whether a call may be run, with the tool and its arguments.

    The answer is `{approved: true, arguments?}`, with edited arguments where they are to be others, or
    `{approved: false, reason?}`. Raises ArgumentsError if the arguments are too large to be shown.
    """
    shown = {"tool": tool.name, "arguments": copy.deepcopy(dict(arguments))}
    if tool.prompt is None:
        listed = cut(canonical(arguments), _MOST_SHOWN)
        prompt = f"Run {tool.name!r} with {listed}?"
    else:
        prompt = fill(tool.prompt, arguments)
    question = replace(
        tool.question,
        prompt=prompt,
        reason=shown,
        payload={"digest": call_digest(tool.name, arguments)},
    )
    _demand_showable(tool, question)
    return Asked(question=question, kind="approval")


def call_digest(tool: str, arguments: Mapping[str, Json]) -> str:
    """What binds an approval to a call: `sha256:<hex>` of the tool's name and the arguments."""
    return sha256({"tool": tool, "arguments": dict(arguments)})


def approved_arguments(
    tool: Tool, answer: Json, original: Mapping[str, Json]
) -> dict[str, Json] | Rejected:
    """The arguments with which a call may be run: the person's, or the original ones.

    Edited ones are read as a model's are, and those that do not fit reject the call.
    """
    match answer:
        case {"approved": True, "arguments": Mapping() as edited, **rest} if not rest:
            try:
                return tool.read(edited)
            except ArgumentsError as error:
                return Rejected(
                    reason=f"the arguments that a person put in do not fit. {error.text}"
                )
        case {"approved": True, **rest} if not rest:
            return copy.deepcopy(dict(original))
        case {"approved": False, "reason": str() as reason, **rest} if not rest:
            return Rejected(reason=reason)
        case {"approved": False, **rest} if not rest:
            return Rejected()
        case _:
            return Rejected(reason="the answer to the approval cannot be read")


def outcome_question(tool: Tool, arguments: Mapping[str, Json]) -> Asked:
    """The question what became of an approved call whose worker was lost in the middle of it.

    The answer is `{action: "done", result?}`, `{action: "retry"}` or `{action: "fail"}`. It waits for
    as long as it takes, because no answer can be guessed.
    """
    question = Question(
        name=OUTCOME,
        prompt=(
            f"The worker that ran {tool.name!r} was lost, and nobody knows whether the call was done. "
            "Find out, and say: done (with its result), retry, or fail."
        ),
        reason={"tool": tool.name, "arguments": copy.deepcopy(dict(arguments))},
        payload={"digest": call_digest(tool.name, arguments)},
        response_schema=_OUTCOMES,
        requested_capability=tool.question.requested_capability,
    )
    return Asked(question=question, kind="outcome")


def outcome_of(tool: Tool, answer: Json) -> Outcome:
    """What a person says became of a call. Raises ResultError if their result is too large."""
    match answer:
        case {"action": "done", **rest} if rest.keys() <= {"result"}:
            return Done(result=tool.told(rest.get("result")))
        case {"action": "retry", **rest} if not rest:
            return DoAgain()
        case {"action": "fail", **rest} if not rest:
            return GiveUp(
                text=f"The worker that ran {tool.name!r} was lost; a person says that the call failed."
            )
        case _:
            return GiveUp(
                text=f"The worker that ran {tool.name!r} was lost, and what a person said about the call "
                "cannot be read; it may or may not have been done."
            )


def declared_question(
    told: str,
    intake: DeclarationErrors,
    schema: Json,
    *,
    requested_capability: str | None,
    timeout: Duration | None,
    on_timeout: OnApprovalTimeout,
) -> Question:
    """The part of an approval that is the same for each call of a tool; faults are noted."""
    supplied: Any = on_timeout
    match on_timeout:
        case "reject":
            supplied = {"default": {"approved": False, "reason": UNANSWERED}}
        case str() if on_timeout != "halt":
            intake.note(
                f"{told}: on_timeout={on_timeout!r} is neither 'halt' nor 'reject' nor "
                '{"default": answer}'
            )
            supplied = "halt"
        case _:
            pass
    if timeout is None and on_timeout != "halt":
        intake.note(f"{told} says on_timeout, but has no approval_timeout")
    return question_of(
        APPROVE,
        told,
        intake,
        _NO_STATE,
        response=_answers(schema),
        requested_capability=requested_capability,
        timeout=timeout,
        on_timeout=supplied,
    )


def _demand_showable(tool: Tool, question: Question) -> None:
    shown = size([question.reason, question.payload, question.response_schema])
    if shown > _LARGEST:
        raise ArgumentsError(
            f"{tool.name!r} was not run: a person has to approve the call, and would have to be shown "
            f"{shown} bytes, of at most {_LARGEST}. Call it again with smaller arguments."
        )


def _answers(schema: Json) -> Json:
    """Not `oneOf`: a fault then has no place in the answer, and its text repeats all of it."""
    inner = {key: value for key, value in schema.items() if key not in _OF_THE_ROOT}
    answers: dict[str, Json] = {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "arguments": inner,
            "reason": {"type": "string", "maxLength": 2_000},
        },
        "required": ["approved"],
        "additionalProperties": False,
        "if": {"properties": {"approved": {"const": True}}},
        "then": {"properties": {"reason": False}},
        "else": {"properties": {"arguments": False}},
    }
    # References are from the root of a schema, so what they lead to has to stand there.
    return answers | {key: schema[key] for key in ("$defs", "definitions") if key in schema}


_OUTCOMES: Final[Json] = {
    "type": "object",
    "properties": {"action": {"enum": ["done", "retry", "fail"]}, "result": True},
    "required": ["action"],
    "additionalProperties": False,
    "if": {"properties": {"action": {"enum": ["retry", "fail"]}}},
    "then": {"properties": {"result": False}},
}
