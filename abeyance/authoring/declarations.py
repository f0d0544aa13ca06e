"""Conversion of an author's arguments into the parts of a `GraphSpec`.

Faults are collected, not raised: the author gets all of them at once, when the graph is built.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from abeyance import wire
from abeyance.authoring.callables import can_take, takes
from abeyance.core.json import (
    Json,
    canonical,
    fill_by,
    misformatted,
    paths,
    size,
    why_not_json,
)
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
from abeyance.core.terms import Span, Terms, is_template
from abeyance.duration import seconds, span
from abeyance.schemas import answer_types, json_schema
from abeyance.schemas.faults import at_pointer
from abeyance.schemas.json_types import misfit, to_json
from abeyance.schemas.state_model import StateModel, ValuesError

T = TypeVar("T")

_GOTO: Final = "goto:"
_CAPABILITY: Final = re.compile(r"(?!\*)[^\s,\x00-\x1f\x7f]+")
_LONGEST_LOCAL: Final = 60.0
"""In seconds. A local node keeps a workflow task open while it runs."""
_PARTS: Final[Mapping[type, TypeAdapter[Any]]] = {
    part: TypeAdapter(part) for part in (GraphSpec, FunctionNode, InterruptNode, SubgraphNode)
}


_NO_STATE: Final = StateModel(None)


class DeclarationErrors:
    """Converts arguments, and collects their faults. `label` names the argument in a fault.

    `states` is the state of the graph. If the graph has none, `states` is open.
    """

    def __init__(self, states: StateModel = _NO_STATE) -> None:
        self.faults: list[str] = []
        self.types: dict[str, Any] = {}
        """The types of answers, by the names of the declared questions. If a rule supplies the question,
        the value is the rule's name.
        """
        self.states = states

    def note(self, fault: str) -> None:
        """Add a fault."""
        self.faults.append(fault)

    def names(
        self, value: str | Iterable[str], label: str, kind: str = "the name of a node"
    ) -> tuple[str, ...]:
        """Return names, of nodes unless `kind` says otherwise. A single string is one name: `to="pay"` is
        not three nodes.
        """
        is_one = isinstance(value, str) or not isinstance(value, Iterable)
        names: tuple[Any, ...] = (value,) if is_one else tuple(value)
        for name in names:
            if not isinstance(name, str):
                self.note(f"{label}: {name!r} is not {kind}: use a string")
        return tuple(name for name in names if isinstance(name, str))

    def mapping(self, value: object, label: str) -> dict[str, str] | None:
        """Return a mapping of fields to fields, or None."""
        if value is None:
            return None
        if isinstance(value, Mapping) and all(
            isinstance(name, str) for pair in value.items() for name in pair
        ):
            return dict(value)
        self.note(f"{label}: {value!r} is not a mapping of field names to field names")
        return None

    def takes(self, function: Callable[..., Any], label: str) -> int:
        """Return the number of arguments that a node's function takes of (state, context)."""
        count = takes(function)
        if count is None:
            self.note(f"{label} must take (state), (state, ctx) or nothing")
        return count or 0

    def decides(self, function: Callable[..., Any], label: str) -> None:
        """Check that a route can call `function` with the state."""
        if not can_take(function, 1):
            self.note(f"{label}: {function!r} cannot be called with (state)")

    def seconds(self, value: object, label: str) -> float | None:
        """Return a duration in seconds, or None."""
        return self._parsed(seconds, value, label)

    def span(self, value: object, label: str) -> Span | None:
        """Return a duration in seconds, or business time such as `2bd`, or None."""
        return self._parsed(span, value, label)

    def _parsed(self, parse: Callable[[object], T], value: object, label: str) -> T | None:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            self.note(f"{label}: {error}")
            return None

    def texts(self, value: object, label: str) -> tuple[str, ...]:
        """Return strings that are not empty. A single string is one."""
        is_one = isinstance(value, str) or not isinstance(value, Iterable)
        texts: tuple[Any, ...] = (value,) if is_one else tuple(value)  # type: ignore[arg-type]
        for text in texts:
            if not isinstance(text, str) or not text:
                self.note(f"{label}: {text!r} is invalid: use a string that is not empty")
        return tuple(text for text in texts if isinstance(text, str) and text)

    def short(self, bound: float | None, label: str) -> None:
        """Check the timeout of a local node."""
        if bound is not None and bound > _LONGEST_LOCAL:
            self.note(
                f"{label} is local and has a timeout of {bound:g} s: local=True is for work of at most "
                f"{_LONGEST_LOCAL:g} s"
            )

    def json(self, value: Json, label: str) -> Json:
        """Return a copy of a JSON value, so that later changes to the author's value do not affect it."""
        try:
            fault = why_not_json(value)
            wire.refuse_too_deep(value)
        except (ValueError, RecursionError) as error:
            fault = str(error)
        if fault is not None:
            self.note(f"{label}: {fault}")
            return None
        return copy.deepcopy(value)

    def text(self, value: object, label: str) -> str:
        """Return a string; "?" in place of anything else."""
        if isinstance(value, str):
            value = self.json(value, label)
        else:
            self.note(f"{label}: {value!r} is not a string")
        return value if isinstance(value, str) else "?"

    def schema(self, response: Any, label: str) -> Json:
        """Return the schema of a question's answers."""
        try:
            schema = json_schema.schema_of(response)
            reference = json_schema.loop_in(schema)
        except ValueError as error:
            self.note(f"{label}, response=: {error}")
            return None
        if answer_types.is_typed(response) and '"writeOnly":true' in canonical(schema):
            self.note(
                f"{label}, response=: an answer holds a secret, which would be written to the run's "
                "history: ask for the secret's name, and look it up in the node"
            )
        if reference is not None:
            self.note(
                f"{label}, response=: a question's answer schema may not refer to itself: "
                f"{reference!r} does. Write out as many levels as a person may fill in"
            )
        return self.json(schema, f"{label}, response=")

    def capability(self, value: str | None, label: str) -> str | None:
        """Return the name of a capability, or None."""
        if value is not None and not (isinstance(value, str) and _CAPABILITY.fullmatch(value)):
            self.note(
                f"{label} requests the capability {value!r}, which no principal can have: use a name "
                "without spaces and commas that does not begin with '*'"
            )
            return None
        return value

    def plain_capability(self, value: str | None, label: str) -> str | None:
        """Return the name of a capability without a `{field}`, or None."""
        if isinstance(value, str) and "{" in value:
            self.note(
                f"{label} requests the capability {value!r}: only a declared interrupt can fill in a "
                "field; elsewhere write a pattern such as 'approve:*' in asks="
            )
            return None
        return self.capability(value, label)

    def capability_template(
        self, value: str | None, label: str, *, from_input: object, terms: Terms | None = None
    ) -> str | None:
        """Return the capability of a declared question, which may contain `{field}`, or None.

        `from_input` also has an effect if `terms` name people by fields, which the start of a run sets.
        """
        template = self.capability(value, label)
        if template is None:
            return None
        start, fields = f"{label} requests the capability {template!r}", [*paths(template)]
        if not set(fill_by(template, lambda _: "")).isdisjoint("{}"):
            self.note(f"{start}, with a brace that is not part of a {{field}}: correct it")
        elif fill_by(template, lambda _: "*").startswith("*"):
            self.note(
                f"{start}, which a field alone decides: begin with a word, as 'approve:{{team}}'"
            )
        if from_input is not False and not (fields or _names_people(terms)):
            self.note(f"{start}, and from_input= has no effect without a {{field}}: remove it")
        for path in fields:
            name = path.split(".")[0]
            is_known = self.states.is_open or name in self.states.fields
            if is_known and from_input is not True and not self.states.is_read_only(name):
                self.note(
                    f"{start}, and whoever starts a run can set {name!r}: declare the field as "
                    'read-only, with Field(json_schema_extra={"readOnly": True}), or allow it with '
                    "from_input=True"
                )
        return template

    def prompt(self, value: object, label: str) -> str:
        """Return the prompt of a declared question."""
        prompt = self.text("" if value is None else value, f"{label}, prompt=")
        for field in misformatted(prompt):
            if re.split(r"[.!:]", field[1:])[0] in self.states.fields:
                self.note(
                    f"{label}, prompt=, shows {field}, whose format cannot be used: write a format for "
                    f"a number or a text, as {{amount:,.2f}}, or {{{field}}} to show the braces"
                )
        return prompt

    def capabilities(self, value: str | Iterable[str], label: str) -> tuple[str, ...]:
        """Return the capabilities that code may request, by name or pattern (`tenant:*:approve`)."""
        names = self.names(value, f"{label}, asks=", "a capability")
        capabilities = (self.plain_capability(name, f"{label}, asks=,") for name in names)
        return tuple(dict.fromkeys(name for name in capabilities if name is not None))

    def on_error(self, value: object, label: str) -> OnError:
        """Return the policy for a failed node."""
        match value:
            case "fail":
                return Fail()
            case "interrupt":
                return AskHuman()
            case str() if value.startswith(_GOTO):
                return GoTo(node=value.removeprefix(_GOTO))
            case _:
                self.note(
                    f"{label}: on_error={value!r} is invalid: use 'fail', 'interrupt' or 'goto:<node>'"
                )
                return Fail()

    def on_timeout(
        self,
        value: object,
        label: str,
        *,
        response: object = None,
        response_schema: Json,
        answer_to: str | None,
    ) -> OnTimeout:
        """Return the policy at the deadline.

        A default answer must fit the schema, the validators of a model in `response`, and the field.
        """
        match value:
            case "halt":
                return Halt()
            case str() if value.startswith(_GOTO):
                return GoTo(node=value.removeprefix(_GOTO))
            case {"default": answer, **rest} if not rest:
                before = len(self.faults)
                answer = self.json(_as_json(answer), f"{label}, on_timeout=")
                if len(self.faults) == before:
                    answer = self._default(answer, label, response, response_schema, answer_to)
                return Default(answer=answer)
            case _:
                self.note(
                    f"{label}: on_timeout={value!r} is invalid: use 'halt', 'goto:<node>' or "
                    '{"default": answer}'
                )
                return Halt()

    def named_default(self, value: object, label: str, *, word: str, answer: Json) -> object:
        """Return `on_timeout=`, in which `word` means a default answer, and no node can be named."""
        if value == word:
            value = {"default": answer}
        elif isinstance(value, str) and value != "halt":
            self.note(
                f"{label}: on_timeout={value!r} is invalid: use 'halt', {word!r} or "
                '{"default": answer}'
            )
            value = "halt"
        return value

    def _default(
        self,
        answer: Json,
        label: str,
        response: object,
        response_schema: Json,
        answer_to: str | None,
    ) -> Json:
        """Check a default answer, and return it as its type writes it."""
        misfits = () if response_schema is None else json_schema.faults_of(response_schema, answer)
        faults = [f"{fault.pointer or '(the answer)'}: {fault.message}" for fault in misfits]
        if not faults:
            try:
                answer = answer_types.written_answer(response, answer)
                if answer_to is not None:
                    answer = self.states.answered(answer_to, answer, lambda it: it)
            except ValidationError as error:
                faults = [
                    f"{each['pointer'] or '(the answer)'}: {each['message']}"
                    for each in at_pointer(error, answer)
                ]
            except (ValuesError, ValueError) as error:
                faults = [str(error)]
        for fault in faults:
            self.note(f"{label} has a default answer that does not fit: {fault}")
        return answer


