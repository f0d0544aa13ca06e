"""The forms of a rule's actions, and of questions: the same in Python and in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from abeyance.authoring.terms import Span, TermsForm
from abeyance.duration import OptionalSeconds
from abeyance.schemas.forms import Form, Names, Reference, Written, by_sort

GOTO: Final = r"goto:.+"

Schema: TypeAlias = Annotated[
    Mapping[str, Any], Field(description="a JSON Schema (2020-12)"), Tag("mapping")
]
Response: TypeAlias = Annotated[
    # Only Python can pass a type.
    Schema | Reference | Annotated[SkipJsonSchema[Any], Tag("type")],
    by_sort("a JSON Schema, or module:Class"),
]


class DefaultAnswer(Form):
    """The answer that is given when nobody has answered in time."""

    default: Any


OnTimeout: TypeAlias = Annotated[
    Annotated[str, Written(f"halt|{GOTO}", "halt or goto:<node>"), Tag("text")]
    | Annotated[DefaultAnswer, Tag("mapping")],
    by_sort("halt, goto:<node> or {default: <answer>}"),
]


class ShownForm(Form):
    """The content that a person sees. In its texts, `{field}` is filled with a value of the run."""

    prompt: str | None = None
    reason: Any = None
    payload: Any = Field(
        None,
        validation_alias=AliasChoices("payload", "interrupt_payload"),
        description="for programs; `interrupt_payload` is Stargraph's name of it",
    )
    response: Response | None = None
    answer_to: str | None = Field(None, description="the field to which the answer is written")
    from_input: bool = Field(
        default=False,
        description="the input of a run may set the fields in requested_capability",
    )


class QuestionForm(TermsForm, ShownForm):
    """A question to a person, its deadline, and the conditions of a yes."""

    requested_capability: str | None = None
    timeout: Span | None = None
    on_timeout: OnTimeout = "halt"

    def options(self) -> dict[str, Any]:
        """Return the keys that are set, as arguments of `Graph.interrupt`."""
        options = {name: getattr(self, name) for name in self.model_fields_set - {"kind"}}
        if isinstance(self.on_timeout, DefaultAnswer):
            options["on_timeout"] = {"default": self.on_timeout.default}
        return options


class AssertForm(Form):
    """Add a fact for the other rules of the same evaluation."""

    kind: Literal["assert"]
    fact: str = Field(description="its name, or all of it as CLIPS text")
    slots: Mapping[str, Any] | None = Field(None, description="the values in it, beside its name")


class GotoForm(Form):
    """Run this node next."""

    kind: Literal["goto"]
    node: str


class HaltForm(Form):
    """End the run as halted; without a reason, the rule's id is the reason."""

    kind: Literal["halt"]
    reason: str | None = None


class InterruptForm(QuestionForm):
    """Ask a person before the visit leads on."""

    kind: Literal["interrupt"]


class ParallelForm(Form):
    """Run these nodes, each as a branch."""

    kind: Literal["parallel"]
    nodes: Names


class RetractForm(Form):
    """Take facts away for the other rules of the same evaluation."""

    kind: Literal["retract"]
    pattern: str = Field(description="CLIPS: a variable that `when` binds, or a pattern")


class RetryForm(Form):
    """Run the node again."""

    kind: Literal["retry"]
    node: str | None = Field(None, description="run this node, in place of the visited one")
    backoff: OptionalSeconds = Field(None, ge=0, description="the pause before it")


ActionForm: TypeAlias = Annotated[
    AssertForm | GotoForm | HaltForm | InterruptForm | ParallelForm | RetractForm | RetryForm,
    Field(discriminator="kind"),
]
