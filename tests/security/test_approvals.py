"""A run does only what its approver was shown, and a caller without `runs:read` gets no values.

Other attacks on approvals, and the tests that show how they fail:

| attack | tests |
|---|---|
| every operation at every moment of a run, by every caller | tests/core/test_authority.py |
| an edit, a retry or a skip behind a gate, which is asked again | tests/core/test_gates*.py |
| answers without the capability: by id, by run, without an id, in a batch | here |
| `principal`, `sender`, `actor`, `capabilities`, `started_by` in bodies | here |
| capabilities that are almost the right ones | test_gates.py, tests/security/test_perimeter.py |
| another's key, with the same or another answer; a refused answer's key | tests/core/test_keys.py |
| another caller's key of a control or of a start | tests/api/test_control_keys.py, test_keys.py |
| an open gate | test_gates.py |
| the elicitations of an MCP server | tests/agents/test_mcp_questions.py |
| an approval of another tool or of other arguments | tests/agents/test_agent_approvals.py |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from gated_office import APPROVE, PEOPLE, YES, Case, Office, office
from stack import problem
from temporal_site import eventually
from temporalio.client import Client as TemporalClient

from abeyance import Principal, commands
from abeyance.errors import Code

CONTROL = "runs:control"
BOTH = (CONTROL, APPROVE)
LARGE = {"amount": 888_888, "order_id": "MALLORY"}


@pytest_asyncio.fixture(scope="module")
async def place(
    temporal: TemporalClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Office]:
    async with office(temporal, tmp_path_factory.mktemp("approvals")) as place:
        yield place


def principal(who: str) -> Principal:
    return Principal(subject=who, capabilities=PEOPLE[who])


async def ended(place: Office, case: Case) -> list[str]:
    """Wait until the run has completed, and return its log."""
    log: list[str] = (await place.view(case, "completed"))["values"]["log"]
    return log


async def next_question(place: Office, case: Case) -> dict[str, Any]:
    """Wait until a run asks another question, and return it."""
    before = {"interrupts": [{"id": case.interrupts[0]}]}
    await eventually(lambda: place.is_asking_another(case, before))
    (asked,) = (await place.view(case))["interrupts"]
    found: dict[str, Any] = asked
    return found


def answers_by_every_form(case: Case, answer: Any) -> list[tuple[str, str, dict[str, Any]]]:
    id_, run = case.interrupts[0], case.run_id
    return [
        ("POST", f"/interrupts/{id_}/respond", {"response": answer}),
        ("POST", f"/runs/{run}/respond", {"response": answer}),
        ("POST", f"/runs/{run}/respond", {"interrupt_id": id_, "response": answer}),
        ("POST", f"/runs/{run}/respond", {"responses": {id_: answer}}),
        ("POST", "/batch/respond", {"run_ids": [run], "body": {"response": answer}}),
        ("POST", "/batch/respond", {"run_ids": [run], "body": {"responses": {id_: answer}}}),
    ]


# Answers


async def test_nobody_answers_a_gate_without_its_capability(place: Office) -> None:
    case = await place.standing("open")
    async with place.untouched(case):
        for call in answers_by_every_form(case, YES):
            for who in ("clerk", "responder"):
                await place.refused(who, (APPROVE,), *call)
            for who in ("intern", "operator", "auditor", "odd"):
                await place.refused(who, ("runs:respond",), *call)


# The run does what was shown


async def test_an_edit_of_what_is_asked_makes_stale_what_was_shown(place: Office) -> None:
    case = await place.asking(await place.start())
    view = await place.view(case)
    (shown,) = view["interrupts"]
    edit = {"patch": {"amount": 300}, "version": view["version"]}
    await place.done("chief", "PATCH", f"/runs/{case.run_id}/values", edit)
    old = {"response": YES, "digests": {shown["id"]: shown["digest"]}}
    refused = await place.call("approver", "POST", f"/runs/{case.run_id}/respond", old)
    (asked,) = (await place.view(case))["interrupts"]
    new = {"response": YES, "digests": {asked["id"]: asked["digest"]}}
    await place.done("approver", "POST", f"/runs/{case.run_id}/respond", new)

    assert problem(refused, 409, "stale")["digest"] == asked["digest"] != shown["digest"]
    assert (asked["id"], asked["prompt"]) == (shown["id"], "Refund 300 for A-7?")
    assert await ended(place, case) == ["assessed 250", "PAID 300 to A-7"]


async def test_an_edit_between_the_yes_and_the_payment_reopens_the_gate(
    place: Office,
) -> None:
    case = await place.asking(await place.start(limits={"continue_as_new_after": 3}))
    run = f"/runs/{case.run_id}"
    await place.done("operator", "POST", f"{run}/pause", {})
    first = {"interrupt_id": case.interrupts[0], "response": YES}
    await place.done("approver", "POST", f"{run}/respond", first, Idempotency_Key="yes")
    edit = {"patch": LARGE, "version": (await place.view(case))["version"]}
    async with place.untouched(case):
        await place.refused("operator", (APPROVE,), "PATCH", f"{run}/values", edit)
        await place.refused("intern", BOTH, "PATCH", f"{run}/values", edit)
    await place.done("chief", "PATCH", f"{run}/values", edit)
    await place.done("operator", "POST", f"{run}/resume", {})
    asked = await next_question(place, case)
    again = await place.done("approver", "POST", f"{run}/respond", first, Idempotency_Key="yes")
    late = await place.done("approver", "POST", f"{run}/respond", first)
    await place.refused("clerk", (APPROVE,), "POST", f"{run}/respond", {"response": YES})

    assert await place.site.executions(case.run_id) > 1
    assert asked["prompt"] == "Refund 888888 for MALLORY?"
    assert (await place.view(case))["guarded_by"] == [APPROVE]
    # The first yes counts only for what was shown with it.
    assert [told["receipts"][0]["replayed"] for told in (again, late)] == [True, True]
    assert case.run_id not in place.paid
    await place.approve(case)
    assert await ended(place, case) == ["assessed 250", "PAID 888888 to MALLORY"]


async def test_a_payment_was_shown_to_its_approver_even_in_a_race_with_an_edit(
    place: Office,
) -> None:
    """An answer and an edit come at once: either the answer counts for the edited values, or it is
    stale, or the run asks again about what it allowed.
    """
    for amount in (301, 302, 303):
        case = await place.asking(await place.start())
        run = f"/runs/{case.run_id}"
        view = await place.view(case)
        (shown,) = view["interrupts"]
        answer = {"response": YES, "digests": {shown["id"]: shown["digest"]}}
        edit = {"patch": {"amount": amount}, "version": view["version"]}
        answered, edited = await asyncio.gather(
            place.call("approver", "POST", f"{run}/respond", answer),
            place.call("chief", "PATCH", f"{run}/values", edit),
        )
        view = await place.view(case, "awaiting-input", "completed")
        paid = f"PAID {amount} to A-7"
        if edited.is_success:
            (asked,) = view["interrupts"]
            assert asked["prompt"] == f"Refund {amount} for A-7?"
            await place.approve(case)
        else:
            # The answer came first: the payment is being made, or has ended the run.
            late = {"not_stopped": 409, "not_running": 404}
            problem(edited, late[edited.json()["code"]], edited.json()["code"])
            assert answered.is_success
            paid = "PAID 250 to A-7"
        assert await ended(place, case) == ["assessed 250", paid]


@pytest.mark.parametrize("key", [None, "yes"])
async def test_an_answer_that_is_sent_again_approves_no_later_run_of_the_same_id(
    place: Office, key: str | None
) -> None:
    """A caller who may only start runs counts on the retries of the approver's program."""
    case = await place.asking(await place.start())
    call = ("POST", f"/interrupts/{case.interrupts[0]}/respond", {"response": YES})
    headers = {} if key is None else {"Idempotency_Key": key}
    await place.done("approver", *call, **headers)
    await ended(place, case)
    again = {"graph": "refund", "input": LARGE, "run_id": case.run_id, "reuse": True}
    await place.done("clerk", "POST", "/runs", again)
    await place.view(case, "awaiting-input")
    problem(await place.call("approver", *call, **headers), 404, "unknown_interrupt")
    (asked,) = (await place.view(case))["interrupts"]

    assert (asked["prompt"], place.paid.count(case.run_id)) == ("Refund 888888 for MALLORY?", 1)


