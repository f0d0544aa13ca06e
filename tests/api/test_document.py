"""The OpenAPI document says what the service does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from stack import Api, openapi_document

from abeyance import commands, views
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.api import examples, schemas, signin
from abeyance.api.problems import MEDIA_TYPE, PROBLEMS
from abeyance.api.routers import admin, batch, conversations, graphs, messages


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, by_method in document["paths"].items():
        for method, call in by_method.items():
            yield f"{method.upper()} {path}", call


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found = schema
    for part in schema.get("$ref", "#").removeprefix("#").strip("/").split("/"):
        found = document[part] if found is schema and part else found[part] if part else found
    return found


def test_what_may_be_tried_again_says_when(document: dict[str, Any]) -> None:
    later = [
        answer
        for calls in document["paths"].values()
        for call in calls.values()
        for status, answer in call["responses"].items()
        if status in ("429", "503")
    ]

    assert later
    assert all("Retry-After" in answer["headers"] for answer in later)


async def test_it_is_served_and_is_the_newest_version(api: Api) -> None:
    served = (await api.http.get("/openapi.json")).json()

    assert served["openapi"].startswith("3.1")
    assert "/runs/{run_id}/respond" in served["paths"]


def test_every_call_says_what_it_does_with_an_example_of_each_answer(
    document: dict[str, Any],
) -> None:
    for name, call in calls(document):
        assert call["description"], name
        for status, answer in call["responses"].items():
            for kind, content in answer["content"].items():
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


def test_every_problem_stands_at_its_own_status(document: dict[str, Any]) -> None:
    statuses = {str(code): status for code, (status, _) in PROBLEMS.items()}
    for name, call in calls(document):
        for status, answer in call["responses"].items():
            listed = answer["content"].get(MEDIA_TYPE, {}).get("examples", {})
            assert {statuses[code] for code in listed} <= {int(status)}, name


_OF_A_QUESTION = "unknown_run unknown_interrupt capability_required idempotency_conflict"
REFUSED: dict[str, str] = {
    "POST /runs": "unknown_graph unknown_node invalid_run_id invalid_input run_exists too_many_runs "
    "conversation_busy idempotency_conflict payload_too_large capability_required outside_reads",
    "POST /runs/{run_id}/respond": f"{_OF_A_QUESTION} already_answered withdrawn expired stale "
    "invalid_answer ambiguous_interrupt nothing_open run_finished not_root_cause",
    "POST /interrupts/{interrupt_id}/respond": f"{_OF_A_QUESTION} already_answered withdrawn stale "
    "expired invalid_answer run_finished not_root_cause not_assigned separation_of_duties claimed "
    "ambiguous_delegation not_rememberable grant_too_wide",
    "PATCH /interrupts/{interrupt_id}": f"{_OF_A_QUESTION} already_answered withdrawn not_running "
    "unknown_node natively_paused",
    "PATCH /runs/{run_id}/values": "unknown_run unknown_graph not_running stale invalid_input "
    "read_only_field capability_required idempotency_conflict",
    "POST /interrupts/{interrupt_id}/claim": f"{_OF_A_QUESTION} claimed not_claimable not_running",
    "POST /interrupts/{interrupt_id}/take-back": f"{_OF_A_QUESTION} not_held not_running",
    "POST /runs/{run_id}/pause": "unknown_run not_running unknown_node idempotency_conflict",
    "POST /runs/{run_id}/cancel": "unknown_run not_running idempotency_conflict",
    "POST /runs/{run_id}/messages": "unknown_run not_running unknown_node invalid_message queue_full "
    "action_not_allowed message_conflict",
    "POST /runs/{run_id}/retry": "unknown_run not_finished run_finished capability_required "
    "cannot_migrate invalid_input",
    "POST /runs/{run_id}/rewind": "unknown_run unknown_interrupt invalid_input gone",
    "GET /runs/{run_id}/events": "unknown_run gone too_many_runs",
    "GET /runs/{run_id}/result": "unknown_run not_finished",
    "POST /delegations": "capability_required idempotency_conflict",
    "DELETE /delegations/{delegation_id}": "unknown_delegation idempotency_conflict",
}
"""What these calls may refuse, shown to happen by tests of the core."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_says_with_which_codes_it_is_refused(document: dict[str, Any], name: str) -> None:
    answers = dict(calls(document))[name]["responses"].values()
    listed = {
        code for each in answers for code in each["content"].get(MEDIA_TYPE, {}).get("examples", {})
    }

    assert {*REFUSED[name].split()} - listed == set()


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (views.RunView, examples.RUN),
        (views.RunView, examples.LISTED_RUN),
        (views.RunView, examples.PAUSED_RUN),
        (views.RunView, examples.ENDING_RUN),
        (views.InterruptView, examples.INTERRUPT),
        (views.InterruptView, examples.LISTED_INTERRUPT),
        (views.Event, examples.EVENT),
        (views.Receipts, examples.RECEIPTS),
        (schemas.RunResult, examples.RESULT),
        (schemas.GraphSummary, graphs.EXAMPLE),
        (views.MessageReceipt, examples.MESSAGE_RECEIPT),
        (messages.MessagePage, examples.MESSAGE_PAGE),
        (views.Cleared, examples.CLEARED),
        (conversations.Reached, examples.REACHED),
        (conversations.Steered, examples.STEERED),
        (batch.BatchOutcome, examples.DONE_TO_MANY),
        (admin.Evicted, examples.EVICTED),
        (TranscriptItem, examples.SAID),
        (signin.Me, examples.ME),
        (signin.Me, examples.SIGNED_IN),
        (signin.SignedOut, examples.SIGNED_OUT),
    ],
)
def test_an_example_of_an_answer_is_one(model: type[BaseModel], example: dict[str, Any]) -> None:
    assert model.model_validate(example).model_dump(mode="json") == example


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
