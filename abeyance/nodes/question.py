"""A question as an author writes it: what a node or a rule asks a person."""

from __future__ import annotations

from typing import Any, Final

from abeyance.core.canonical import Json, size
from abeyance.core.model import Ask, Default, InterruptNode, Question
from abeyance.nodes.intake import Intake
from abeyance.values.fitting import field_schema, misfit, narrowed
from abeyance.values.statemodel import StateModel

_LARGEST: Final = 100_000
"""In bytes: what is shown stays in the run's state for as long as the question is open."""
_SUPPLIED: Final = {
    "reason": "reason",
    "payload": "payload",
    "response_schema": "response",
    "requested_capability": "requested_capability",
    "timeout": "timeout",
    "on_timeout": "on_timeout",
}
"""The fields of a question that a rule may supply, and how authors write them."""


def question_of(
    name: str,
    told: str,
    intake: Intake,
    states: StateModel,
    *,
    prompt: str | None = None,
    reason: Json = None,
    payload: Json = None,
    response: object = None,
    answer_to: str | None = None,
    requested_capability: str | None = None,
    timeout: object = None,
    on_timeout: object = "halt",
) -> Question:
    """The question; what is wrong with it is noted. Without a prompt, another has to supply one."""
    if response is None and isinstance(answer_to, str):
        response = states.answer_type(answer_to)
        response_schema = intake.schema(response, told)
    else:
        response_schema = intake.schema(response, told)
        if isinstance(answer_to, str):
            field = field_schema(states, answer_to)
            if (why := misfit(response_schema, field)) is not None:
                intake.note(
                    f"{told} answers to {answer_to!r} with what is none of its values: {why}"
                )
            # An answer that is accepted has to be one that the nodes which read it can read.
            response_schema = intake.schema(narrowed(response_schema, field), told)
    prompt = intake.text("" if prompt is None else prompt, f"{told}, prompt=")
    reason = intake.json(reason, f"{told}, reason=")
    payload = intake.json(payload, f"{told}, payload=")
    shown = size([prompt, reason, payload, response_schema])
    if shown > _LARGEST:
        intake.note(
            f"{told} shows {shown} bytes, and may show {_LARGEST}: keep large data elsewhere, and "
            "show a reference to it"
        )
    return Question(
        name=name,
        prompt=prompt,
        reason=reason,
        payload=payload,
        response_schema=response_schema,
        requested_capability=intake.capability(requested_capability, told),
        timeout=intake.seconds(timeout, f"{told}, timeout="),
        on_timeout=intake.on_timeout(
            on_timeout,
            told,
            response=response,
            response_schema=response_schema,
            answer_to=answer_to,
        ),
    )


def supplied(node: InterruptNode, rule: str, ask: Ask, intake: Intake) -> InterruptNode:
    """The gate with what a rule says of its question. What both say is noted, if it differs."""
    told = f"the interrupt {node.id!r}"
    own, blank = node.question, Question(name="", prompt="")
    found: dict[str, Any] = {"prompt": ask.question.prompt}
    both: list[str] = []
    for field, written in _SUPPLIED.items():
        here, there, nothing = (getattr(each, field) for each in (own, ask.question, blank))
        found[field] = there if here == nothing else here
        if nothing not in (here, there) and here != there:
            both.append(written)
    if None not in (node.answer_to, ask.answer_to) and node.answer_to != ask.answer_to:
        both.append("answer_to")
    for written in both:
        intake.note(f"{told} and the rule {rule!r}, which asks for it, both say {written}")
    question = Question(name=own.name, **found)
    answer_to = ask.answer_to if node.answer_to is None else node.answer_to
    if isinstance(question.on_timeout, Default) and not both:
        # Held against the schema once more: it may be the other who says what fits.
        again = {"default": question.on_timeout.answer}
        intake.on_timeout(
            again, told, response_schema=question.response_schema, answer_to=answer_to
        )
    return InterruptNode(id=node.id, question=question, answer_to=answer_to)
