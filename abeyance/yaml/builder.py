"""Builds a `Graph` from a YAML document: each item becomes the call that Python would make.

It also records the line of each item, for the faults that the graph reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, TypeAlias, TypeVar, assert_never

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema, create_model

from abeyance.authoring.actions import InterruptForm, QuestionForm
from abeyance.authoring.graph import Graph
from abeyance.authoring.lines import (
    raised_at,
    subjects_of_condition,
    subjects_of_edge,
    subjects_of_node,
)
from abeyance.core.json import Json, canonical
from abeyance.core.spec import START
from abeyance.errors import GraphError
from abeyance.schemas import json_schema
from abeyance.schemas.forms import REFERENCE, Form
from abeyance.schemas.state_model import FromStart
from abeyance.util import ImportStringError, import_string
from abeyance.yaml.schema import (
    EdgeForm,
    FunctionNodeForm,
    GraphForm,
    GraphNodeForm,
    InterruptNodeForm,
    NodeForm,
    RuleForm,
    WayForm,
)
from abeyance.yaml.source import Faults, Place

F = TypeVar("F", bound=Form)

_TYPES: Final[Mapping[str, Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list[Any],
    "dict": dict[str, Any],
    "any": Any,
}

FieldType: TypeAlias = str | Mapping[str, Json]
"""The name of a type, or a JSON Schema."""


def state_model(graph: str, fields: Mapping[str, FieldType]) -> type[BaseModel]:
    """Return the model of a graph's state, named after the graph. An absent field is null."""
    definitions: dict[str, Any] = {}
    for name, what in fields.items():
        is_fixed = what == "from_start"
        type_ = Annotated[str | None, FromStart] if is_fixed else _type(what) | None
        definitions[name] = (type_, None)
    return create_model(graph, __config__=ConfigDict(protected_namespaces=()), **definitions)


def field_fault(name: str, what: FieldType) -> str | None:
    """Return the reason why a field is invalid, or None."""
    if hasattr(BaseModel, name):
        return "has a name that pydantic reserves: use another"
    if isinstance(what, str):
        return None
    if what.get("default") is not None:
        return (
            "has a default, which would not be used, as a field is null until it is set: set it in the "
            "first node, or write the state as a pydantic model, and name it (state: module:Class)"
        )
    if any(f'"{word}":' in canonical(what) for word in ("$ref", "$dynamicRef")):
        return (
            "has a schema with a reference, which is not supported: write the state as a pydantic model, "
            "and name it (state: module:Class)"
        )
    try:
        json_schema.schema_of(what)
    except ValueError as error:
        return f"has no usable schema: {error}"
    return None


def _type(what: FieldType) -> Any:
    if isinstance(what, str):
        return _TYPES[what]
    written = json_schema.schema_of(what)

    def checked(value: Any) -> Any:
        faults = json_schema.faults_of(written, value)
        if faults:
            raise ValueError("; ".join(f"{f.pointer} {f.message}".strip() for f in faults))
        return value

    return Annotated[Any, AfterValidator(checked), WithJsonSchema(dict(written))]


Opener: TypeAlias = Callable[[str], Graph]
"""Loads another document by its path. Raises ImportStringError and GraphError."""


def declared(form: GraphForm, faults: Faults, name: str, opener: Opener) -> Graph:
    """Return the graph that a document declares, and record its faults.

    `opener` loads the documents of nested graphs.
    """
    declaration = _Declaration(form, faults, name, opener)
    for number, node in enumerate(form.nodes):
        declaration.node(node, ("nodes", number))
    for number, way in enumerate(form.edges or ()):
        if not faults.is_lost(("edges", number)):
            declaration.edge(way, ("edges", number))
    for number, rule in enumerate(form.rules):
        if not faults.is_lost(("rules", number)):
            declaration.rule(rule, ("rules", number))
    if form.edges is None:
        declaration.in_order()
    return declaration.graph()