# The rights to change a run


async def test_an_approver_with_control_edits_values_and_deadlines(
    place: Office,
) -> None:
    case = await place.asking(await place.start())
    path = f"/interrupts/{case.interrupts[0]}"
    edit = {"patch": {"amount": 300}, "version": (await place.view(case))["version"]}
    await place.done("auditor", "PATCH", f"/runs/{case.run_id}/values", edit)
    later = {"timeout": "P9D", "on_timeout": "goto:assess"}
    moved = await place.done("auditor", "PATCH", path, later)
    led = {"timeout": "PT0.2S", "on_timeout": "goto:assess"}
    await place.done("auditor", "POST", f"/runs/{case.run_id}/pause", led)
    asked = await next_question(place, case)

    assert moved["on_timeout"] == "goto:assess"
    assert asked["prompt"] == "Refund 300 for A-7?"
    assert (await place.view(case))["values"]["log"] == ["assessed 250", "assessed 300"]


async def test_control_is_enough_where_nobody_is_asked_for_a_capability(place: Office) -> None:
    case = await place.asking(await place.start("open"))
    run = f"/runs/{case.run_id}"
    edit = {"patch": {"amount": 5}, "version": (await place.view(case))["version"]}
    edited = await place.done("operator", "PATCH", f"{run}/values", edit)
    path = f"/interrupts/{case.interrupts[0]}"
    moved = await place.done("operator", "PATCH", path, {"timeout": "P1D"})
    led = {"timeout": "PT0.2S", "on_timeout": "goto:assess"}
    await place.done("operator", "POST", f"{run}/pause", led)
    await next_question(place, case)
    async with place.untouched(case):
        await place.refused("intern", (CONTROL,), "POST", f"{run}/pause", led)

    assert (edited["values"]["amount"], edited["guarded_by"]) == (5, [])
    assert moved["deadline"] is not None


