"""The modal for an answer, by its schema, and the answer that was entered.

Only flat schemas have a modal: texts, numbers, choices and dates. Others are answered in the inbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, get_args

from abeyance import views
from abeyance.core.json import Json
from abeyance.core.text import truncate, visible
from abeyance.schemas.json_schema import without_null
from abeyance.util import is_exact

Decision: TypeAlias = Literal["approve", "remember", "reject", "edit", "answer"]
"""The purpose of a modal. A plain yes needs none; `remember` is a yes to the next calls too."""
Kind: TypeAlias = Literal["text", "integer", "number", "decimal", "choice", "date"]
"""A `decimal` is a number that may be sent as text, which keeps all its digits."""

NOTE: Final = "note"
"""The block of the note, or of the reason of a rejected call."""
FIRST: Final = "prompt"

_TITLES: Final[Mapping[str, str]] = {
    "approve": "Approve",
    "remember": "Approve and remember",
    "reject": "Reject",
    "edit": "Approve with changes",
    "answer": "Answer",
}
_SPANS: Final = (("1 hour", "1h", 3_600), ("8 hours", "8h", 28_800), ("1 day", "1d", 86_400))
"""How long a yes is remembered. Nobody can be asked later for the rights of a person in Slack."""
_USUAL: Final = "8h"
_PLACES: Final = {"run": "in this run", "graph": "in every run of this graph"}
_MOST_FIELDS: Final = 40
_MOST_OPTIONS: Final = 100
_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 3_000
_LONGEST_NOTE: Final = 2_000
_SHOWN: Final = 70
_MOST_DIGITS: Final = 300
_INTEGER: Final = re.compile(r"-?\d{1,300}", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form. `start` is its initial value, None for an empty field."""

    name: str
    label: str
    kind: Kind
    is_required: bool
    is_nullable: bool
    choices: tuple[tuple[str, Json], ...] = ()
    start: Json = None

    @property
    def block(self) -> str:
        return f"field:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, with the note beside it."""

    answer: Json
    note: str | None = None


Faults: TypeAlias = dict[str, str]
"""The faults of the entered values, by block."""


def is_plain_yes(question: views.InterruptView) -> bool:
    """Return whether one press can approve."""
    schema = _schema(question)
    if not _is_answered_here(question):
        return False
    if _is_call(question):
        return "approve" in _allowed(question)
    return _is_boolean(schema) or (_is_gate(schema) and not _has_more_to_say(question))


def plain_yes(question: views.InterruptView) -> Json:
    """Return the answer of one press."""
    return True if _is_boolean(_schema(question)) else {"approved": True}


def decisions(question: views.InterruptView) -> list[Decision]:
    """Return the decisions for which a question offers a modal; none if it is answered in the inbox."""
    return [each for each in get_args(Decision) if fields(question, each) is not None]


def fields(question: views.InterruptView, decision: Decision) -> list[Field] | None:
    """Return the fields of a modal, beside its note; None if there is no such modal."""
    schema = _schema(question)
    if not _is_answered_here(question):
        return None
    if _is_call(question):
        if decision == "remember":
            return _of_memory(question)
        if decision not in ("reject", "edit") or decision not in _allowed(question):
            return None
        if decision == "reject":
            return []
        shape = schema.get("properties", {}).get("arguments", {})
        if "type" not in shape and isinstance(shape.get("anyOf"), list):
            shape = shape["anyOf"][0]
        return _fields(shape, schema, question.reason["arguments"])
    if _is_boolean(schema):
        return [] if decision == "reject" else None
    if _is_gate(schema):
        rest = _rest_of(schema)
        if decision == "approve" and _has_more_to_say(question):
            return _fields(rest, schema, _shown(question))
        if decision == "reject":
            found = _fields(rest, schema, _shown(question))
            return [] if found is None and not rest["required"] else found
        return None
    if decision != "answer":
        return None
    if schema.get("type") == "object":
        return _fields(schema, schema, question.payload)
    field = _field("", schema, schema, is_required=True, start=None)
    return None if field is None else [field]


