"""The tools that MCP offers: each published graph, and `ask_human`, `pending` and `answer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import mcp_types as protocol
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from abeyance.authoring.graph import Graph
from abeyance.core.json import Json
from abeyance.core.spec import END, START
from abeyance.errors import GraphError
from abeyance.schemas.faults import at_pointer
from abeyance.util import invalid

A = TypeVar("A", bound="_Arguments")

ASK: Final = "ask_human"
PENDING: Final = "pending"
ANSWER: Final = "answer"


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _distinct(choices: list[str]) -> list[str]:
    if len(set(choices)) < len(choices):
        raise ValueError("two of the choices are equal: list each one once")
    return choices


class AskArguments(_Arguments):
    """Ask a person a question, and wait for the answer."""

    question: str = Field(min_length=1, max_length=10_000, description="What to ask, as Markdown.")
    choices: (
        Annotated[
            list[str],
            Field(min_length=1, max_length=50, json_schema_extra={"uniqueItems": True}),
            AfterValidator(_distinct),
        ]
        | None
    ) = Field(
        default=None,
        description="The possible answers. Without them the answer is any text.",
    )
    assignees: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Who should answer: names, and groups as group:finance. Anybody else may as well.",
    )
    timeout: str | None = Field(
        default=None,
        description="How long to wait for an answer, as 2h or P2D; then the question is withdrawn. "
        "Without it, there is no limit.",
    )


class PendingArguments(_Arguments):
    """List the questions that wait for people, or return the state of a run: the questions that it waits
    for, or its result.
    """

    run_id: str | None = Field(
        default=None, description="The id of a run. Without it, the questions of all runs."
    )
    cursor: str | None = Field(
        default=None, description="The `next_cursor` of the list before, for the rest of it."
    )


class AnswerArguments(_Arguments):
    """Answer an open question, and return the effect. Never make up an answer: it must be a person's."""

    interrupt_id: str = Field(max_length=600, description="The id of the question.")
    answer: JsonValue = Field(description="The answer, as the question's `response_schema` says.")
    digest: str | None = Field(
        default=None,
        description="The `digest` of the question that was shown: if it has changed since, the answer is "
        "refused.",
    )
    note: str | None = Field(default=None, max_length=2_000, description="Why, for the record.")


OWN: Final[Mapping[str, type[_Arguments]]] = {
    ASK: AskArguments,
    PENDING: PendingArguments,
    ANSWER: AnswerArguments,
}
"""The tools that are not graphs, with their arguments."""


def tools_of(graphs: Mapping[str, Graph]) -> list[protocol.Tool]:
    """Return the tools, sorted by name: these graphs and our own."""
    tools = [_tool(graph) for _, graph in sorted(graphs.items())]
    for name, arguments in OWN.items():
        schema = arguments.model_json_schema()
        description = " ".join(str(schema.pop("description")).split())
        tools.append(
            protocol.Tool(
                name=name,
                description=description,
                input_schema=schema,
                annotations=protocol.ToolAnnotations(read_only_hint=name == PENDING),
            )
        )
    return tools


def _tool(graph: Graph) -> protocol.Tool:
    spec = graph.build()
    schema = spec.input_schema if isinstance(spec.input_schema, Mapping) else {}
    return protocol.Tool(
        name=spec.name,
        description=spec.description or None,
        input_schema={**schema, "type": "object"},
        annotations=protocol.ToolAnnotations(read_only_hint=False),
    )


def read(kind: type[A], arguments: Mapping[str, Any]) -> A:
    """Read the arguments of one of our own tools. Raises `invalid_body`."""
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        raise invalid(at_pointer(error, arguments)) from error


class _Asked(BaseModel):
    question: str = ""
    answer: str | None = None


def asking(asked: AskArguments) -> Graph:
    """Return the graph of one question. Raises `invalid_body`."""
    graph = Graph(ASK, state=_Asked, description=str(AskArguments.__doc__))
    choices: Json = {} if asked.choices is None else {"enum": asked.choices}
    try:
        graph.interrupt(
            "answer",
            prompt="{question}",
            response={"type": "string", **choices},
            answer_to="answer",
            timeout=asked.timeout,
            assignees=asked.assignees,
        )
        graph.edge(START, "answer")
        graph.edge("answer", END)
        graph.build()
    except GraphError as error:
        raise invalid([{"pointer": "", "message": "; ".join(error.faults)}]) from error
    return graph