async def test_a_message_that_was_refused_leaves_its_id_and_key_to_others(place: Office) -> None:
    case = await place.asking(await place.start())
    path = f"/runs/{case.run_id}/messages"
    said = {"text": "two parts"}
    refused = await place.call("operator", "POST", path, said, Idempotency_Key="k")
    problem(refused, 403, "capability_required")
    taken = await place.done("chief", "POST", path, said, Idempotency_Key="k")
    again = await place.call("operator", "POST", path, said, Idempotency_Key="k")
    problem(again, 403, "capability_required")
    other = await place.call("intern", "POST", path, {"text": "hello"}, Idempotency_Key="k")
    problem(other, 409, "message_conflict")

    assert (taken["message_id"], taken["duplicate"]) == ("k", False)


async def test_the_signals_of_python_lead_no_run_past_a_gate(place: Office) -> None:
    case = await place.asking(await place.start())
    client, run = place.site.client, case.run_id
    before = await place.view(case)
    may = {"capabilities": PEOPLE["operator"]}
    order = commands.Pause(
        actor="operator", timeout=1, on_timeout="goto:pay", reason="past it", **may
    )
    await client.run(run).control(order)
    after = await place.view(case)
    (refused,) = await place.site.events(run, "signal.refused")

    assert (refused["signal"], refused["code"]) == ("pause", Code.CAPABILITY_REQUIRED)
    assert (after["status"], after["values"]) == ("awaiting-input", before["values"])


# Callers without read rights