def modal(question: views.InterruptView, decision: Decision, about: Json) -> dict[str, Any]:
    """Return the modal of a decision. `about` comes back with the entered values."""
    prompt = truncate(visible(question.prompt or question.name), _LONGEST_TEXT - 100)
    blocks: list[dict[str, Any]] = [
        {"type": "section", "block_id": FIRST, "text": _plain(prompt)},
        *([_covered(question)] if decision == "remember" else []),
        *map(_input, fields(question, decision) or []),
    ]
    if decision != "edit" or not _is_call(question):
        is_reason = decision == "reject" and _is_call(question)
        box = {"type": "plain_text_input", "action_id": "value", "multiline": True}
        blocks.append(
            {
                "type": "input",
                "block_id": NOTE,
                "optional": True,
                "label": _plain("Reason, which the agent reads" if is_reason else "Note"),
                "element": {**box, "max_length": _LONGEST_NOTE},
            }
        )
    return {
        "type": "modal",
        "callback_id": f"abeyance:{decision}",
        "private_metadata": json.dumps(about),
        "title": _plain(_TITLES[decision]),
        "submit": _plain("Answer" if decision == "answer" else _TITLES[decision].split()[0]),
        "close": _plain("Cancel"),
        "blocks": blocks,
    }


def entered(
    question: views.InterruptView, decision: Decision, state: Mapping[str, Any]
) -> Answer | Faults:
    """Return the answer that was entered in a modal, or the faults of its values."""
    values, faults = dict[str, Json](), Faults()
    for field in fields(question, decision) or []:
        text = _text(state, field.block)
        if text is None and field.is_required:
            faults[field.block] = "This is needed."
        elif text is not None:
            try:
                values[field.name] = _value(field, text)
            except ValueError as error:
                faults[field.block] = str(error)
        elif field.is_nullable and field.start is None and decision != "edit":
            values[field.name] = None
    if faults:
        return faults
    note = _text(state, NOTE)
    if _is_call(question):
        if decision == "reject":
            return Answer(answer={"approved": False, **({} if note is None else {"reason": note})})
        if decision == "remember":
            return Answer(answer={"approved": True, "remember": values}, note=note)
        # Fields that the form does not show stay as they are.
        shown = {field.name for field in fields(question, decision) or []}
        kept = {k: v for k, v in question.reason["arguments"].items() if k not in shown}
        return Answer(answer={"approved": True, "arguments": {**kept, **values}})
    if _is_boolean(_schema(question)):
        return Answer(answer=False, note=note)
    if _is_gate(_schema(question)):
        return Answer(answer={"approved": decision == "approve", **values}, note=note)
    return Answer(answer=values.get("") if {*values} == {""} else values, note=note)


def _of_memory(question: views.InterruptView) -> list[Field] | None:
    """Return the fields for the time, the place and the uses of a remembered yes; None if not allowed."""
    allowed = question.remember
    if allowed is None or "approve" not in _allowed(question):
        return None
    spans: list[tuple[str, Json]] = [
        (label, span) for label, span, seconds in _SPANS if seconds <= allowed.most
    ]
    if not spans:
        spans = [(f"{allowed.most:g} seconds", allowed.most)]
    start = _USUAL if any(span == _USUAL for _, span in spans) else spans[-1][1]
    places = [(_PLACES[where], where) for where in allowed.where]
    about: dict[str, Any] = {"is_required": True, "is_nullable": False}
    return [
        Field(name="for", label="For", kind="choice", choices=tuple(spans), start=start, **about),
        Field(
            name="where",
            label="Where",
            kind="choice",
            choices=tuple(places),
            start=places[0][1],
            **about,
        ),
        Field(
            name="uses",
            label="At most so many calls",
            kind="integer",
            is_required=False,
            is_nullable=False,
        ),
    ]


