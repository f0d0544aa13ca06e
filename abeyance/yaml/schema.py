"""Form of a graph in YAML: models of its keys, and the JSON Schema for editors.

Nothing is converted: a number in quotes is a string. The graph checks faults that depend on the whole (an
edge to an unknown node, a default answer that does not fit).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from abeyance.authoring.actions import GOTO, ActionForm, QuestionForm, Schema
from abeyance.authoring.gone import GONE
from abeyance.authoring.retries import Backoff
from abeyance.core.json import Json
from abeyance.duration import OptionalSeconds, Seconds
from abeyance.schemas.forms import REFERENCE, Form, Names, Reference, Written, by_sort

INTERRUPT: Final = "interrupt"
"""The kind of a node that asks a person, and of a rule's action that asks."""

GRAPH: Final = "graph"
"""The kind of a node that is another graph."""

_CODE: Final = rf"{REFERENCE}|.+\.ya?ml"
_EXCEPTION: Final = rf"[A-Za-z]+|{REFERENCE}"
_EXCEPTION_WORDS: Final = "an exception of Python, such as ConnectionError, or module:Class"

Equalities: TypeAlias = Annotated[
    dict[str, Any],
    Field(description="paths of the values, and what they must equal (all of them)"),
    Tag("mapping"),
]
OnError: TypeAlias = Annotated[
    str, Written(f"fail|interrupt|{GOTO}", "fail, interrupt or goto:<node>")
]
Looks: TypeAlias = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[str], Tag("list")],
    by_sort("a list of names of nodes, or '*'"),
]
Fields: TypeAlias = dict[str, str]


Exceptions: TypeAlias = Annotated[
    Annotated[str, Written(_EXCEPTION, _EXCEPTION_WORDS), Tag("text")]
    | Annotated[list[Annotated[str, Written(_EXCEPTION, _EXCEPTION_WORDS)]], Tag("list")],
    by_sort("the name of an exception, or a list of names"),
]


class FunctionForm(Form):
    """How a function is run."""

    GONE: ClassVar[Mapping[str, str]] = {"fuse": GONE["fuse"]}
    timeout: OptionalSeconds = Field(None, description="bounds one attempt")
    retries: int | None = Field(
        None, ge=0, description="attempts after the first: 3, or with retry_for without a bound"
    )
    backoff: Backoff | None = None
    retry_for: OptionalSeconds = Field(
        None, description="how long after the first attempt others may begin"
    )
    retry_on: Exceptions | None = Field(
        None, description="the exceptions after which it is tried again; every one, if not given"
    )
    heartbeat: Seconds = 5.0
    local: bool = False
    on_error: OnError | None = None
    to: Names = Field(
        default=[], description="the targets of a Goto or Send that the function returns"
    )
    asks: Names = Field(default=[], description="the capabilities that the function asks for")


class FunctionNodeForm(Form):
    """A node that is a Python function."""

    id: str
    kind: Annotated[str, Written(REFERENCE, "interrupt, graph, or module:function")]
    config: FunctionForm = Field(default_factory=FunctionForm)


class InterruptNodeForm(Form):
    """A node that asks a person."""

    id: str
    kind: Literal["interrupt"]
    config: QuestionForm = Field(default_factory=QuestionForm)


class NestedForm(Form):
    """Which graph a node is, and what passes between it and the graph around it."""

    graph: Annotated[str, Written(_CODE, "a YAML file, or module:name")]
    input: Fields | None = Field(None, description="{field of the nested graph: field of this one}")
    output: Fields | None = Field(
        None, description="{field of this graph: field of the nested one}"
    )
    on_error: OnError | None = None


class GraphNodeForm(Form):
    """A node that is another graph."""

    id: str
    kind: Literal["graph"]
    config: NestedForm


def _kind_of_node(value: object) -> str:
    # Only a reference has a colon, so the schema can tell the kinds apart.
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return kind if kind in {INTERRUPT, GRAPH} else "code"


NodeForm: TypeAlias = Annotated[
    Annotated[FunctionNodeForm, Tag("code")]
    | Annotated[InterruptNodeForm, Tag(INTERRUPT)]
    | Annotated[GraphNodeForm, Tag(GRAPH)],
    Discriminator(_kind_of_node),
]


class EdgeForm(Form):
    """A way from one node to another; from several it is a join."""

    from_: Names = Field(alias="from")
    to: str
    when: (
        Annotated[
            Equalities | Annotated[Literal["else"], Tag("text")], by_sort("a mapping, or else")
        ]
        | None
    ) = None
    join: Literal["all", "arrived"] = "all"


WayForm: TypeAlias = Annotated[
    Annotated[tuple[Names, str], Field(strict=False), Tag("list")]
    | Annotated[EdgeForm, Tag("mapping")],
    by_sort("a pair [from, to], or a mapping with from and to"),
]


class RuleForm(Form):
    """The actions after a visit for which a condition holds."""

    id: str
    when: Annotated[
        Equalities | Annotated[str, Field(description="CLIPS"), Tag("text")],
        by_sort("a mapping, or CLIPS text"),
    ]
    then: list[ActionForm]


TypeName: TypeAlias = Literal["str", "int", "float", "bool", "list", "dict", "any", "from_start"]
FieldForm: TypeAlias = Annotated[
    Annotated[TypeName, Tag("text")] | Schema, by_sort("the name of a type, or a JSON Schema")
]
FieldName: TypeAlias = Annotated[
    str, Written(r"[A-Za-z][A-Za-z0-9_]*", "letters, digits and '_', a letter first")
]


class GraphForm(Form):
    """A graph."""

    GONE: ClassVar[Mapping[str, str]] = GONE
    id: str | None = Field(None, description="its name; without one, that of the file")
    description: str = ""
    state: (
        Annotated[
            Annotated[dict[FieldName, FieldForm], Tag("mapping")] | Reference,
            by_sort("a mapping of fields to types, or module:Class"),
        ]
        | None
    ) = Field(None, description="the fields of the values; without it, any field")
    nodes: list[NodeForm] = Field(json_schema_extra={"minItems": 1})
    edges: list[WayForm] | None = Field(
        None, description="the ways; without them, the order of the nodes"
    )
    rules: list[RuleForm] = Field(default=[])
    finally_: list[str] = Field(
        default=[], alias="finally", description="nodes that run after every kind of end"
    )
    retired: dict[str, Annotated[str, Written(_CODE, "module:name, or a YAML file")]] = Field(
        default={},
        description="the code of nodes that only older runs have, by name: a function or a graph",
    )
    on_error: OnError = Field(
        "fail", description="what happens when a node fails, unless the node says it"
    )
    interrupt_before: Looks = Field(
        default=[], description="nodes before which a person looks at the values; '*' is all"
    )
    interrupt_after: Looks = Field(
        default=[], description="nodes after which a person looks at the values; '*' is all"
    )
    mcp: bool = Field(default=False, description="the API offers the graph as a tool of MCP")


def published() -> str:
    """Return the text of `yaml-schema.json`, for editors."""
    return json.dumps(json_schema(), indent=2) + "\n"


def json_schema() -> dict[str, Json]:
    """Return the JSON Schema of a document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A graph of Abeyance",
        **_untitled(GraphForm.model_json_schema()),
    }


def _untitled(schema: Json) -> Json:
    # The titles repeat the names of classes and keys, and editors would show them.
    match schema:
        case dict():
            return {
                key: _untitled(value)
                for key, value in schema.items()
                if key != "title" or not isinstance(value, str)
            }
        case list():
            return [_untitled(item) for item in schema]
        case _:
            return schema
