"""The OpenAPI document describes every call, with examples that are valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel, TypeAdapter
from stack import Api, openapi_document, resolved

from abeyance import commands
from abeyance.api import examples, schemas, signin
from abeyance.api.problems import MEDIA_TYPE, PROBLEMS
from abeyance.api.routers import admin, batch, graphs


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, by_method in document["paths"].items():
        for method, call in by_method.items():
            yield f"{method.upper()} {path}", call


def test_every_refusal_has_an_example_with_its_status(document: dict[str, Any]) -> None:
    listed: dict[str, int] = {}
    for name, status in {"Refused": "4XX", "Unavailable": "503"}.items():
        answer = document["components"]["responses"][name]
        examples_of_it = answer["content"][MEDIA_TYPE]["examples"]
        assert "Retry-After" in answer["headers"]
        assert {str(each["value"]["status"])[0] for each in examples_of_it.values()} == {status[0]}
        listed |= {code: each["value"]["status"] for code, each in examples_of_it.items()}
        for call, about in calls(document):
            assert resolved(document, about["responses"][status]) == answer, call

    assert listed == {str(code): status for code, (status, _) in PROBLEMS.items()}


async def test_the_openapi_document_is_served_in_version_3_1(api: Api) -> None:
    served = (await api.http.get("/openapi.json")).json()

    assert served["openapi"].startswith("3.1")
    assert "/runs/{run_id}/respond" in served["paths"]


def test_every_call_says_what_it_does_with_an_example_of_each_answer(
    document: dict[str, Any],
) -> None:
    for name, call in calls(document):
        assert call["description"], name
        for status, answer in call["responses"].items():
            for kind, content in resolved(document, answer)["content"].items():
                assert content["schema"], f"{name} {status}"
                assert content.get("example") or content.get("examples"), f"{name} {status}"
                is_text = (kind, name.rpartition("/")[2]) in (
                    ("text/event-stream", "events"),
                    ("text/event-stream", "{graph}"),
                    ("text/event-stream", "stream"),
                    ("application/x-ndjson", "audit"),
                    ("text/csv", "approvals"),
                    ("text/plain", "diagram"),
                    ("text/plain", "metrics"),
                    ("text/html", "signin"),
                    ("*/*", "{file_id}"),
                )
                expected = "application/json" if status < "400" else MEDIA_TYPE
                assert kind == expected or is_text, name


def test_every_response_with_a_view_also_documents_the_status_alone(
    document: dict[str, Any],
) -> None:
    for name, call in calls(document):
        done = [json.dumps(each) for status, each in call["responses"].items() if status < "400"]
        if any("/RunStatus" in each for each in done):
            assert all("/RunStatus" in each for each in done if "/RunView" in each), name


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    for name, call in calls(document):
        if "requestBody" not in call:
            continue
        content = call["requestBody"]["content"]["application/json"]
        schema = content["schema"]
        examples_of_it = (
            content.get("examples")
            or schema.get("examples")
            or resolved(document, schema).get("examples")
        )
        assert examples_of_it, name


def test_an_example_of_an_answer_is_one_and_has_no_blanks(document: dict[str, Any]) -> None:
    for name, call in calls(document):
        for status, answer in call["responses"].items():
            form = answer.get("content", {}).get("application/json")
            if status < "400" and form is not None:
                schema = {**form["schema"], "components": document["components"]}
                jsonschema_rs.validate(schema, form["example"], validate_formats=True)
                assert "..." not in json.dumps(form["example"]), name


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (schemas.StartBody, examples.START),
        (schemas.AnswerBody, examples.ANSWER_TO_ONE),
        (commands.PauseBody, examples.PAUSE),
        (commands.ControlBody, examples.RESUME),
        (commands.CancelBody, examples.CANCEL),
        (commands.ValuesBody, examples.VALUES),
        (commands.DeadlineBody, examples.DEADLINE),
        (commands.MessageBody, examples.MESSAGE),
        (commands.MessageBody, examples.TO_ALL),
        (batch.PauseBatch, examples.PAUSE_MANY),
        (batch.ResumeBatch, examples.RESUME_MANY),
        (batch.CancelBatch, examples.CANCEL_MANY),
        (batch.SteerBatch, examples.STEER_MANY),
        (batch.RespondBatch, examples.RESPOND_MANY),
        (admin.EvictBody, examples.EVICT),
        (signin.SignIn, examples.SIGN_IN),
        *((commands.Answers, example["value"]) for example in examples.ANSWERS.values()),
    ],
)
def test_an_example_of_a_body_is_accepted(model: type[BaseModel], example: dict[str, Any]) -> None:
    assert TypeAdapter(model).validate_python(example).model_fields_set == set(example)


async def test_a_graph_is_shown_as_in_the_example(api: Api) -> None:
    whole = (await api.http.get("/graphs/gated")).json()

    assert set(graphs.SPEC_EXAMPLE) <= set(whole)
    assert set(graphs.SPEC_EXAMPLE["nodes"]["pay"]) <= set(whole["nodes"]["after"])
    assert set(graphs.SPEC_EXAMPLE["edges"][0]) <= set(whole["edges"][0])
