"""Request and response bodies that only the API has; the others are `abeyance.commands`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
)

from abeyance import commands, views, wire
from abeyance.api import examples
from abeyance.commands.fields import Name, Person
from abeyance.core.json import sha256
from abeyance.core.state import Limits
from abeyance.duration import OptionalSeconds, Seconds
from abeyance.util import RUN_ID_RULE, invalid

T = TypeVar("T")


def fields_set(body: BaseModel | None) -> dict[str, Any]:
    """Return the fields that a body sets. null can have a meaning, and differs from an absent field."""
    return {} if body is None else {name: getattr(body, name) for name in body.model_fields_set}


def _to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names: TypeAlias = Annotated[
    tuple[Name, ...],
    BeforeValidator(_to_list, json_schema_input_type=list[Name] | Name),
    Field(max_length=1_000),
]


class LimitsBody(wire.Request):
    """The limits of one run. Each can only be lower than the limit of the service."""

    max_queue_size: int = Field(default=100, ge=1, strict=True)
    max_message_length: int = Field(default=10_000, ge=1, strict=True)
    max_metadata_size: int = Field(default=100_000, ge=2, strict=True)
    allowed_actions: tuple[Name, ...] = Field(
        default=(),
        max_length=100,
        description="The actions that messages may have. Empty allows all.",
    )
    allowed_media_hosts: tuple[Name, ...] = Field(
        default=(),
        max_length=100,
        description="The hosts from which messages and agent inputs may load media.",
    )
    max_visits: int = Field(default=1000, ge=1, strict=True)
    max_guard_turns: int = Field(default=10, ge=0, strict=True)
    max_parallel_visits: int = Field(default=50, ge=1, strict=True)
    pause_timeout: OptionalSeconds = Field(default=None, gt=0)
    grace: Seconds = Field(default=30.0, ge=0)
    continue_as_new_after: int = Field(default=1500, ge=3, strict=True)

    def below(self, bounds: Limits) -> Limits:
        """Return the bounds, lowered by these limits. Raises `invalid_body` for a higher limit."""
        lowered = fields_set(self)
        errors = [
            {"pointer": f"/limits/{name}", "message": fault}
            for name, value in sorted(lowered.items())
            if (fault := _widening(name, value, getattr(bounds, name))) is not None
        ]
        if errors:
            raise invalid(errors)
        return replace(bounds, **lowered)


def _widening(name: str, value: Any, bound: Any) -> str | None:
    """Return the error of a limit that is wider than the service's limit; None if it is not."""
    if isinstance(bound, tuple):
        if name == "allowed_actions" and not bound:
            return None
        further = sorted({*value} - {*bound})
        if further:
            return (
                f"{further[0]!r} is not allowed by this service: use {', '.join(bound) or 'none'}"
            )
        if name == "allowed_actions" and not value:
            return "an empty list allows all actions: name those that you need"
        return None
    if bound is None or (value is not None and value <= bound):
        return None
    return f"{_shown(value)} is more than the {_shown(bound)} of this service: lower it"


class StartBody(commands.StartFields):
    """A run to start."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.START]})

    graph: str = Field(min_length=1, max_length=256, description="The name of the graph.")
    input: JsonValue = Field(
        default_factory=dict,
        description="The input of the graph, as its `input_schema` describes. Absent is `{}`.",
    )
    run_id: str | None = Field(
        default=None,
        description=f"The id of the run, of the form {RUN_ID_RULE}. Generated if absent.",
    )
    limits: LimitsBody = Field(default_factory=LimitsBody)
    interrupt_before: Names = Field(
        default=(),
        description="Nodes to review before they run; `*` is every node.",
    )
    interrupt_after: Names = Field(
        default=(), description="Nodes to review after they ran; `*` is every node."
    )
    on_error: str | None = Field(
        default=None,
        pattern=r"^(fail|interrupt)$",
        description="The action if a node without its own `on_error` fails: end the run, or ask.",
    )
    reuse: bool = Field(
        default=False,
        strict=True,
        description="Start a new run under the id of a run that has ended.",
    )
    allow_concurrent: bool = Field(
        default=False,
        strict=True,
        description="Start even if the conversation has an active run of the type `agent`.",
    )

    def sha256(self) -> str:
        """Return the hash of the request, which identifies a retry."""
        return sha256(self.model_dump(mode="json"))


class AnswerBody(wire.Request):
    """The answer to one interrupt. null is a valid answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.ANSWER_TO_ONE]})

    response: JsonValue
    note: str | None = Field(default=None, max_length=2_000)
    digests: dict[str, str] = Field(default_factory=dict)
    on_behalf_of: Person | None = None


class Question(views.InterruptView):
    """An interrupt as the inbox shows it."""

    prompt_html: str | None = Field(
        default=None,
        description="The prompt, which may be Markdown, as safe HTML: only if it was asked for.",
    )


class Answered(views.Receipts):
    """The receipts of the answers, and the run."""

    run: views.RunView


class Listed(BaseModel, Generic[T]):
    """A page of a list. `next_cursor` is the cursor of the next page, or null on the last one."""

    items: list[T]
    next_cursor: str | None = Field(default=None, examples=[None])


class Page(Listed[T], Generic[T]):
    """A page of a list that is searched and counted.

    `total` is the number of entries in the whole list. `searched` is `clear` if the records are
    encrypted: then a search finds ids, names, labels and people, but not the content of questions.
    """

    total: int = Field(examples=[1])
    searched: Literal["all", "clear"] = "all"


class Accepted(BaseModel):
    """Temporal has accepted the signal. Its effect shows in the run and in its events."""

    run_id: views.RunId
    message_id: str | None = Field(default=None, exclude_if=lambda id_: id_ is None)


class RunStatus(BaseModel):
    """A run, for a caller without `runs:read`."""

    run_id: str
    status: str


class InterruptStatus(BaseModel):
    """An interrupt, for a caller without `runs:read`."""

    id: str
    run_id: str
    status: str


class RunResult(views.ClosingRecord):
    """The result of a run that has ended."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.RESULT]})

    run_id: str
    status: str
    error: views.ErrorView | None = None

    @classmethod
    def of(cls, run_id: str, record: views.ClosingRecord) -> RunResult:
        fields = {name: getattr(record, name) for name in type(record).model_fields}
        return cls(run_id=run_id, status=record.view.status, error=record.view.error, **fields)


class GraphSummary(BaseModel):
    """A graph that can be started. `version` changes with its nodes and edges, not with their code."""

    name: views.GraphName
    version: views.GraphVersion
    description: str = Field(examples=["Refunds an order after an approval."])
    input_schema: Any = Field(
        examples=[{"type": "object", "properties": {"amount": {"type": "number"}}}]
    )


def _shown(bound: float | None) -> str:
    return "no limit" if bound is None else f"{bound:.15g}"
