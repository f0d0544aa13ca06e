"""Answers and the types of authors: whether a type accepts an answer, and the form in which it is kept.

The types are code, so a worker asks them: the validator of an update before an answer is accepted, and a
local activity for the form of an accepted one, because a replay has to find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from abeyance.agents.tool_errors import ArgumentsError
from abeyance.authoring.graph import Graph
from abeyance.core import items
from abeyance.core.events import Responded, SchemaFault
from abeyance.core.interrupts import declaration
from abeyance.core.items import PatchError, merged
from abeyance.core.json import Json, canonical
from abeyance.core.ledger import Interrupt
from abeyance.core.state import RunState
from abeyance.core.terms import KINDS
from abeyance.schemas import answer_types
from abeyance.schemas.faults import at_pointer
from abeyance.schemas.json_schema import escaped, schema_of
from abeyance.schemas.state_model import ValuesError
from abeyance.wire import GivenAnswer, TakenAnswer

_OF_CALLS: Final = ("arguments", "reason", "remember", "result")
"""The fields that the answer to an approval of a tool call may have beside `approved`."""
_NO_CALL: Final = (
    "this question is not an approval of a tool call, and its answer has no such field: leave it out, or "
    "say it in the `note`"
)


def typed(
    state: RunState, event: Responded, take: Callable[[GivenAnswer], TakenAnswer]
) -> Responded:
    """Return an answer as the types take it. `take` asks them about one that fits its schema."""
    return with_taken(event, {id_: take(each) for id_, each in _given(state, event)})


def with_taken(event: Responded, taken: Mapping[str, TakenAnswer]) -> Responded:
    """Return an answer as the types have taken it, by the ids of the interrupts."""
    faults = {
        id_: tuple(SchemaFault(pointer=e["pointer"], message=e["message"]) for e in each.errors)
        for id_, each in taken.items()
    }
    return replace(
        event,
        schema_faults={**event.schema_faults, **faults},
        written={
            id_: each.answer
            for id_, each in taken.items()
            if not each.errors and canonical(each.answer) != canonical(event.answers[id_])
        },
    )


def to_write(state: RunState, event: Responded) -> dict[str, GivenAnswer]:
    """Return the answers whose types may write them in another form than they were sent."""
    return {
        id_: each
        for id_, each in _given(state, event)
        if _is_rewritten(state.ledger.open[id_], each.answer)
    }


def _is_rewritten(entry: Interrupt, answer: Json) -> bool:
    edits = KINDS[entry.kind].edits
    is_edit = edits is None or (isinstance(answer, Mapping) and edits in answer)
    return entry.rewrites and is_edit


def _given(state: RunState, event: Responded) -> Iterator[tuple[str, GivenAnswer]]:
    for id_, answer in event.answers.items():
        entry = state.ledger.open.get(id_)
        if entry is None or entry.status != "open" or event.schema_faults.get(id_):
            continue
        declared = declaration(state, entry)
        field = None if declared is None else declared.answer_to
        changed = answer.get("patch", ()) if entry.kind == "error" else filter(None, [field])
        values = items.values_of(state, state.visits[entry.visit])
        given = GivenAnswer(
            root=state.spec.name,
            path=state.scopes[entry.scope].path,
            kind=entry.kind,
            declared=None if declared is None else declared.question.name,
            response_type=entry.response_type,
            response_schema=None if entry.response_type is None else entry.response_schema,
            answer_to=field,
            shown=entry.payload if entry.kind == "static" else entry.reason,
            values={name: values[name] for name in changed if name in values},
            answer=answer,
        )
        yield id_, given


def take(graphs: Mapping[str, Graph], given: GivenAnswer) -> TakenAnswer:
    """Return an answer as its type writes it, or why the type rejects it."""
    try:
        return TakenAnswer(answer=_written(graphs, given))
    except ValidationError as error:
        return TakenAnswer(errors=at_pointer(error, given.answer))
    except ValuesError as error:
        return TakenAnswer(errors=error.errors)
    except (ArgumentsError, PatchError, ValueError) as error:
        return _rejected(str(error))
    except Exception as error:  # noqa: BLE001 code of an author: the answer is refused with it
        return _rejected(f"its type raised {type(error).__name__}: {error}")


def _rejected(message: str) -> TakenAnswer:
    return TakenAnswer(errors=[{"pointer": "", "message": message}])


def _written(graphs: Mapping[str, Graph], given: GivenAnswer) -> Json:
    graph = graphs.get(given.root)
    for node in given.path:
        graph = None if graph is None else graph.subgraphs.get(node)
    if graph is None:
        return given.answer
    match given.kind, given.answer:
        case "static", {"values": Mapping() as values, **rest}:
            with _below("/values"):
                return {**rest, "values": graph.states.edited(given.shown["values"], values)}
        case "error", {"patch": Mapping() as patch, **rest}:
            with _below("/patch"):
                made = {name: _as_field(graph, given, name, it) for name, it in patch.items()}
            return {**rest, "patch": made}
        case "approval", {"arguments": Mapping() as arguments, **rest}:
            with _below("/arguments"):
                edited = _arguments(graph, given.shown, arguments)
            is_edit = canonical(edited) != canonical(given.shown["arguments"])
            return {**rest, "arguments": edited} if is_edit else rest
        case "question" | "rule", answer:
            written = _answer(graph, given, answer)
            _refuse_lost(answer, written)
            return written
        case _, answer:
            return answer


def _refuse_lost(answer: Json, written: Json) -> None:
    """Raise ValuesError for what only an approval of a call takes, if the type has dropped it."""
    if not (isinstance(answer, Mapping) and isinstance(written, Mapping)):
        return
    if not isinstance(answer.get("approved"), bool):
        return
    lost = [name for name in _OF_CALLS if name in answer and name not in written]
    if errors := [{"pointer": f"/{name}", "message": _NO_CALL} for name in lost]:
        raise ValuesError(_NO_CALL, errors)


@contextmanager
def _below(place: str) -> Iterator[None]:
    """Add where in the answer the values are to the pointers of their faults."""
    try:
        yield
    except ValuesError as error:
        errors = [{**each, "pointer": f"{place}{each['pointer']}"} for each in error.errors]
        raise ValuesError(str(error), errors) from error


def _arguments(graph: Graph, shown: Json, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the arguments of a call as their types write them; those that are shown as they are."""
    agent = graph.compiled_from
    tool = None if agent is None else agent.tools.get(shown["tool"])
    if tool is None or canonical(arguments) == canonical(shown["arguments"]):
        return arguments
    try:
        return tool.read(arguments)
    except ArgumentsError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        raise ValuesError(str(error), at_pointer(error.__cause__, arguments)) from error


def _answer(graph: Graph, given: GivenAnswer, answer: Json) -> Json:
    type_ = None
    if given.declared is not None:
        type_ = graph.answer_types.get(given.declared)
    elif given.response_type is not None:
        type_ = answer_types.known(given.response_type)
        if type_ is not None and schema_of(type_) != given.response_schema:
            # A deploy has changed it since: who asked reads the answer, or asks again.
            return answer
    answer = answer_types.written_answer(type_, answer)
    if (field := given.answer_to) is None:
        return answer
    try:
        return _as_field(graph, given, field, answer)
    except ValuesError as error:
        own = f"/{escaped(field)}"
        errors = [{**each, "pointer": each["pointer"].removeprefix(own)} for each in error.errors]
        raise ValuesError(str(error), errors) from error


def _as_field(graph: Graph, given: GivenAnswer, field: str, value: Json) -> Json:
    """Return a value as the field writes it to which it is merged."""
    spec = graph.build()
    if (known := spec.fields.get(field)) is not None and known.reducer == "start":
        # The run refuses to change it, with a code of its own.
        return value
    return graph.states.answered(
        field, value, lambda made: merged(spec, given.values, {field: made})[field]
    )
