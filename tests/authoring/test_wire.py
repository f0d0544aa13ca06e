"""Data that crosses a process boundary: requests are read strictly, our own records leniently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from abeyance import Principal, commands, wire
from abeyance.core.effects import VisitInput
from abeyance.core.state import Limits
from abeyance.wire import MAX_DEPTH

ADA = Principal(subject="ada", capabilities=("pay",))
HALF = "\ud800"
REQUESTS: dict[type[wire.Request], dict[str, Any]] = {
    commands.Control: {},
    commands.Pause: {},
    commands.Resume: {},
    commands.Cancel: {},
    commands.SteerMessage: {"message_id": "m1", "text": "hello"},
    commands.TakeMessages: {"visit": "graph:g;node:a"},
    commands.Answers: {"response": None},
    commands.Respond: {"response": None},
    commands.EditValues: {"patch": {"x": 1}, "version": 1},
    commands.EditDeadline: {"interrupt_id": "i1", "deadline": None},
}


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def travelled(request: Any) -> Any:
    return type(request).model_validate_json(request.model_dump_json())


def faults(model: type[wire.Request], given: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    return str(caught.value)


# Requests


@pytest.mark.parametrize("model", REQUESTS)
def test_a_request_takes_nothing_unknown(model: type[wire.Request]) -> None:
    model.model_validate(REQUESTS[model])

    assert "Extra inputs are not permitted" in faults(model, {**REQUESTS[model], "more": 1})


@pytest.mark.parametrize(
    ("model", "given", "told"),
    [
        (commands.Pause, {"mode": "later"}, "'after-node' or 'now'"),
        (commands.Pause, {"timeout": 0}, "greater than 0"),
        (commands.Pause, {"timeout": "soon"}, "is not a duration"),
        (commands.Pause, {"timeout": 1e300}, "longer than 100 years"),
        (commands.Pause, {"on_timeout": "goto:"}, "String should match pattern"),
        (commands.Pause, {"on_timeout": "halt\n"}, "String should match pattern"),
        (commands.Pause, {"on_timeout": {"default": 1}}, "valid string"),
        (commands.Pause, {"reason": "x" * 2_001}, "at most 2000"),
        (commands.Cancel, {"mode": "after-node"}, "'graceful' or 'now'"),
        (commands.Cancel, {"grace": -1}, "greater than or equal to 0"),
        (commands.Cancel, {"actor": "x" * 257}, "at most 256"),
        (commands.SteerMessage, {"message_id": "", "text": "x"}, "at least 1 character"),
        (commands.SteerMessage, {"message_id": "m" * 201, "text": "x"}, "at most 200"),
        (commands.SteerMessage, {"message_id": "m", "text": "x", "ttl": 0}, "greater than 0"),
        (commands.SteerMessage, {"text": "x", "priority": "urgent"}, "'high', 'normal' or 'low'"),
        (
            commands.SteerMessage,
            {"parts": [{"type": "media", "media_type": "image/png", "data": "?"}]},
            "not base64",
        ),
        (
            commands.SteerMessage,
            {"message_id": "m", "text": "x", "metadata": []},
            "valid dictionary",
        ),
        (
            commands.SteerMessage,
            {"message_id": "m", "text": "x", "metadata": {"x": nested(MAX_DEPTH + 1)}},
            "deeper than 100 levels",
        ),
        (commands.TakeMessages, {"visit": "v", "upto": 0}, "greater than or equal to 1"),
        (commands.TakeMessages, {"visit": "v", "upto": 100_001}, "less than or equal to 100000"),
        (commands.EditValues, {"patch": {}, "version": 1}, "at least 1 item"),
        (
            commands.EditValues,
            {"patch": {"x": nested(MAX_DEPTH + 1)}, "version": 1},
            "deeper than 100",
        ),
        (commands.EditDeadline, {"interrupt_id": "i"}, "nothing to change"),
        (commands.Reassign, {"interrupt_id": "i", "to": ["group:"]}, "nor a group: write ada"),
        (
            commands.EditDeadline,
            {"interrupt_id": "i", "timeout": "P80000D"},
            "longer than 100 years",
        ),
    ],
)
def test_a_wrong_request_is_refused(model: type[wire.Request], given: Any, told: str) -> None:
    assert told in faults(model, given)


def kinds(of: type[wire.Request] = wire.Request) -> list[type[wire.Request]]:
    return [each for kind in of.__subclasses__() for each in (kind, *kinds(kind))]


def test_requests_refuse_half_a_character_in_every_field() -> None:
    given: list[Any] = [HALF, [HALF], [{"type": "text", "text": HALF}], {HALF: 1}, {"a": HALF}]
    sent = [kind for kind in kinds() if kind is not wire.VisitBlocked]  # a worker sends it
    for kind in sent:
        for name, field in kind.model_fields.items():
            for value in given:
                with pytest.raises(ValidationError) as caught:
                    kind.model_validate({name: value})
                places = {error["loc"][0] for error in caught.value.errors() if error["loc"]}
                assert places & {name, field.alias}, (kind, name, value)


def test_a_person_is_named_as_their_issuer_names_them() -> None:
    name = "Ada Lovelace, Ltd."
    until = "2026-03-02T09:00:00Z"

    assert commands.Claim(interrupt_id="i", on_behalf_of=name).on_behalf_of == name
    assert commands.Respond(response=True, on_behalf_of=name).on_behalf_of == name
    assert commands.DelegateBody.model_validate({"to": name, "until": until}).to == name
    assert "String should match pattern" in faults(commands.Claim, {"on_behalf_of": " "})


@pytest.mark.parametrize("order", [commands.Pause(), commands.Resume(), commands.Cancel()])
def test_a_control_without_options_is_sent_by_temporals_ui(order: commands.Control) -> None:
    assert (order.actor, order.reason) == ("temporal", None)


# Answers


@pytest.mark.parametrize(
    "answer", [None, False, 0, "", [], {}, {"approved": True}, nested(MAX_DEPTH)]
)
def test_each_form_of_a_response_keeps_its_answer_on_the_way(answer: Any) -> None:
    forms: list[dict[str, Any]] = [
        {"response": answer},
        {"interrupt_id": "r.1", "response": answer},
        {"responses": {"r.1": answer, "r.2": None}},
    ]
    for form in forms:
        sent = commands.Respond(**form, principal=ADA, note="seen", digests={"r.1": "sha256:0"})
        text = sent.model_dump_json()

        assert travelled(sent) == sent
        assert travelled(sent).principal == ADA
        assert json.loads(text).keys() == {*form, "principal", "note", "digests"}
        assert {name: json.loads(text)[name] for name in form} == form


def test_an_answer_from_temporals_ui_comes_from_nobody_with_a_capability() -> None:
    order = commands.Respond.model_validate_json('{"response": null}')

    assert order.principal == Principal(subject="temporal", capabilities=())
    assert order.model_fields_set == {"response"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "the answer is missing"),
        ({"interrupt_id": "r.1"}, "the answer is missing"),
        ({"note": "x"}, "the answer is missing"),
        ({"responses": None}, "the answer is missing"),
        ({"responses": {"r.1": 1}, "response": None}, "give either"),
        ({"responses": {"r.1": 1}, "interrupt_id": "r.1"}, "give either"),
        ({"responses": {}}, "at least 1 item"),
        ({"responses": {str(number): 1 for number in range(501)}}, "at most 500 items"),
        ({"responses": [1]}, "valid dictionary"),
        ({"interrupt_id": "", "response": 1}, "at least 1 character"),
        ({"response": 1, "note": "x" * 2_001}, "at most 2000"),
        ({"response": 1, "digests": {"r.1": 5}}, "valid string"),
        ({"response": nested(MAX_DEPTH + 1)}, "deeper than 100 levels"),
        ({"responses": {"r.1": nested(MAX_DEPTH + 1)}}, "deeper than 100 levels"),
        ({"response": object()}, "JSON"),
    ],
)
def test_a_response_of_no_form_is_refused(given: Any, told: str) -> None:
    assert told in faults(commands.Respond, given)


# Records


def test_a_record_is_read_whatever_a_later_version_has_added() -> None:
    given = TypeAdapter(VisitInput).validate_python(
        {
            "kind": "visit",
            "run_id": "r",
            "graph": "g",
            "node": "a",
            "address": "graph:g;node:a",
            "values": {},
            "added_later": 1,
        }
    )
    start = wire.StartRun.model_validate({"run_id": "r", "added_later": 1})

    assert (given.routes, given.journal, given.activation) == ((), None, 1)
    assert (start.limits, start.started_by) == (Limits(), "temporal")