def _covered(question: views.InterruptView) -> dict[str, Any]:
    """Return the block that tells which calls a remembered yes covers."""
    allowed = question.remember
    limits = [] if allowed is None else [f"the same {name}" for name in allowed.same]
    limits += (
        [] if allowed is None else [f"{n} below {bound:g}" for n, bound in allowed.below.items()]
    )
    which = f"Calls with {' and '.join(limits)}" if limits else "All calls of this tool"
    text = truncate(visible(f"{which} are then not asked about."), _LONGEST_TEXT - 100)
    return {"type": "section", "block_id": "covered", "text": _plain(text)}


def _value(field: Field, text: str) -> Json:
    if field.start is not None and text == _written(field, field.start):
        # An unchanged value is kept, because a number can be written in several ways.
        return field.start
    match field.kind:
        case "text":
            return text
        case "date" if _DATE.fullmatch(text):
            return text
        case "choice" if text.isascii() and text.isdigit() and int(text) < len(field.choices):
            return field.choices[int(text)][1]
        case "integer" if _INTEGER.fullmatch(text):
            return int(text)
        case "number" if _NUMBER.fullmatch(text):
            return _exact(text)
        case "decimal" if _NUMBER.fullmatch(text):
            return text
        case _:
            kind = "number" if field.kind == "decimal" else field.kind
            article = "an" if kind == "integer" else "a"
            raise ValueError(
                f"{truncate(text, _SHOWN)!r} does not fit: it is not {article} {kind}."
            )


def _exact(text: str) -> int | float:
    """Return the number in a text. Raise ValueError if no number of JSON is equal to it."""
    said = Decimal(text)
    if said == said.to_integral_value() and said.adjusted() < _MOST_DIGITS:
        return int(said)
    number = float(text)
    if not is_exact(number, text):
        raise ValueError(f"{truncate(text, _SHOWN)!r} cannot be kept exactly: write fewer digits.")
    return number


def _written(field: Field, value: Json) -> str:
    if field.kind == "choice":
        return str(next(n for n, (_, each) in enumerate(field.choices) if _same(each, value)))
    return value if isinstance(value, str) else json.dumps(value)


def _text(state: Mapping[str, Any], block: str) -> str | None:
    entry = (state.get(block) or {}).get("value") or {}
    chosen = (entry.get("selected_option") or {}).get("value")
    text = next(
        (each for each in (entry.get("value"), chosen, entry.get("selected_date")) if each), None
    )
    return None if text is None or not str(text).strip() else str(text)


def _input(field: Field) -> dict[str, Any]:
    element: dict[str, Any] = {"action_id": "value"}
    start = None if field.start is None else _written(field, field.start)
    match field.kind:
        case "choice":
            options = [
                {"text": _plain(truncate(visible(label) or " ", _SHOWN)), "value": str(number)}
                for number, (label, _) in enumerate(field.choices)
            ]
            element |= {"type": "static_select", "options": options}
            element |= {} if start is None else {"initial_option": options[int(start)]}
        case "date":
            element |= {"type": "datepicker"} | ({} if start is None else {"initial_date": start})
        case "integer" | "number" | "decimal":
            element |= {"type": "number_input", "is_decimal_allowed": field.kind != "integer"}
            element |= {} if start is None else {"initial_value": start}
        case "text":
            element |= {"type": "plain_text_input", "max_length": _LONGEST_TEXT}
            element |= {} if start is None else {"initial_value": start, "multiline": "\n" in start}
    return {
        "type": "input",
        "block_id": field.block,
        "optional": not field.is_required,
        "label": _plain(truncate(visible(field.label) or " ", _SHOWN)),
        "element": element,
    }


def _fields(shape: Json, root: Json, start: Json) -> list[Field] | None:
    """Return the fields of an object, None if it is not flat."""
    schema, _ = without_null(shape, root)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(properties) > _MOST_FIELDS:
        return None
    if {"anyOf", "oneOf"} & schema.keys():
        return None
    start = start if isinstance(start, Mapping) else {}
    required = schema.get("required") or ()
    found = [
        _field(name, each, root, is_required=name in required, start=start.get(name))
        for name, each in properties.items()
    ]
    flat = [field for field in found if field is not None]
    return flat if len(flat) == len(found) else None


