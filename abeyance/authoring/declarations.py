"""What an author gives a graph, taken in: it becomes what a spec holds, and what is wrong is noted.

Nothing here raises, because an author is told all faults at once, when the graph is built.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from abeyance import wire
from abeyance.authoring.callables import can_take, takes
from abeyance.core.json import Json, canonical, size, why_not_json
from abeyance.core.spec import (
    Ask,
    AskHuman,
    Default,
    Fail,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    InterruptNode,
    InterruptSpec,
    OnError,
    OnTimeout,
    SubgraphNode,
)
from abeyance.duration import seconds
from abeyance.schemas import json_schema
from abeyance.schemas.answers import as_asked
from abeyance.schemas.json_types import misfit, narrowed
from abeyance.schemas.state_model import StateModel, ValuesError, at_pointer

_GOTO: Final = "goto:"
_CAPABILITY: Final = re.compile(r"(?!\*)[^\s,\x00-\x1f\x7f]+")
_LONGEST_LOCAL: Final = 60.0
"""In seconds. A task of the workflow is kept open for as long as a local node runs."""
_PARTS: Final[Mapping[type, TypeAdapter[Any]]] = {
    part: TypeAdapter(part) for part in (GraphSpec, FunctionNode, InterruptNode, SubgraphNode)
}


class DeclarationErrors:
    """Takes in what is declared. `told` says of what an argument is; `faults` holds a sentence each."""

    def __init__(self, states: StateModel) -> None:
        self.faults: list[str] = []
        self._states = states

    def note(self, fault: str) -> None:
        """Note a fault."""
        self.faults.append(fault)

    def names(self, given: str | Iterable[str], told: str) -> tuple[str, ...]:
        """Names of nodes. A single text is one name: `to="pay"` does not mean three nodes."""
        is_one = isinstance(given, str) or not isinstance(given, Iterable)
        names: tuple[Any, ...] = (given,) if is_one else tuple(given)
        for name in names:
            if not isinstance(name, str):
                self.note(f"{told}: {name!r} is no name of a node, which is a text")
        return tuple(name for name in names if isinstance(name, str))

    def mapping(self, given: object, told: str) -> dict[str, str] | None:
        """A mapping of fields to fields, or None."""
        if given is None:
            return None
        if isinstance(given, Mapping) and all(
            isinstance(name, str) for pair in given.items() for name in pair
        ):
            return dict(given)
        self.note(f"{told}: {given!r} is no mapping of fields to fields")
        return None

    def takes(self, function: Callable[..., Any], told: str) -> int:
        """How many of (state, context) the function of a node takes."""
        found = takes(function)
        if found is None:
            self.note(f"{told} must take (state), (state, ctx) or nothing")
        return found or 0

    def decides(self, function: Callable[..., Any], told: str) -> None:
        """Whether a function can decide a route."""
        if not can_take(function, 1):
            self.note(f"{told} must be decided by a function of (state), not by {function!r}")

    def seconds(self, given: object, told: str) -> float | None:
        """A length of time, or None."""
        try:
            return None if given is None else seconds(given)
        except ValueError as error:
            self.note(f"{told}: {error}")
            return None

    def short(self, bound: float | None, told: str) -> None:
        """Whether a local node keeps to what local nodes are for."""
        if bound is not None and bound > _LONGEST_LOCAL:
            self.note(
                f"{told} is local and has a timeout of {bound:g} s; local=True is for work of at most "
                f"{_LONGEST_LOCAL:g} s"
            )

    def json(self, value: Json, told: str) -> Json:
        """A JSON value; a copy, because the author's own may change after it was declared."""
        try:
            fault = why_not_json(value)
            wire.refuse_too_deep(value)
        except (ValueError, RecursionError) as error:
            fault = str(error)
        if fault is not None:
            self.note(f"{told}: {fault}")
            return None
        return copy.deepcopy(value)

    def text(self, value: object, told: str) -> str:
        """A text; a question mark in place of what is none."""
        if isinstance(value, str):
            value = self.json(value, told)
        else:
            self.note(f"{told}: {value!r} is no text")
        return value if isinstance(value, str) else "?"

    def schema(self, response: Any, told: str) -> Json:
        """The JSON Schema of what an answer may be."""
        try:
            return self.json(json_schema.schema_of(response), f"{told}, response=")
        except ValueError as error:
            self.note(f"{told}, response=: {error}")
            return None

    def capability(self, given: str | None, told: str) -> str | None:
        """A capability that a principal can hold, or None."""
        if given is not None and not (isinstance(given, str) and _CAPABILITY.fullmatch(given)):
            self.note(
                f"{told} asks for the capability {given!r}, which nobody can hold: write a word without "
                "spaces and commas, and not '*' at the beginning"
            )
            return None
        return given

    def capabilities(self, given: str | Iterable[str], told: str) -> tuple[str, ...]:
        """The capabilities that code may ask for, as names or as patterns such as `tenant:*:approve`."""
        names = self.names(given, f"{told}, asks=")
        found = (self.capability(name, f"{told}, asks=,") for name in names)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def on_error(self, given: object, told: str) -> OnError:
        """What happens when a node has failed."""
        match given:
            case "fail":
                return Fail()
            case "interrupt":
                return AskHuman()
            case str() if given.startswith(_GOTO):
                return GoTo(node=given.removeprefix(_GOTO))
            case _:
                self.note(
                    f"{told}: on_error={given!r} is neither 'fail' nor 'interrupt' nor 'goto:<node>'"
                )
                return Fail()

    def on_timeout(
        self,
        given: object,
        told: str,
        *,
        response: object = None,
        response_schema: Json,
        answer_to: str | None,
    ) -> OnTimeout:
        """What happens when nobody has answered in time. A default has to be a possible answer, also by
        what the code of a model in `response` says.
        """
        match given:
            case "halt":
                return Halt()
            case str() if given.startswith(_GOTO):
                return GoTo(node=given.removeprefix(_GOTO))
            case {"default": answer, **rest} if not rest:
                before = len(self.faults)
                answer = self.json(answer, f"{told}, on_timeout=")
                if len(self.faults) == before:
                    self._check_default(answer, told, response, response_schema, answer_to)
                return Default(answer=answer)
            case _:
                self.note(
                    f"{told}: on_timeout={given!r} is neither 'halt' nor 'goto:<node>' "
                    'nor {"default": answer}'
                )
                return Halt()

    def _check_default(
        self,
        answer: Json,
        told: str,
        response: object,
        response_schema: Json,
        answer_to: str | None,
    ) -> None:
        found = () if response_schema is None else json_schema.faults_of(response_schema, answer)
        faults = [f"{fault.pointer or '(the answer)'}: {fault.message}" for fault in found]
        if not faults and response_schema is not None:
            faults = _unread(response, answer)
        if not faults and answer_to is not None and answer_to in self._states.fields:
            try:
                self._states.patch({answer_to: answer})
            except ValuesError as error:
                faults = [str(error)]
        for fault in faults:
            self.note(f"{told} has a default answer that does not fit: {fault}")


