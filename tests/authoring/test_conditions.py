"""Faults: a condition that no values can meet, and a `{field}` that no values have."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, RootModel, computed_field
from typing_extensions import TypedDict

from abeyance import END, START, Graph, GraphError, testing
from abeyance.core.json import Json, look_up, matches
from abeyance.schemas.state_model import StateModel
from abeyance.schemas.written import WrittenValues
from abeyance.yaml.builder import state_model


class Risk(Enum):
    LOW = "low"
    HIGH = "high"


class Decision(BaseModel):
    is_approved: bool = Field(alias="isApproved")
    note: str | None = None


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str = ""


class Transfer(BaseModel):
    kind: Literal["transfer"] = "transfer"
    iban: str = ""


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 0


class Sum(BaseModel):
    parts: list[int] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return sum(self.parts)


class Loose(BaseModel):
    amount: Annotated[Decimal, PlainSerializer(lambda amount: float(amount) + 0)] = Decimal(0)


class Optional(TypedDict, total=False):
    size: int


class Listed(RootModel[list[int]]):
    pass


@dataclass
class Place:
    town: str = ""


class Claim(BaseModel):
    decision: Decision | None = None
    ok: bool | None = None
    paid: bool = False
    amount: int = 5
    price: Decimal = Decimal("1.50")
    rate: float = 0.5
    due: date | None = None
    risk: Risk = Risk.LOW
    state: Literal["new", "done", 3] = "new"
    method: Card | Transfer | None = None
    extra: Extra = Extra()
    sum: Sum = Sum()
    loose: Loose = Loose()
    bag: dict[str, int] = {}
    anything: Any = None
    tags: list[str] = []
    pair: tuple[int, str] = (1, "a")
    optional: Optional = {}
    place: Place = Place()
    listed: Listed = Listed([])
    tree: Tree | None = None


class Tree(BaseModel):
    left: Tree | None = None
    value: int = 0


Claim.model_rebuild()


def faults(*whens: dict[str, Any], state: Any = Claim) -> tuple[str, ...]:
    """Return the faults of a graph that has each condition on an edge and on a rule, beside an `else`."""
    graph = Graph("claim", state=state)
    graph.node(name="assess")(lambda: None)
    graph.edge(START, "assess")
    for number, when in enumerate(whens):
        graph.node(name=f"pay{number}")(lambda: None)
        graph.edge("assess", f"pay{number}", when=when)
        graph.rule(f"again{number}", when=when, then=[{"kind": "halt"}])
    graph.edge("assess", END, when="else")
    try:
        graph.build()
    except GraphError as error:
        return error.faults
    return ()


NEVER: dict[str, dict[str, Any]] = {
    "'decision' has no 'is_approved': write 'decision.isApproved'": {"decision.is_approved": True},
    "'decision' has no 'isAproved': write 'decision.isApproved'": {"decision.isAproved": True},
    "'decision' has no 'verdict': it has 'isApproved', 'note'": {"decision.verdict": True},
    "which is not a field of the state: write 'decision.isApproved'": {"Decision.isApproved": True},
    "which is not a field of the state": {"colour": 1},
    "'amount' is integer as JSON, with nothing below it": {"amount.currency": "EUR"},
    "'decision.isApproved' is boolean as JSON": {"decision.isApproved.by": "ada"},
    "'tags' is array as JSON": {"tags.0": "a"},
    "'bag.a' is integer as JSON": {"bag.a.b": 1},
    "'method' has no 'ibn': write 'method.iban'": {"method.ibn": "DE"},
    "'sum' has no 'total': it has 'parts'": {"sum.total": 3},
    "'place' has no 'city'": {"place.city": "Ulm"},
    "'tree.left.left' has no 'valeu': write 'tree.left.left.value'": {"tree.left.left.valeu": 1},
    'for "yes", which it never is: as JSON it is boolean or null; write true or false': {
        "ok": "yes"
    },
    "for 1, which it never is: as JSON it is boolean or null; write true or false": {"ok": 1},
    "for null, which it never is: as JSON it is boolean": {"paid": None},
    'for "one", which it never is: as JSON it is integer': {"amount": "one"},
    'for "1", which it never is: as JSON it is integer; write 1, without quotes': {"amount": "1"},
    "for true, which it never is: as JSON it is integer": {"amount": True},
    "for 1.5, which it never is: as JSON it is integer": {"amount": 1.5},
    'as JSON it is string; compare the text that its type writes, such as "10"': {"price": 10},
    'for "0.5", which it never is: as JSON it is number; write 0.5': {"rate": "0.5"},
    'for "hi", which it never is: as JSON it is "low" or "high"': {"risk": "hi"},
    'for "old", which it never is: as JSON it is "new" or "done" or 3': {"state": "old"},
    'for "wire", which it never is: as JSON it is "card" or "transfer"': {"method.kind": "wire"},
    "for [1], which it never is: as JSON it is array": {"tags": [1]},
    "compare single fields, by paths with dots": {"decision": {"isApproved": True}},
}


@functools.cache
def never() -> tuple[str, ...]:
    return faults(*NEVER.values())


@pytest.mark.parametrize(("number", "told"), [*enumerate(NEVER)])
def test_a_condition_that_can_never_hold_is_a_fault_of_the_edge_and_of_the_rule(
    number: int, told: str
) -> None:
    for subject in (f"the edge from 'assess' to 'pay{number}'", f"the rule 'again{number}'"):
        (fault,) = [each for each in never() if each.startswith(f"{subject} looks at '")]
        assert told in fault


def test_a_condition_that_may_hold_is_not_a_fault() -> None:
    possible: list[dict[str, Any]] = [
        {"decision.isApproved": True, "decision.note": None},
        {"decision": None},
        {"decision": {"isApproved": True, "note": None}},
        {"decision.isApproved": None},
        {"amount": 5.0, "rate": 1, "price": "1.50", "due": "2026-01-31", "ok": False},
        {"risk": "high", "state": 3, "method.kind": "card", "method.number": None},
        {"extra.known": 1, "extra.other": "x", "loose.amount": 1.5, "bag.a": 1, "bag.b": None},
        {"anything": 1, "anything.a.b": "x", "tags": ["a"], "pair": [1, "a"], "listed": [1]},
        {"optional.size": None, "place.town": "Ulm", "tree.left.left.value": 1},
    ]
    assert faults(*possible) == ()


def test_a_schema_that_an_author_wrote_leaves_open_what_it_does_not_say() -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    open_state = state_model("g", {"box": schema, "ok": "bool", "free": "dict"})

    assert faults({"box.size": 1, "box.colour": "red", "free.a.b": 1}, state=open_state) == ()
    assert (
        'for "1", which it never is: as JSON it is integer'
        in faults({"box.size": "1"}, state=open_state)[0]
    )


def test_a_state_that_takes_any_field_has_known_ones_checked() -> None:
    class Open(Claim):
        model_config = ConfigDict(extra="allow")

    assert faults({"colour.of": 1}, state=Open) == faults({"colour.of": 1}, state=None) == ()
    (of_edge, _) = faults({"decision.is_approved": True}, state=Open)
    assert "'decision' has no 'is_approved'" in of_edge


SHOWN: dict[str, dict[str, Any]] = {
    "prompt=, shows {decision.is_approved}, but 'decision' has no 'is_approved': write "
    "'decision.isApproved'; to show the braces, write {{decision.is_approved}}": {
        "prompt": "{decision.is_approved}?"
    },
    "reason=, shows {amount.net}, but 'amount' is integer as JSON": {"reason": ["{amount.net}"]},
    "reason=, shows {amuont}, which is not a field of the state: write 'amount'": {
        "reason": {"a": "{amuont}"}
    },
    "payload=, shows {order}, which is not a field of the state": {"payload": {"order": "{order}"}},
    "requests the capability 'pay:{decision.by}' with 'decision.by', but 'decision' has no 'by'": {
        "requested_capability": "pay:{decision.by}",
        "from_input": True,
    },
}


@functools.cache
def shown() -> tuple[str, ...]:
    """Return the faults of a graph that asks each of these, as a node and as a rule."""
    graph = Graph("claim", state=Claim)
    graph.node(name="pay")(lambda: None)
    graph.edge(START, "pay")
    for number, options in enumerate(SHOWN.values()):
        question: dict[str, Any] = {"prompt": "Pay?", **options}
        graph.interrupt(f"ask{number}", **question)
        graph.edge(START, f"ask{number}")
        asks = {"kind": "interrupt", **question}
        graph.rule(f"check{number}", when={"node": "pay"}, then=[asks])
    with pytest.raises(GraphError) as caught:
        graph.build()
    return caught.value.faults


@pytest.mark.parametrize(("number", "told"), [*enumerate(SHOWN)])
def test_a_question_that_shows_what_no_values_have_is_a_fault(number: int, told: str) -> None:
    for subject in (f"the interrupt 'ask{number}'", f"the rule 'check{number}'"):
        (fault,) = [each for each in shown() if each.startswith(subject)]
        assert told in fault


async def test_a_declared_payload_is_filled_as_a_reason_is() -> None:
    graph = Graph("claim", state=Claim)
    graph.interrupt("ask", prompt="?", payload={"due": "{amount}", "text": "{amount} EUR {{x}}"})
    graph.edge(START, "ask")

    trial = await testing.run(graph, {"amount": 7})
    (asked,) = await trial.interrupts()

    assert asked.payload == {"due": 7, "text": "7 EUR {x}"}


async def test_a_condition_reads_an_answer_and_what_a_node_returns_by_the_same_names() -> None:
    def graph_of(*, asks: bool) -> Graph:
        graph = Graph("claim", state=Claim)
        if asks:
            graph.interrupt("decide", prompt="?", answer_to="decision")
        else:
            decision = Decision(isApproved=True)
            graph.node(name="decide")(lambda: {"decision": decision})
        graph.node(name="pay")(lambda: {"paid": True})
        graph.edge(START, "decide")
        graph.edge("decide", "pay", when={"decision.isApproved": True})
        graph.edge("decide", END, when="else")
        return graph

    answered = await testing.run(graph_of(asks=True), answers={"decide": {"isApproved": True}})
    returned = await testing.run(graph_of(asks=False))

    assert answered.values["paid"] is returned.values["paid"] is True


def test_a_model_that_cannot_read_the_names_that_it_writes_is_a_fault() -> None:
    class Odd(BaseModel):
        size: int = Field(0, serialization_alias="SIZE")

    class State(BaseModel):
        odd: Odd = Odd()

    (fault,) = faults({"odd.SIZE": 1}, state=State)
    assert fault.startswith(
        "the field 'odd' holds a Odd, which writes 'SIZE' and does not read it: use alias= in place of "
        "serialization_alias="
    )


def _leaves(value: Json, path: str) -> list[str]:
    inside = value if isinstance(value, dict) else {}
    return [path, *(each for key in inside for each in _leaves(inside[key], f"{path}.{key}"))]


CLAIMS = st.builds(
    Claim,
    decision=st.none() | st.builds(Decision, isApproved=st.booleans(), note=st.none() | st.text()),
    ok=st.none() | st.booleans(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    due=st.none() | st.dates(),
    risk=st.sampled_from(Risk),
    state=st.sampled_from(["new", "done", 3]),
    method=st.none() | st.builds(Card) | st.builds(Transfer, iban=st.text()),
    bag=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
    optional=st.just({}) | st.just({"size": 1}),
    tree=st.none() | st.just(Tree(left=Tree(value=2))),
)


STATES = StateModel(Claim)
WRITTEN = WrittenValues(STATES)


@settings(max_examples=60)
@given(CLAIMS)
def test_whatever_a_state_writes_can_be_compared(claim: Claim) -> None:
    values = STATES.initial(claim)

    for path in [path for name in values for path in _leaves(values[name], name)]:
        equals = {path: look_up(values, path)}
        assert matches(equals, values)
        assert WRITTEN.path_fault(path) is None
        assert WRITTEN.value_fault(path, equals[path]) is None, equals