def _field(
    name: str, declared: Json, root: Json, *, is_required: bool, start: Json
) -> Field | None:
    schema, is_nullable = without_null(declared, root)
    start = schema.get("default") if start is None else start
    found = _kind(schema, root)
    if found is None or len(name) > _LONGEST_NAME:
        return None
    kind, choices = found
    is_text = isinstance(start, str) and len(start) <= _LONGEST_TEXT
    is_number = bool(_NUMBER.fullmatch(start if isinstance(start, str) else json.dumps(start)))
    fits = {
        "choice": any(_same(start, each) for _, each in choices),
        "text": is_text,
        "date": is_text and bool(_DATE.fullmatch(str(start))),
        "integer": isinstance(start, int) and not isinstance(start, bool),
        "number": is_number,
        "decimal": is_number,
    }
    if start is not None and not fits[kind]:
        return None
    title = declared.get("title") if isinstance(declared, Mapping) else None
    return Field(
        name=name,
        label=str(title or name or "Answer"),
        kind=kind,
        is_required=is_required and not is_nullable,
        is_nullable=is_nullable,
        choices=tuple(choices),
        start=start,
    )


def _kind(schema: Mapping[str, Any], root: Json) -> tuple[Kind, Sequence[tuple[str, Json]]] | None:
    options = schema.get("oneOf") or schema.get("anyOf") or []
    constants = [without_null(each, root)[0] for each in options]
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(listed, list):
        choices = [(each if isinstance(each, str) else json.dumps(each), each) for each in listed]
    elif constants and all("const" in each for each in constants):
        choices = [(str(each.get("title") or each["const"]), each["const"]) for each in constants]
    elif schema.get("type") == "boolean":
        choices = [("Yes", True), ("No", False)]
    else:
        return _plain_kind(schema, constants)
    return ("choice", choices) if 0 < len(choices) <= _MOST_OPTIONS else None


def _plain_kind(
    schema: Mapping[str, Any], options: Sequence[Mapping[str, Any]]
) -> tuple[Kind, Sequence[tuple[str, Json]]] | None:
    kinds = {str(each.get("type")) for each in options}
    if kinds in ({"number", "string"}, {"integer", "string"}):
        return "decimal", ()
    match schema.get("type"), schema.get("format"):
        case "string", "date":
            return "date", ()
        case "string", _:
            return "text", ()
        case "integer", _:
            return "integer", ()
        case "number", _:
            return "number", ()
        case _:
            return None


def _schema(question: views.InterruptView) -> Mapping[str, Any]:
    found = question.response_schema
    return found if isinstance(found, Mapping) else {}


def _is_answered_here(question: views.InterruptView) -> bool:
    return question.kind not in ("static", "error", views.UNREADABLE) and not question.abridged


def _is_call(question: views.InterruptView) -> bool:
    reason = question.reason
    return (
        question.kind == "approval"
        and isinstance(reason, Mapping)
        and isinstance(reason.get("arguments"), Mapping)
    )


def _allowed(question: views.InterruptView) -> Sequence[str]:
    return question.decisions or ("approve", "edit", "reject")


def _is_boolean(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "boolean"


def _is_gate(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    approved = properties.get("approved") if isinstance(properties, Mapping) else None
    return _is_boolean(without_null(approved, schema)[0])


def _has_more_to_say(question: views.InterruptView) -> bool:
    """Return whether a yes to a gate has more fields to fill in, or to look at."""
    rest = _rest_of(_schema(question))
    return bool(rest["required"] or _shown(question).keys() & rest["properties"].keys())


def _shown(question: views.InterruptView) -> dict[str, Json]:
    """Return the values that the question shows under the names of its fields, and those that others
    have approved so far.
    """
    approved = [vote.answer for vote in question.votes if vote.is_yes]
    said = [question.payload, *approved[:1]]
    return {k: v for each in said if isinstance(each, Mapping) for k, v in each.items()}


def _rest_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    others = {name: each for name, each in schema["properties"].items() if name != "approved"}
    required = [name for name in schema.get("required") or () if name != "approved"]
    return {"properties": others, "required": required}


def _same(one: Json, other: Json) -> bool:
    return type(one) is type(other) and one == other


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}