def _names_people(terms: Terms | None) -> bool:
    if terms is None:
        return False
    quorum = () if terms.quorum is None else terms.quorum.of
    return any(map(is_template, (*terms.assignees, *terms.not_by, *quorum)))


def _as_json(answer: object) -> Json:
    try:
        return to_json(answer)
    except (ValueError, RecursionError):
        # The check that follows reports why the value is not JSON.
        return answer


def type_faults(spec: GraphSpec) -> Iterator[str]:
    """Yield the values of a wrong type: a worker that cannot read the spec would retry forever."""
    nodes = {f"the node {id_!r}": node for id_, node in spec.nodes.items()}
    for label, part in {"the graph": replace(spec, nodes={}), **nodes}.items():
        plain = asdict(part)
        if (fault := why_not_json(plain)) is not None:
            yield f"{label} cannot be written as JSON: {fault}"
            continue
        try:
            _PARTS[type(part)].validate_json(canonical(plain), strict=True)
        except ValidationError as error:
            for entry in at_pointer(error, plain):
                yield f"{label}, {entry['pointer'][1:]}: {entry['message']}"


_MAX_QUESTION_BYTES: Final = 100_000
"""The most bytes of a question, which stays in the run's state while it is open."""
_SUPPLIED: Final = {
    "reason": "reason",
    "payload": "payload",
    "response_schema": "response",
    "requested_capability": "requested_capability",
    "timeout": "timeout",
    "on_timeout": "on_timeout",
    "terms": "assignees, quorum or other terms",
}
"""The fields of a question that a rule may supply, with their names in `Graph.interrupt`."""


