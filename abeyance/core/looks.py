"""Static interrupts: a person looks at the values before or after a node, and may edit them.

The graph names these nodes, or the start of the run does (Eino's static interrupts). The question shows
the values as they are then, with their version. Null lets the run go on; `{values, version}` sets
fields first, if nobody has changed the values since. What is shown and what may be set is what the visit
reads: within a fan-out its own item's values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from abeyance.core import approvals, events, gate, items, ledger, recourse, trail
from abeyance.core.canonical import Json, canonical
from abeyance.core.draft import Draft
from abeyance.core.model import GraphSpec, Question
from abeyance.core.outcome import Asked, key_of
from abeyance.core.state import Member, Phase, RunState, Visit
from abeyance.errors import Code, Refusal

_NAMES: Final[dict[str, Literal["interrupt_before", "interrupt_after"]]] = {
    "before": "interrupt_before",
    "after": "interrupt_after",
}


def ask(draft: Draft, visit: Visit) -> None:
    """Show the values before or after a visit's node, as its stage says, and wait."""
    visit.phase, visit.started_at = Phase.WAITING, draft.now
    gate.ask(draft, visit, Asked(question=_question(draft, visit), kind="static"))


def _question(draft: Draft, visit: Visit) -> Question:
    values = items.values_of(draft.state, visit)
    version = items.version_of(draft.state, visit)
    return Question(
        name=_NAMES[visit.stage],
        prompt=(
            f"{visit.stage.capitalize()} {visit.node!r}: let the run go on (null), "
            "or edit its values first?"
        ),
        payload={"values": dict(values), "version": version, "node": visit.node},
        response_schema=_answers(draft.graph(visit.scope)),
    )


def take(draft: Draft, interrupt: ledger.Interrupt, answer: Json, by: str) -> None:
    """Edit the values as an answer says: at once, so that what others do next is held against them."""
    if interrupt.kind != "static" or answer is None:
        return
    visit = draft.visit(interrupt.visit)
    before = items.values_of(draft.state, visit)
    fields = {
        name: value
        for name, value in answer["values"].items()
        if name not in before or canonical(before[name]) != canonical(value)
    }
    if not fields:
        return
    items.set_fields(draft, visit, fields)
    # After a gate it is asked again, whatever was edited.
    approvals.spoil(visit)
    draft.tell("run.values_edited", visit.address, by, fields=sorted(fields))
    trail.changing(visit, before, fields)
    if visit.way is not None:
        visit.way = replace(visit.way, is_stale=True)
    tell_edited(draft, visit.scope, besides=interrupt.id)


def tell_edited(draft: Draft, scope: str, *, besides: str | None = None) -> None:
    """People have edited the values of a scope: what is open or was approved there takes note."""
    approvals.edited(draft, scope)
    gate.show_edited(draft, scope)
    for entry in list(draft.state.ledger.open.values()):
        if entry.kind == "static" and entry.scope == scope and entry.id != besides:
            gate.ask_anew(draft, entry, _question(draft, draft.state.visits[entry.visit]))


def let_pass(visit: Visit) -> None:
    """Somebody has looked at a visit, and how they let it go on is no answer of the graph's."""
    key = key_of("static", _NAMES[visit.stage])
    visit.answers = {name: answer for name, answer in visit.answers.items() if name != key}


def refuse(state: RunState, event: events.Responded) -> None:
    """Raise the Refusal of an edit that cannot be made, or is of values that have changed since."""
    edited: set[tuple[str, tuple[Member, ...]]] = set()
    for id_, answer in event.answers.items():
        entry = state.ledger.open.get(id_)
        if entry is None or entry.kind != "static" or answer is None:
            continue
        visit = state.visits[entry.visit]
        version = items.version_of(state, visit)
        place = (entry.scope, visit.members)
        if answer["version"] != version or place in edited:
            raise Refusal(
                Code.STALE,
                f"The values were edited as of version {answer['version']}, and by then they are at "
                f"version {version + (place in edited)}. Look at the values as they are, and edit those.",
                interrupt_id=id_,
                version=version,
                values=dict(items.values_of(state, visit)),
            )
        if beyond := items.unreachable(state, visit, answer["values"]):
            message = "within a fan-out, what is merged by adding to it can only be added to"
            raise Refusal(
                Code.INVALID_ANSWER,
                f"The edit sets {', '.join(map(repr, beyond))}, and {message}.",
                interrupt_id=id_,
                errors=[{"pointer": f"/values/{name}", "message": message} for name in beyond],
            )
        edited.add(place)


def _answers(graph: GraphSpec) -> Json:
    fields, definitions = recourse.fields_schema(graph)
    edited = {
        "type": "object",
        "properties": {"values": fields, "version": {"type": "integer"}},
        "required": ["values", "version"],
        "additionalProperties": False,
    }
    # Not `anyOf`: what is wrong with an edit is then told with its place.
    schema: dict[str, Json] = {
        "if": {"type": "object"},
        "then": edited,
        "else": {"type": "null"},
    }
    return {**schema, "$defs": definitions} if definitions else schema