async def test_a_controller_without_read_rights_gets_ids_and_statuses_only(
    place: Office,
) -> None:
    case = await place.asking(await place.start())
    run = f"/runs/{case.run_id}"
    version = (await place.view(case))["version"]
    told = [
        await place.done("controller", "POST", f"{run}/pause?wait=30s", {}),
        await place.done("warden", "PATCH", f"{run}/values", {"patch": LARGE, "version": version}),
        await place.done("controller", "POST", f"{run}/resume?wait=30s", {}),
        await place.done(
            "warden", "PATCH", f"/interrupts/{case.interrupts[0]}", {"timeout": "P9D"}
        ),
        await place.done("controller", "POST", f"{run}/cancel?wait=30s", {}),
    ]
    started = [await place.call("starter", "POST", "/runs", start_body(case)) for _ in "12"]

    statuses = ["paused", "paused", "awaiting-input"]
    assert told[:3] == [{"run_id": case.run_id, "status": status} for status in statuses]
    assert told[3] == {"id": case.interrupts[0], "run_id": case.run_id, "status": "open"}
    assert {*told[4]} == {"run_id", "status"}
    assert [response.status_code for response in started] == [201, 200]
    assert all({*response.json()} == {"run_id", "status"} for response in started)
    view = await place.call("warden", "POST", f"{run}/respond?view=true", {"response": YES})
    assert problem(view, 403, "capability_required")["capabilities"] == ["runs:read"]


def start_body(case: Case) -> dict[str, Any]:
    return {"graph": "refund", "input": {}, "run_id": f"{case.run_id}-2"}


async def test_a_refusal_tells_no_values_to_a_caller_without_read_rights(place: Office) -> None:
    case = await place.standing("before")
    edit = {"response": {"values": LARGE, "version": 99}}
    path = f"/runs/{case.run_id}/respond"
    answers = {who: await place.call(who, "POST", path, edit) for who in ("chief", "warden")}
    batch = {"run_ids": [case.run_id], "body": edit}
    many = await place.done("warden", "POST", "/batch/respond", batch)
    patch = {"patch": LARGE, "version": 99}
    patched = await place.call("warden", "PATCH", f"/runs/{case.run_id}/values", patch)

    told = {who: problem(answer, 409, "stale") for who, answer in answers.items()}
    assert told["chief"]["values"]["order_id"] == "A-7"
    assert "values" not in told["warden"]
    assert many["results"][0]["code"] == "stale"
    problem(patched, 409, "stale")
    assert all("A-7" not in text for text in (answers["warden"].text, str(many), patched.text))


# Identities in bodies


NAMES = {
    "principal": {"subject": "chief", "capabilities": ["*"]},
    "sender": "chief",
    "actor": "chief",
    "capabilities": ["*"],
    "started_by": "chief",
    "answered_by": "chief",
    "subject": "chief",
    "guarded_by": [],
}


async def test_a_body_does_not_say_who_sends_it(place: Office) -> None:
    case = await place.standing("open")
    run, (id_,) = f"/runs/{case.run_id}", case.interrupts
    many = {"run_ids": [case.run_id]}
    said, start = {"text": "hello"}, {"graph": "refund", "input": {}}
    async with place.untouched(case):
        for method, path, body in (
            ("POST", "/runs", {**start, **NAMES}),
            ("POST", f"{run}/steer", {**said, **NAMES}),
            ("POST", f"{run}/messages", {**said, **NAMES}),
            ("POST", f"{run}/pause-and-send", {**said, **NAMES}),
            ("POST", f"/conversations/{case.talk}/steer", {**said, **NAMES}),
            ("POST", "/batch/steer", {**many, "body": {**said, **NAMES}}),
            ("POST", "/batch/steer", {**many, "body": said, **NAMES}),
            ("POST", f"{run}/pause", NAMES),
            ("POST", f"{run}/resume", NAMES),
            ("POST", f"{run}/cancel", NAMES),
            ("POST", f"/conversations/{case.talk}/pause", NAMES),
            ("POST", "/batch/pause", {**many, "body": NAMES}),
            ("POST", f"{run}/respond", {"response": YES, **NAMES}),
            ("POST", f"/interrupts/{id_}/respond", {"response": YES, **NAMES}),
            ("POST", "/batch/respond", {**many, "body": {"response": YES, **NAMES}}),
            ("PATCH", f"{run}/values", {"patch": LARGE, "version": 2, **NAMES}),
            ("PATCH", f"/interrupts/{id_}", {"timeout": "P9D", **NAMES}),
        ):
            errors = problem(await place.call("chief", method, path, body), 422, "invalid_body")
            refused = {entry["pointer"].rpartition("/")[2] for entry in errors["errors"]}
            assert refused >= {*NAMES}, (path, errors)