def question_of(
    name: str,
    label: str,
    errors: DeclarationErrors,
    *,
    prompt: str | None = None,
    reason: Json = None,
    payload: Json = None,
    response: object = None,
    answer_to: str | None = None,
    requested_capability: str | None = None,
    from_input: object = False,
    timeout: object = None,
    on_timeout: object = "halt",
    terms: Terms | None = None,
) -> InterruptSpec:
    """Return the question, and collect its faults. The prompt may come from a rule."""
    if response is None and isinstance(answer_to, str):
        response = errors.states.answer_type(answer_to)
        response_schema = errors.schema(response, label)
    else:
        response_schema = errors.schema(response, label)
        if isinstance(answer_to, str):
            field = errors.states.field_schema(answer_to)
            if (why := misfit(response_schema, field)) is not None:
                errors.note(f"{label} has answers that the field {answer_to!r} cannot hold: {why}")
            # People see the schema that the author declared. The field's type is checked, too.
            response_schema = response_schema or errors.schema(field, label)
    is_field = isinstance(answer_to, str)
    rewrites = answer_types.rewrites(response) or (
        is_field and errors.states.rewrites(str(answer_to))
    )
    errors.types[name] = response
    prompt = errors.prompt(prompt, label)
    reason = errors.json(reason, f"{label}, reason=")
    payload = errors.json(payload, f"{label}, payload=")
    shown = size([prompt, reason, payload, response_schema])
    if shown > _MAX_QUESTION_BYTES:
        errors.note(
            f"{label} has {shown} bytes of prompt, reason, payload and schema, and the limit is "
            f"{_MAX_QUESTION_BYTES}: store large data elsewhere, and show a reference"
        )
    return InterruptSpec(
        name=name,
        prompt=prompt,
        reason=reason,
        payload=payload,
        response_schema=response_schema,
        requested_capability=errors.capability_template(
            requested_capability, label, from_input=from_input, terms=terms
        ),
        timeout=errors.span(timeout, f"{label}, timeout="),
        terms=terms,
        on_timeout=errors.on_timeout(
            on_timeout,
            label,
            response=response,
            response_schema=response_schema,
            answer_to=answer_to,
        ),
        rewrites=rewrites,
    )


