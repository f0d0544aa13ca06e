"""Static interrupts: a person looks at the values before or after a node, and may edit them.

Which nodes is said when the graph is built or the run is started (Eino's static interrupts). The question
shows the values as they are then, with their version. Null lets the run go on; `{values, version}` sets
fields first, if nobody has changed the values since. What is shown and what may be set is what the visit
reads: within a fan-out its own item's values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from abeyance.core import events, gate, items, ledger, recourse
from abeyance.core.canonical import Json
from abeyance.core.draft import Draft
from abeyance.core.events import Asked
from abeyance.core.model import GraphSpec, Question
from abeyance.core.state import Phase, RunState, Visit
from abeyance.errors import Code, Refusal

_NAMES: Final[dict[str, Literal["interrupt_before", "interrupt_after"]]] = {
    "before": "interrupt_before",
    "after": "interrupt_after",
}


def ask(draft: Draft, visit: Visit) -> None:
    """Show the values before or after a visit's node, as its stage says, and wait."""
    values = items.values_of(draft.state, visit)
    version = draft.state.scopes[visit.scope].version
    question = Question(
        name=_NAMES[visit.stage],
        prompt=(
            f"{visit.stage.capitalize()} {visit.node!r}: let the run go on (null), "
            "or edit its values first?"
        ),
        payload={"values": dict(values), "version": version, "node": visit.node},
        response_schema=_answers(draft.graph(visit.scope)),
    )
    waiting = replace(visit, phase=Phase.WAITING, started_at=draft.now)
    gate.ask(draft, waiting, Asked(question=question), "static")


def apply(draft: Draft, visit: Visit) -> tuple[Visit, bool]:
    """Take the answer: the visit without it, and whether the values were edited."""
    name = ledger.key_of("static", _NAMES[visit.stage])
    answer = visit.answers[name]
    rest = {key: value for key, value in visit.answers.items() if key != name}
    visit = replace(visit, answers=rest)
    fields = answer["values"] if answer is not None else {}
    before = items.values_of(draft.state, visit)
    if all(field in before and before[field] == value for field, value in fields.items()):
        return visit, False
    items.set_fields(draft, visit, fields)
    draft.tell("run.values_edited", visit.address, fields=sorted(fields))
    return visit, True


def refuse_stale(state: RunState, event: events.Responded) -> None:
    """Raise `stale` for an edit of values that are not those any more that were shown."""
    for id_, answer in event.answers.items():
        entry = state.ledger.open.get(id_)
        if entry is None or entry.kind != "static" or answer is None:
            continue
        version = state.scopes[entry.scope].version
        if answer["version"] != version:
            raise Refusal(
                Code.STALE,
                f"The values were edited as of version {answer['version']}, and they are at version "
                f"{version} now. Read the run again.",
                interrupt_id=id_,
                version=version,
            )


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
