"""Answering over HTTP: every row of the table of `respond`."""

from __future__ import annotations

from typing import Any

import pytest
from stack import Api, new_id, problem

YES = {"approved": True}
NO = {"approved": False}


async def test_an_answer_gets_a_receipt_and_the_run_goes_on(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    response = await api.http.post(
        f"/runs/{run_id}/respond", json={"responses": {gate: YES}, "note": "called them"}
    )
    (receipt,) = response.json()["receipts"]
    ended = await api.until(run_id, "completed")

    assert response.status_code == 200
    assert set(response.json()) == {"receipts"}
    assert set(receipt) == {"interrupt_id", "status", "answered_by", "accepted_at", "replayed"}
    assert (receipt["interrupt_id"], receipt["status"]) == (gate, "answered")
    assert (receipt["answered_by"], receipt["replayed"]) == ("local", False)
    assert receipt["accepted_at"].endswith("Z")
    assert ended["values"]["log"] == ["before", "after {'approved': True}"]


@pytest.mark.parametrize("form", ["responses", "interrupt_id", "response", "path"])
async def test_an_answer_has_four_forms(api: Api, form: str) -> None:
    run_id, (gate,) = await api.waiting("gated")
    path, body = {
        "responses": (f"/runs/{run_id}/respond", {"responses": {gate: YES}}),
        "interrupt_id": (f"/runs/{run_id}/respond", {"interrupt_id": gate, "response": YES}),
        "response": (f"/runs/{run_id}/respond", {"response": YES}),
        "path": (f"/interrupts/{gate}/respond", {"response": YES}),
    }[form]
    response = await api.http.post(path, json=body)

    assert response.status_code == 200, response.text
    assert [entry["interrupt_id"] for entry in response.json()["receipts"]] == [gate]


@pytest.mark.parametrize("answer", [None, False, 0, ""])
async def test_nothing_is_an_answer_too(api: Api, answer: object) -> None:
    run_id, (first, second) = await api.waiting("gates")
    by_path = await api.http.post(f"/interrupts/{first}/respond", json={"response": answer})
    by_id = await api.http.post(
        f"/runs/{run_id}/respond", json={"interrupt_id": second, "response": answer}
    )
    await api.until(run_id, "completed")

    assert (by_path.status_code, by_id.status_code) == (200, 200), by_path.text
    settled = await api.interrupt(first)
    assert (settled["status"], settled["answer"]) == ("answered", answer)


async def test_the_run_comes_with_the_receipts_on_demand(api: Api) -> None:
    _, (gate,) = await api.waiting("gated")
    response = await api.http.post(
        f"/interrupts/{gate}/respond", params={"view": "true"}, json={"response": YES}
    )

    assert set(response.json()) == {"receipts", "run"}
    assert response.json()["run"]["interrupts"] == []
    assert response.json()["run"]["values"]["decision"] == YES


async def test_the_same_answer_again_gets_the_first_receipt_also_after_the_end(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated")
    first = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    again = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    await api.until(run_id, "completed")
    after = await api.http.post(f"/runs/{run_id}/respond", json={"responses": {gate: YES}})

    (receipt,) = first.json()["receipts"]
    assert (again.status_code, after.status_code) == (200, 200)
    assert again.json()["receipts"] == [{**receipt, "replayed": True}]
    assert after.json()["receipts"] == [{**receipt, "replayed": True}]


async def test_another_answer_to_what_is_settled_is_refused_also_after_the_end(api: Api) -> None:
    run_id, (gate, other) = await api.waiting("gates")
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": 1})
    while_it_runs = await api.http.post(f"/interrupts/{gate}/respond", json={"response": 2})
    await api.http.post(f"/interrupts/{other}/respond", json={"response": 1})
    await api.until(run_id, "completed")
    after_the_end = await api.http.post(f"/interrupts/{gate}/respond", json={"response": 2})

    assert problem(while_it_runs, 409, "already_answered")["answered_by"] == "local"
    assert problem(after_the_end, 409, "already_answered")["run_status"] == "completed"
    assert (await api.interrupt(gate))["answer"] == 1


async def test_an_unknown_interrupt_takes_everything_else_in_the_call_with_it(api: Api) -> None:
    run_id, (gate, _) = await api.waiting("gates")
    unknown = f"{run_id}.{'0' * 16}"
    response = await api.http.post(
        f"/runs/{run_id}/respond", json={"responses": {gate: 1, unknown: 1}}
    )

    found = problem(response, 404, "unknown_interrupt")
    assert found["interrupt_id"] == unknown
    assert (await api.interrupt(gate))["status"] == "open"


async def test_the_interrupt_of_another_run_is_unknown_to_this_one(
    api: Api, standing: tuple[str, str]
) -> None:
    run_id, _ = await api.waiting("gated")
    _, foreign = standing
    response = await api.http.post(
        f"/runs/{run_id}/respond", json={"interrupt_id": foreign, "response": YES}
    )

    problem(response, 404, "unknown_interrupt")
    assert (await api.interrupt(foreign))["status"] == "open"


@pytest.mark.parametrize(
    "id_", ["nope", "a.b", f"a.{'A' * 16}", "no%20run.0123456789abcdef", "{run}.0000000000000000"]
)
async def test_an_id_that_no_interrupt_has_is_unknown(
    api: Api, standing: tuple[str, str], id_: str
) -> None:
    id_ = id_.format(run=standing[0])
    problem(await api.http.get(f"/interrupts/{id_}"), 404, "unknown_interrupt")
    response = await api.http.post(f"/interrupts/{id_}/respond", json={"response": 1})
    problem(response, 404, "unknown_interrupt")


async def test_a_run_that_there_is_not_cannot_be_answered(api: Api) -> None:
    id_ = f"{new_id('nobody')}.{'0' * 16}"
    by_run = await api.http.post("/runs/nobody/respond", json={"response": 1})
    by_id = await api.http.post(f"/interrupts/{id_}/respond", json={"response": 1})

    problem(by_run, 404, "unknown_run")
    problem(by_id, 404, "unknown_run")


async def test_an_answer_that_does_not_fit_is_told_where_and_the_question_stays(
    api: Api, standing: tuple[str, str]
) -> None:
    _, gate = standing
    response = await api.http.post(
        f"/interrupts/{gate}/respond", json={"response": {"approved": "maybe"}}
    )

    found = problem(response, 422, "invalid_answer")
    assert [entry["pointer"] for entry in found["errors"]] == ["/approved"]
    assert (await api.interrupt(gate))["status"] == "open"


async def test_who_lacks_the_capability_of_a_question_cannot_answer_it(api: Api) -> None:
    _, (gate,) = await api.waiting("guarded")
    headers = {"X-Abeyance-Principal": "bob", "X-Abeyance-Capabilities": "runs:respond"}
    refused = await api.http.post(
        f"/interrupts/{gate}/respond", json={"response": YES}, headers=headers
    )
    still = await api.interrupt(gate)
    headers["X-Abeyance-Capabilities"] = "runs:respond, payments:approve"
    accepted = await api.http.post(
        f"/interrupts/{gate}/respond", json={"response": YES}, headers=headers
    )

    assert problem(refused, 403, "capability_required")["capability"] == "payments:approve"
    assert still["status"] == "open"
    assert accepted.json()["receipts"][0]["answered_by"] == "bob"


async def test_an_answer_to_something_else_than_was_asked_is_stale(api: Api) -> None:
    _, (gate,) = await api.waiting("gated", {"amount": 3})
    shown = (await api.interrupt(gate))["digest"]
    stale = await api.http.post(
        f"/interrupts/{gate}/respond",
        json={"response": YES, "digests": {gate: "sha256:" + "0" * 64}},
    )
    fresh = await api.http.post(
        f"/interrupts/{gate}/respond", json={"response": YES, "digests": {gate: shown}}
    )

    assert problem(stale, 409, "stale")["digest"] == shown
    assert fresh.status_code == 200


async def test_an_answer_with_the_digest_of_another_question_is_stale(api: Api) -> None:
    run_id, (gate, other) = await api.waiting("gates")
    shown = {gate: (await api.interrupt(gate))["digest"]}
    bodies: list[dict[str, object]] = [
        {"interrupt_id": other, "response": 1, "digests": shown},
        {"responses": {other: 1}, "digests": shown},
    ]
    path = f"/runs/{run_id}/respond"
    refused = [await api.http.post(path, json=body) for body in bodies]
    # Somebody else is quicker, so that the answer without an id would go to the other question.
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": 1})
    refused.append(await api.http.post(path, json={"response": 2, "digests": shown}))
    still_open = await api.interrupt(other)
    accepted = await api.http.post(path, json={"response": 2})
    await api.until(run_id, "completed")
    refused.append(await api.http.post(path, json=bodies[0]))

    for response in refused:
        found = problem(response, 409, "stale")
        assert (found["interrupt_id"], found["answered"]) == (gate, [other])
    assert (still_open["status"], accepted.status_code) == ("open", 200)


async def test_an_answer_after_the_deadline_is_too_late(api: Api) -> None:
    run_id = await api.start("brief", {})
    await api.until(run_id, "halted")
    (gate,) = (await api.http.get(f"/runs/{run_id}/interrupts?status=expired")).json()["items"]
    response = await api.http.post(f"/interrupts/{gate['id']}/respond", json={"response": YES})

    found = problem(response, 410, "expired")
    assert found["deadline"].endswith("Z")
    assert found["ended_at"].endswith("Z")
    assert found["run_status"] == "halted"


async def test_an_answer_after_the_default_was_applied_is_told_the_default(api: Api) -> None:
    run_id = await api.start("defaulting", {})
    await api.until(run_id, "completed")
    (gate,) = (await api.http.get(f"/runs/{run_id}/interrupts?status=answered")).json()["items"]
    for answer in (YES, NO):
        response = await api.http.post(
            f"/interrupts/{gate['id']}/respond", json={"response": answer}
        )
        found = problem(response, 409, "already_answered")
        assert (found["answered_by"], found["answer"]) == ("timeout", NO)


async def test_an_answer_to_what_was_withdrawn_is_refused_with_the_reason(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated")
    await api.http.post(f"/runs/{run_id}/cancel", json={"reason": "not needed"})
    await api.until(run_id, "cancelled")
    response = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})

    found = problem(response, 409, "withdrawn")
    assert found["interrupt_status"] == "cancelled"
    assert found["run_status"] == "cancelled"
    assert found["ended_at"]


async def test_an_answer_without_an_id_needs_exactly_one_open_question(api: Api) -> None:
    run_id, gates = await api.waiting("gates")
    two = await api.http.post(f"/runs/{run_id}/respond", json={"response": 1})
    await api.http.post(f"/interrupts/{gates[0]}/respond", json={"response": 1})
    one = await api.http.post(f"/runs/{run_id}/respond", json={"response": 2})
    await api.until(run_id, "completed")
    none = await api.http.post(f"/runs/{run_id}/respond", json={"response": 3})

    open_ones = problem(two, 409, "ambiguous_interrupt")["open_interrupts"]
    assert [entry["id"] for entry in open_ones] == gates
    assert one.json()["receipts"][0]["interrupt_id"] == gates[1]
    assert problem(none, 409, "run_finished")["run_status"] == "completed"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"note": "x"}, ""),
        ({"interrupt_id": "x"}, ""),
        ({"responses": {"x": 1}, "response": 1}, ""),
        ({"responses": {"x": 1}, "interrupt_id": "x"}, ""),
        ({"responses": {}}, "/responses"),
        ({"interrupt_id": "", "response": 1}, "/interrupt_id"),
        ({"response": 1, "colour": 1}, "/colour"),
        ({"response": 1, "principal": {"subject": "root", "capabilities": ["*"]}}, "/principal"),
        ([], ""),
    ],
)
async def test_an_answer_of_no_form_is_refused(
    api: Api, standing: tuple[str, str], body: Any, pointer: str
) -> None:
    run_id, gate = standing
    response = await api.http.post(f"/runs/{run_id}/respond", json=body)

    found = problem(response, 422, "invalid_body")
    assert pointer in [entry["pointer"] for entry in found["errors"]]
    assert (await api.interrupt(gate))["status"] == "open"


@pytest.mark.parametrize("body", ["{}", '{"note": "x"}', '{"responses": {"x": 1}}', "null", ""])
async def test_a_body_without_a_response_answers_nothing(
    api: Api, standing: tuple[str, str], body: str
) -> None:
    _, gate = standing
    response = await api.http.post(
        f"/interrupts/{gate}/respond", content=body, headers={"Content-Type": "application/json"}
    )

    problem(response, 422, "invalid_body")
    assert (await api.interrupt(gate))["status"] == "open"