def _unread(response: object, answer: Json) -> list[str]:
    try:
        as_asked(response, answer)
    except ValidationError as error:
        found = at_pointer(error, answer)
        return [f"{entry['pointer'] or '(the answer)'}: {entry['message']}" for entry in found]
    return []


def unreadable(spec: GraphSpec) -> Iterator[str]:
    """What in a spec is not of its type: a worker that cannot read a spec would try for ever."""
    nodes = {f"the node {id_!r}": node for id_, node in spec.nodes.items()}
    for told, part in {"the graph": replace(spec, nodes={}), **nodes}.items():
        plain = asdict(part)
        if (fault := why_not_json(plain)) is not None:
            yield f"{told} cannot be written as JSON: {fault}"
            continue
        try:
            _PARTS[type(part)].validate_json(canonical(plain), strict=True)
        except ValidationError as error:
            for entry in at_pointer(error, plain):
                yield f"{told}, {entry['pointer'][1:]}: {entry['message']}"


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
    intake: DeclarationErrors,
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
) -> InterruptSpec:
    """The question; what is wrong with it is noted. Without a prompt, another has to supply one."""
    if response is None and isinstance(answer_to, str):
        response = states.answer_type(answer_to)
        response_schema = intake.schema(response, told)
    else:
        response_schema = intake.schema(response, told)
        if isinstance(answer_to, str):
            field = states.field_schema(answer_to)
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
    return InterruptSpec(
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


def supplied(node: InterruptNode, rule: str, ask: Ask, intake: DeclarationErrors) -> InterruptNode:
    """The gate with what a rule says of its question. What both say is noted, if it differs."""
    told = f"the interrupt {node.id!r}"
    own, blank = node.question, InterruptSpec(name="", prompt="")
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
    question = InterruptSpec(name=own.name, **found)
    answer_to = ask.answer_to if node.answer_to is None else node.answer_to
    if isinstance(question.on_timeout, Default) and not both:
        # Held against the schema once more: it may be the other who says what fits.
        again = {"default": question.on_timeout.answer}
        intake.on_timeout(
            again, told, response_schema=question.response_schema, answer_to=answer_to
        )
    return InterruptNode(id=node.id, question=question, answer_to=answer_to)