class _Declaration:
    """A graph under construction."""

    def __init__(self, head: GraphForm, faults: Faults, name: str, opener: Opener) -> None:
        self._head = head
        self._faults = faults
        self._opener = opener
        self._order: dict[str, None] = {}
        self._graph = Graph(
            name,
            state=self._state(name),
            description=head.description,
            on_error=head.on_error,
            interrupt_before=head.interrupt_before,
            interrupt_after=head.interrupt_after,
        )

    def graph(self) -> Graph:
        """Build the graph, record its faults, and return it."""
        self._graph.finally_(*self._head.finally_)
        for name, reference in self._head.retired.items():
            self._retire(name, reference)
        self._place_the_whole()
        try:
            self._graph.build(mcp=self._head.mcp)
        except GraphError as error:
            self._faults.of_graph(error.faults)
        return self._graph

    def in_order(self) -> None:
        """Add edges in the order of the nodes."""
        order = [name for name in self._order if name not in self._head.finally_]
        for source, target in pairwise([START, *order]):
            self._graph.edge(source, target)

    def node(self, form: NodeForm, place: Place) -> None:
        """Declare a node. If it could not be parsed, its name alone keeps the edges to it valid."""
        name = form.id
        match form:
            case _ if self._faults.is_lost(place):
                if name:
                    self._graph.node(name=name)(_nothing)
                    self._order[name] = None
                return
            case FunctionNodeForm():
                label = f"the node {name!r}"
                self._function(form, place)
            case InterruptNodeForm():
                label = f"the interrupt {name!r}"
                question = self._with_type(form.config, (*place, "config"))
                self._graph.interrupt(name, **question.options())
            case GraphNodeForm():
                label = f"the nested graph {name!r}"
                self._nested(form, (*place, "config", "graph"))
            case _:
                assert_never(form)
        self._order[name] = None
        self._faults.keys(label, (*place, "config"), form.config.model_fields_set)
        self._faults.repeated(f"two nodes are named {name!r}", place)
        for subject in subjects_of_node(name):
            self._faults.subject(subject, place)

    def edge(self, form: WayForm, place: Place) -> None:
        """Declare an edge or a join."""
        options: dict[str, Any] = {}
        match form:
            case EdgeForm(from_=source, to=target):
                options = {"when": form.when, "join": form.join}
            case (source, target):
                pass
        self._graph.edge(source, target, **options)
        for path, subject in subjects_of_condition(source, target, options.get("when")).items():
            self._faults.subject(subject, (*place, "when", path))
        for subject in subjects_of_edge(source, target):
            self._faults.subject(subject, place)
            self._faults.keys(subject, place, ["when"] if options else [])

    def rule(self, form: RuleForm, place: Place) -> None:
        """Declare a rule."""
        label = f"the rule {form.id!r}"
        actions = [
            self._with_type(action, (*place, "then", number))
            for number, action in enumerate(form.then)
        ]
        self._graph.rule(form.id, when=form.when, then=actions)
        self._faults.repeated(f"two rules are named {form.id!r}", place)
        self._faults.subject(label, place)
        self._faults.subject(f"the rule name {form.id!r}", place)
        self._faults.keys(label, place, ["when"])
        for number, action in enumerate(form.then):
            where = (*place, "then", number)
            self._faults.subject(f"{label}, then[{number}]", where)
            for mark in (",", ":"):
                self._faults.subject(f"{label}, {action.kind}{mark}", where)
            if isinstance(action, InterruptForm):
                self._faults.keys(label, where, action.model_fields_set)

    def _function(self, form: FunctionNodeForm, place: Place) -> None:
        place = (*place, "kind")
        function = self._imported(form.kind, place)
        if function is not None and not callable(function):
            self._faults.note(place, f"{form.kind!r} is not a function, but {function!r}")
        options = {
            name: value for name, value in form.config if name in form.config.model_fields_set
        }
        options |= self._exceptions(form.config.retry_on, (*place[:-1], "config", "retry_on"))
        self._graph.node(name=form.id, **options)(function if callable(function) else _nothing)

    def _exceptions(self, names: str | list[str] | None, place: Place) -> dict[str, Any]:
        """Return the option `retry_on`, if it is given."""
        if names is None:
            return {}
        listed = [names] if isinstance(names, str) else names
        references = [name if ":" in name else f"builtins:{name}" for name in listed]
        found = [self._imported(reference, place) for reference in references]
        return {"retry_on": [each for each in found if each is not None]}

    def _nested(self, form: GraphNodeForm, place: Place) -> None:
        inner = self._inner(form.config.graph, place)
        if inner is None:
            self._graph.node(name=form.id)(_nothing)
            return
        options = form.config.model_dump(exclude={"graph"}, exclude_unset=True)
        self._graph.subgraph(form.id, inner, **options)
        self._faults.subject(f"the nested graph {form.id!r}: ", place)
        self._faults.subject(f"the nested graph {form.id!r} contains", place)

    def _retire(self, name: str, reference: str) -> None:
        place = ("retired", name)
        for label in (f"the retired node {name!r}", f"the retired graph {name!r}"):
            self._faults.subject(label, place)
        code = (
            self._imported(reference, place)
            if re.fullmatch(REFERENCE, reference)
            else self._inner(reference, place)
        )
        if code is None:
            return
        if isinstance(code, Graph) or callable(code):
            self._graph.retired(name)(code)
        else:
            self._faults.note(place, f"{reference!r} is not a function or a graph, but {code!r}")

    def _inner(self, reference: str, place: Place) -> Graph | None:
        if re.fullmatch(REFERENCE, reference):
            graph = self._imported(reference, place)
            if isinstance(graph, Graph):
                return graph
            if graph is not None:
                self._faults.note(place, f"{reference!r} is not a graph, but {graph!r}")
            return None
        try:
            return self._opener(reference)
        except ImportStringError as error:
            self._faults.note(place, str(error))
        except GraphError as error:
            for fault in error.faults:
                self._faults.note(place, f"in {reference!r}, {fault}")
        return None

    def _with_type(self, form: F, place: Place) -> F:
        """Return a form in which the type of a question's answers takes the place of its name."""
        if not (isinstance(form, QuestionForm) and isinstance(form.response, str)):
            return form
        response = self._imported(form.response, (*place, "response"))
        return form.model_copy(update={"response": response})

    def _state(self, graph: str) -> Any:
        match self._head.state:
            case None:
                return None
            case str() as reference:
                return self._imported(reference, ("state",))
            case fields:
                is_valid = True
                for name, type_ in fields.items():
                    if (fault := field_fault(name, type_)) is not None:
                        is_valid = False
                        self._faults.note(("state", name), f"the field {name!r} {fault}")
                # The state is open then, so that nodes which use a faulty field are not reported too.
                return state_model(graph, fields) if is_valid else None

    def _imported(self, reference: str, place: Place) -> Any:
        """Import a reference. If that fails, record a fault and return None."""
        try:
            return import_string(reference)
        except ImportStringError as error:
            self._faults.note(place, str(error))
        except Exception as error:  # noqa: BLE001 a module may raise anything
            why = f"{type(error).__name__}: {error} ({raised_at(error)})"
            self._faults.note(place, f"{reference!r} cannot be imported: {why}")
        return None

    def _place_the_whole(self) -> None:
        head = self._head
        whole: Final[Mapping[str, Place]] = {
            "the graph name": ("id",),
            "the graph: on_error": ("on_error",),
            "the state": ("state",),
            "the field": ("state",),
            "finally": ("finally",),
            "interrupt_before": ("interrupt_before",),
            "interrupt_after": ("interrupt_after",),
            "nothing starts": ("edges",),
        }
        for label, place in whole.items():
            self._faults.subject(label, place)
        for number, name in enumerate(head.finally_):
            self._faults.subject(f"finally names an unknown node {name!r}", ("finally", number))


def _nothing() -> None:
    """Take the place of missing code: a graph with such a node is never returned."""