def with_rule_question(
    node: InterruptNode, rule: str, ask: Ask, errors: DeclarationErrors
) -> InterruptNode:
    """Return the node with the question that a rule supplies. Fields that differ are faults."""
    label = f"the interrupt {node.id!r}"
    own, blank = node.question, InterruptSpec(name="", prompt="")
    merged: dict[str, Any] = {"prompt": ask.question.prompt}
    conflicts: list[str] = []
    for field, option in _SUPPLIED.items():
        here, there, default = (getattr(part, field) for part in (own, ask.question, blank))
        merged[field] = there if here == default else here
        if default not in (here, there) and here != there:
            conflicts.append(option)
    if None not in (node.answer_to, ask.answer_to) and node.answer_to != ask.answer_to:
        conflicts.append("answer_to")
    for option in conflicts:
        errors.note(f"{label} and the rule {rule!r} both have {option}: remove one")
    errors.types[own.name] = rule
    rewrites = own.rewrites or ask.question.rewrites
    question = InterruptSpec(name=own.name, rewrites=rewrites, **merged)
    answer_to = ask.answer_to if node.answer_to is None else node.answer_to
    if isinstance(question.on_timeout, Default) and not conflicts:
        # The default answer may come from the node and the schema from the rule, or the reverse.
        default_answer = {"default": question.on_timeout.answer}
        errors.on_timeout(
            default_answer, label, response_schema=question.response_schema, answer_to=answer_to
        )
    return InterruptNode(id=node.id, question=question, answer_to=answer_to)
