"""What was approved is what runs, whoever may do what; and nobody without `runs:read` is told values.

Where the rest of what was tried, and held, is tested:

| what was tried | tests |
|---|---|
| answers without the capability: by id, by run, without an id | here, tests/api/test_auth.py |
| the same by batch, by a filter, again under a key | here, tests/api/test_batch.py, test_keys.py |
| `principal`, `sender`, `actor`, `capabilities`, `started_by` in bodies | here |
| capabilities that are almost the right ones | test_gates.py, tests/security/test_perimeter.py |
| another's key, with the same or another answer; the key of a refused answer | tests/api/test_keys.py |
| keys of controls and of starts are each their owner's | tests/api/test_control_keys.py, test_keys.py |
| an open gate | test_gates.py |
| the elicitations of an MCP server | tests/agents/test_mcp_questions.py |
| an approval is bound to the tool and its arguments | tests/agents/test_agent_approvals.py |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
import pytest_asyncio
from command_line import Terminal
from gated_office import APPROVE, NO, PEOPLE, YES, Case, Office, office, refund
from stack import app_for, new_id, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Principal, Refusal, wire
from abeyance.api.app import create_app
from abeyance.cli.errors import ExitCode
from abeyance.errors import Code
from abeyance.settings import Settings

CONTROL = "runs:control"
BOTH = (CONTROL, APPROVE)
LARGE = {"amount": 888_888, "order_id": "MALLORY"}


@pytest_asyncio.fixture(scope="module")
async def place(
    temporal: TemporalClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Office]:
    async with office(temporal, tmp_path_factory.mktemp("approved")) as place:
        yield place


def principal(who: str) -> Principal:
    return Principal(subject=who, capabilities=PEOPLE[who])


async def ended(place: Office, case: Case) -> list[str]:
    """The log of the run, which has completed."""
    log: list[str] = (await place.view(case, "completed"))["values"]["log"]
    return log


async def next_question(place: Office, case: Case, before: Mapping[str, Any]) -> dict[str, Any]:
    """What a run asks once that is something else than it was."""
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


# Who answers


async def test_nobody_answers_a_gate_without_its_capability(place: Office) -> None:
    case = await place.standing("refund", "open")
    async with place.untouched(case):
        for call in answers_by_every_form(case, YES):
            for who in ("clerk", "responder"):
                await place.refused(who, (APPROVE,), *call)
            for who in ("intern", "operator", "auditor", "odd"):
                await place.refused(who, ("runs:respond",), *call)


@pytest.mark.parametrize("stage", ["before", "paid"])
async def test_a_static_question_is_answered_with_null_and_edited_only_by_who_may_change_the_course(
    place: Office, stage: str
) -> None:
    case = await place.standing("refund", stage)
    version = (await place.view(case))["version"]
    async with place.untouched(case):
        for values in (LARGE, {}):
            for call in answers_by_every_form(case, {"values": values, "version": version}):
                await place.refused("clerk", BOTH, *call)
                await place.refused("approver", (CONTROL,), *call)


async def approved_before_pay(place: Office, **fields: Any) -> tuple[Case, dict[str, Any]]:
    """A run that was approved, and stops before it pays, because its starter wants it so."""
    case = await place.asking(await place.start(interrupt_before=["pay"], **fields))
    before = await place.view(case)
    await place.approve(case)
    asked = await next_question(place, case, before)
    assert asked["name"] == "interrupt_before"
    return place.seen(case, {"interrupts": [asked]}), asked


async def test_who_only_answers_cannot_edit_what_was_approved_at_a_stop_before_it_is_paid(
    place: Office,
) -> None:
    case, asked = await approved_before_pay(place)
    edit = {"values": LARGE, "version": asked["payload"]["version"]}
    async with place.untouched(case):
        for call in answers_by_every_form(case, edit):
            await place.refused("clerk", BOTH, *call)
            await place.refused("approver", (CONTROL,), *call)
    await place.approve(case, "clerk", None)

    assert await ended(place, case) == ["assessed 250", "PAID 250 to A-7"]


async def test_who_edits_at_a_stop_what_was_approved_has_it_approved_again(place: Office) -> None:
    case, asked = await approved_before_pay(place)
    edit = {"values": {"amount": 300}, "version": asked["payload"]["version"]}
    await place.approve(case, "chief", edit)
    again = await next_question(place, case, {"interrupts": [asked]})
    assert (again["name"], again["prompt"]) == ("approve", "Refund 300 for A-7?")
    await place.approve(case)
    stopped = await next_question(place, case, {"interrupts": [again]})
    assert stopped["name"] == "interrupt_before"
    await place.approve(case, "clerk", None)

    assert await ended(place, case) == ["assessed 250", "PAID 300 to A-7"]


async def failed_to_pay(place: Office) -> Case:
    """A run that was approved, and asks what to do, because the payment failed."""
    case = await place.asking(await place.start(input={"order_id": "broke"}, on_error="interrupt"))
    before = await place.view(case)
    await place.approve(case)
    asked = await next_question(place, case, before)
    assert asked["name"] == "error"
    return place.seen(case, {"interrupts": [asked]})


async def test_who_only_answers_neither_skips_nor_repeats_what_was_approved_and_failed(
    place: Office,
) -> None:
    case = await failed_to_pay(place)
    async with place.untouched(case):
        for answer in (
            {"action": "skip"},
            {"action": "skip", "patch": {"log": ["PAID"]}},
            {"action": "retry"},
        ):
            for call in answers_by_every_form(case, answer):
                await place.refused("clerk", BOTH, *call)
                await place.refused("approver", (CONTROL,), *call)
    await place.approve(case, "clerk", {"action": "fail"})

    assert (await place.view(case, "failed"))["reason"] == "ValueError: the bank hung up"
    assert place.paid.count(case.run_id) == 1


async def test_who_may_change_the_course_has_it_done_again_or_skipped(place: Office) -> None:
    case = await failed_to_pay(place)
    await place.approve(case, "chief", {"action": "retry"})
    asked = await next_question(place, case, {"interrupts": [{"id": case.interrupts[0]}]})
    assert asked["name"] == "error"
    await place.approve(case, "chief", {"action": "skip", "patch": {"log": ["paid by hand"]}})

    assert await ended(place, case) == ["assessed 250", "paid by hand"]
    assert place.paid.count(case.run_id) == 2


async def test_what_failed_before_the_gate_may_be_tried_again_but_not_skipped(
    place: Office,
) -> None:
    case = await place.asking(await place.start(input={"order_id": "boom"}, on_error="interrupt"))
    async with place.untouched(case):
        skip = {"response": {"action": "skip"}}
        await place.refused("clerk", BOTH, "POST", f"/runs/{case.run_id}/respond", skip)
    await place.approve(case, "clerk", {"action": "retry"})
    asked = await next_question(place, case, {"interrupts": [{"id": case.interrupts[0]}]})

    assert asked["name"] == "error"


async def test_answers_of_one_call_are_refused_together_for_all_that_is_missing(
    place: Office,
) -> None:
    case = await place.asking(await place.start("beside"))
    asked = {entry["name"]: entry["id"] for entry in (await place.view(case))["interrupts"]}
    both = {"responses": {asked["note"]: 888_888, asked["approve"]: YES}}
    async with place.untouched(case):
        await place.refused("clerk", (APPROVE,), "POST", f"/runs/{case.run_id}/respond", both)


# What is shown is what runs


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


@pytest.mark.parametrize("graph", ["refund", "coded"])
async def test_what_is_edited_between_the_yes_and_the_payment_is_asked_again(
    place: Office, graph: str
) -> None:
    case = await place.asking(await place.start(graph))
    run = f"/runs/{case.run_id}"
    await place.done("operator", "POST", f"{run}/pause", {})
    first = {"interrupt_id": case.interrupts[0], "response": YES}
    await place.done("approver", "POST", f"{run}/respond", first, Idempotency_Key="yes")
    edit = {"patch": LARGE, "version": (await place.view(case))["version"]}
    await place.done("chief", "PATCH", f"{run}/values", edit)
    await place.done("operator", "POST", f"{run}/resume", {})
    asked = await next_question(place, case, {"interrupts": [{"id": case.interrupts[0]}]})
    again = await place.done("approver", "POST", f"{run}/respond", first, Idempotency_Key="yes")
    late = await place.done("approver", "POST", f"{run}/respond", first)
    await place.refused("clerk", (APPROVE,), "POST", f"{run}/respond", {"response": YES})

    assert asked["prompt"] == "Refund 888888 for MALLORY?"
    # The first yes is good for nothing else than what it was given to.
    assert [told["receipts"][0]["replayed"] for told in (again, late)] == [True, True]
    assert case.run_id not in place.paid
    await place.approve(case)
    assert await ended(place, case) == ["assessed 250", "PAID 888888 to MALLORY"]


async def test_a_no_to_what_was_edited_is_a_no(place: Office) -> None:
    case = await place.standing_apart("refund", "answered")
    run = f"/runs/{case.run_id}"
    edit = {"patch": LARGE, "version": (await place.view(case))["version"]}
    await place.done("chief", "PATCH", f"{run}/values", edit)
    await place.done("operator", "POST", f"{run}/resume", {})
    await next_question(place, case, {"interrupts": []})
    await place.approve(case, answer=NO)

    assert await ended(place, case) == ["assessed 250"]


async def test_it_holds_over_the_hand_over_to_a_new_history(place: Office) -> None:
    case = await place.start(limits={"continue_as_new_after": 3})
    case = await place.asking(case)
    run = f"/runs/{case.run_id}"
    handle = place.site.temporal.get_workflow_handle(case.run_id)
    await place.done("operator", "POST", f"{run}/pause", {})
    await place.approve(case)
    edit = {"patch": {"amount": 300}, "version": (await place.view(case))["version"]}
    async with place.untouched(case):
        await place.refused("operator", (APPROVE,), "PATCH", f"{run}/values", edit)
        rerun = {"action": "rerun", "target": "pay"}
        await place.refused("intern", BOTH, "POST", f"{run}/steer", rerun)
    await place.done("chief", "PATCH", f"{run}/values", edit)
    await place.done("operator", "POST", f"{run}/resume", {})
    asked = await next_question(place, case, {"interrupts": [{"id": case.interrupts[0]}]})
    described = await handle.describe()
    first = described.raw_description.workflow_execution_info.first_run_id

    assert described.run_id != first
    assert asked["prompt"] == "Refund 300 for A-7?"
    assert (await place.view(case))["guarded_by"] == [APPROVE]
    await place.approve(case)
    assert await ended(place, case) == ["assessed 250", "PAID 300 to A-7"]


@pytest.mark.parametrize("approved_first", [True, False])
async def test_who_may_not_approve_cannot_change_what_was_shown_by_answering_something_else(
    place: Office, approved_first: bool
) -> None:
    case = await place.asking(await place.start("beside"))
    asked = {entry["name"]: entry for entry in (await place.view(case))["interrupts"]}
    assert asked["approve"]["prompt"] == "Refund 250 for A-7?"
    answers = [("approver", "approve", YES), ("clerk", "note", 888_888)]
    for who, name, answer in answers if approved_first else reversed(answers):
        await place.done(
            who, "POST", f"/interrupts/{asked[name]['id']}/respond", {"response": answer}
        )
    again = await next_question(place, case, {"interrupts": list(asked.values())})

    assert again["prompt"] == "Refund 888888 for A-7?"
    assert case.run_id not in place.paid
    await place.approve(case)
    assert await ended(place, case) == ["PAID 888888 to A-7"]


async def test_whoever_is_quicker_what_is_paid_was_shown_to_who_approved_it(place: Office) -> None:
    """An answer and an edit under way together: either the answer is to what the edit made, or it is
    stale, or what it allowed is asked again.
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
            problem(edited, 409 if edited.status_code == 409 else 404, edited.json()["code"])
            assert answered.is_success
            paid = "PAID 250 to A-7"
        assert await ended(place, case) == ["assessed 250", paid]


@pytest.mark.parametrize("key", [None, "yes"])
async def test_an_answer_that_is_sent_again_approves_no_later_run_of_the_same_id(
    place: Office, key: str | None
) -> None:
    """Somebody who may only start runs waits for the retries of the approver's program."""
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


# Who may


@pytest.mark.parametrize("who", ["chief", "auditor"])
@pytest.mark.parametrize("door", ["steer", "messages", "pause-and-send", "conversation", "batch"])
async def test_who_may_approve_and_control_changes_values_by_every_door(
    place: Office, door: str, who: str
) -> None:
    case = await place.asking(await place.start())
    said = {"action": "update_state", "params": {"patch": {"amount": 300}}}
    path = {
        "conversation": f"/conversations/{case.talk}/steer",
        "batch": "/batch/steer",
    }.get(door, f"/runs/{case.run_id}/{door}")
    told = await place.done(
        who, "POST", path, {"run_ids": [case.run_id], "body": said} if door == "batch" else said
    )
    assert told.get("failed", 0) == 0
    if door == "pause-and-send":
        await place.done(who, "POST", f"/runs/{case.run_id}/resume", {})

    async def is_shown() -> bool:
        (asked,) = (await place.view(case))["interrupts"]
        return bool(asked["prompt"] == "Refund 300 for A-7?")

    await eventually(is_shown)
    await place.approve(case)
    assert await ended(place, case) == ["assessed 250", "PAID 300 to A-7"]


@pytest.mark.parametrize("who", ["chief", "auditor"])
async def test_who_may_approve_and_control_edits_deadlines_and_leads_a_run_on(
    place: Office, who: str
) -> None:
    case = await place.asking(await place.start())
    path = f"/interrupts/{case.interrupts[0]}"
    moved = await place.done(who, "PATCH", path, {"timeout": "P9D", "on_timeout": "goto:assess"})
    led = {"timeout": "PT0.2S", "on_timeout": "goto:assess"}
    await place.done(who, "POST", f"/runs/{case.run_id}/pause", led)
    asked = await next_question(place, case, {"interrupts": [{"id": case.interrupts[0]}]})

    assert moved["on_timeout"] == "goto:assess"
    assert asked["prompt"] == "Refund 250 for A-7?"
    assert (await place.view(case))["values"]["log"] == ["assessed 250"] * 2


async def test_what_was_approved_once_is_repeated_only_with_its_gate(place: Office) -> None:
    case = await place.standing_apart("refund", "paid")
    before = await place.view(case)
    again = {"action": "rerun"}
    async with place.untouched(case):
        for who, lacking in {
            "intern": BOTH,
            "operator": (APPROVE,),
            "approver": (CONTROL,),
        }.items():
            for number in range(3):
                said = {**again, "message_id": f"{who}-{number}"}
                await place.refused(who, lacking, "POST", f"/runs/{case.run_id}/steer", said)
    await place.done("chief", "POST", f"/runs/{case.run_id}/steer", again)
    asked = await next_question(place, case, before)

    assert (asked["name"], asked["prompt"]) == ("approve", "Refund 250 for A-7?")
    assert place.paid.count(case.run_id) == 1


async def test_a_directive_does_not_wait_behind_a_gate_whoever_sends_it(place: Office) -> None:
    case = await place.standing("refund", "open")
    said = {"action": "update_state", "target": "pay", "params": {"patch": LARGE}}
    async with place.untouched(case):
        for door in ("messages", "pause-and-send"):
            path = f"/runs/{case.run_id}/{door}"
            problem(await place.call("chief", "POST", path, said), 422, "action_not_allowed")
    await place.done("chief", "POST", f"/runs/{case.run_id}/steer", said)
    view = await place.view(case)
    assert [note["code"] for note in view["rejected"]] == ["action_not_allowed"]


async def test_to_talk_takes_steering_and_nothing_more(place: Office) -> None:
    case = await place.asking(await place.start())
    for door in ("steer", "messages"):
        path = f"/runs/{case.run_id}/{door}"
        for said in ({"text": "hello"}, {"action": "continue"}, {"action": "defer", "text": "x"}):
            await place.done("intern", "POST", path, said)
            for who in ("operator", "auditor"):
                await place.refused(who, ("runs:steer",), "POST", path, said)
    await place.done("operator", "POST", f"/runs/{case.run_id}/steer", {"action": "pause"})
    assert (await place.view(case, "paused"))["pause"]["actor"] == "operator"
    await place.done("operator", "POST", f"/runs/{case.run_id}/resume", {})
    await place.approve(case)
    assert await ended(place, case) == ["assessed 250", "PAID 250 to A-7"]


async def test_control_is_enough_where_nobody_is_asked_for_a_capability(place: Office) -> None:
    case = await place.asking(await place.start("open"))
    run = f"/runs/{case.run_id}"
    edit = {"patch": {"amount": 5}, "version": (await place.view(case))["version"]}
    edited = await place.done("operator", "PATCH", f"{run}/values", edit)
    path = f"/interrupts/{case.interrupts[0]}"
    moved = await place.done("operator", "PATCH", path, {"timeout": "P1D"})
    await place.done("operator", "POST", f"{run}/messages", {"action": "rerun"})
    await next_question(place, case, {"interrupts": [{"id": case.interrupts[0]}]})
    async with place.untouched(case):
        await place.refused("intern", (CONTROL,), "POST", f"{run}/steer", {"action": "rerun"})

    assert (edited["values"]["amount"], edited["guarded_by"]) == (5, [])
    assert moved["deadline"] is not None


async def test_a_message_that_was_refused_leaves_its_id_and_key_to_others(place: Office) -> None:
    case = await place.asking(await place.start())
    path = f"/runs/{case.run_id}/messages"
    said = {"action": "update_state", "params": {"patch": {"amount": 300}}}
    refused = await place.call("intern", "POST", path, said, Idempotency_Key="k")
    problem(refused, 403, "capability_required")
    taken = await place.done("chief", "POST", path, said, Idempotency_Key="k")
    again = await place.call("intern", "POST", path, said, Idempotency_Key="k")
    problem(again, 403, "capability_required")
    other = await place.call("intern", "POST", path, {"text": "hello"}, Idempotency_Key="k")
    problem(other, 409, "message_conflict")

    assert (taken["message_id"], taken["duplicate"]) == ("k", False)


# By the command line, and by Python


@pytest.fixture
def terminal(
    place: Office, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(place.api.url, capsys, monkeypatch)


async def test_the_command_line_tells_what_is_missing(place: Office, terminal: Terminal) -> None:
    case = await place.standing("refund", "open")
    patch = '{"patch": {"amount": 1000000}}'
    run, (id_,) = case.run_id, case.interrupts
    course = [
        ("steer", run, "--action", "update_state", "--params", patch),
        ("steer", run, "--action", "update_state", "--params", patch, "--target", "pay"),
        ("steer", run, "--action", "rerun"),
        ("steer", run, "--action", "go_back"),
        ("steer", run, "--action", "skip"),
        ("pause", run, "--timeout", "1s", "--on-timeout", "goto:pay"),
        ("edit", run, "amount=1000000"),
        ("deadline", id_, "1s"),
        ("deadline", id_, "none"),
    ]
    async with place.untouched(case):
        for who in ("intern", "operator", "approver"):
            terminal.set("ABEYANCE_TOKEN", who)
            for command in course:
                code, out, err = await asyncio.to_thread(terminal.call, *command)
                assert (code, out) == (ExitCode.REFUSED, ""), (command, out, err)
                assert "capability_required" in err
                for name in {*BOTH} - {*PEOPLE[who]}:
                    assert repr(name) in " ".join(err.split()), (command, err)
        terminal.set("ABEYANCE_TOKEN", "intern")
        for command in (("pause", run), ("steer", run, "--action", "pause")):
            code, _, err = await asyncio.to_thread(terminal.call, *command)
            assert (code, repr(CONTROL) in err) == (ExitCode.REFUSED, True)
        terminal.set("ABEYANCE_TOKEN", "clerk")
        code, _, err = await asyncio.to_thread(terminal.call, "respond", id_, "--approve")
        assert (code, repr(APPROVE) in err) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize("who", ["intern", "operator", "approver"])
@pytest.mark.parametrize("stage", ["open", "answered", "paid"])
async def test_the_client_of_python_is_told_what_is_missing(
    place: Office, stage: str, who: str
) -> None:
    case = await place.standing("refund", stage)
    client, run = place.site.client, case.run_id
    may = {"capabilities": PEOPLE[who]}
    version = (await place.view(case))["version"]

    def said(**message: Any) -> wire.SteerMessage:
        return wire.SteerMessage(sender=who, message_id=new_id(), **may, **message)

    patch = {"params": {"patch": LARGE}}
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.run(run, place.site.graphs["refund"]).edit_values(
            LARGE, version=version, principal=principal(who)
        ),
        lambda: client.run(run).send_message(said(action="update_state", target="pay", **patch)),
        lambda: client.run(run).send_message(said(action="rerun")),
        lambda: client.run(run).pause_and_send_message(said(action="skip")),
        *(
            lambda id_=id_: client.run(run).edit_deadline(id_, timeout=1, principal=principal(who))
            for id_ in case.interrupts
        ),
    ]
    async with place.untouched(case):
        for call in calls:
            with pytest.raises(Refusal) as refused:
                await call()
            assert refused.value.code is Code.CAPABILITY_REQUIRED
            assert refused.value.details["capabilities"] == sorted({*BOTH} - {*PEOPLE[who]})


@pytest.mark.parametrize("who", ["intern", "operator", "approver"])
async def test_the_signals_of_python_lead_no_run_past_a_gate(place: Office, who: str) -> None:
    case = await place.asking(await place.start())
    client, run = place.site.client, case.run_id
    before = await place.view(case)
    may = {"capabilities": PEOPLE[who]}
    order = wire.Pause(actor=who, timeout=1, on_timeout="goto:pay", reason="past it", **may)
    patch = {"patch": LARGE}
    message = wire.SteerMessage(sender=who, action="update_state", params=patch, **may)
    await client.run(run).control(order)
    await client.run(run).signal_message(message)
    after = await place.view(case)
    (refused,) = await place.site.events(run, "signal.refused")

    assert (refused["signal"], refused["code"]) == ("pause", Code.CAPABILITY_REQUIRED)
    assert [note["code"] for note in after["rejected"]] == [Code.CAPABILITY_REQUIRED]
    assert (after["status"], after["values"]) == ("awaiting-input", before["values"])


# What guards a run is known


async def test_what_guards_a_run_is_shown(place: Office) -> None:
    for graph in ("refund", "coded", "nested", "staffed", "beside"):
        listed = await place.done("chief", "GET", f"/graphs/{graph}")
        assert listed["guarded_by"] == [APPROVE]
    assert (await place.done("chief", "GET", "/graphs/open"))["guarded_by"] == []
    for graph in ("refund", "coded", "nested", "staffed"):
        # Long before anybody is asked.
        view = await place.view(await place.standing(graph, "before"))
        assert view["guarded_by"] == [APPROVE]


async def test_it_is_known_of_a_run_whose_graph_this_api_does_not_serve(
    place: Office, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = await place.standing("coded", "before")
    tokens, queue = place.tokens_file, place.site.settings.task_queue
    harmless = refund([])
    for graphs in ({}, {"coded": harmless}):
        settings = Settings(tokens_file=tokens, task_queue=queue)
        app = create_app(settings, graphs, place.site.client)
        async with served(app) as elsewhere:
            other = Office(elsewhere, place.site, place.paid, tokens)
            version = (await place.view(case))["version"]
            async with place.untouched(case):
                for who in ("intern", "operator"):
                    lacking = {*BOTH} - {*PEOPLE[who]}
                    led = {"timeout": "PT1S", "on_timeout": "goto:pay"}
                    run = f"/runs/{case.run_id}"
                    await other.refused(who, lacking, "POST", f"{run}/pause", led)
                    await other.refused(who, lacking, "POST", f"{run}/steer", {"action": "skip"})
                    edit = {"patch": LARGE, "version": version}
                    await other.refused(who, lacking, "PATCH", f"{run}/values", edit)


async def test_it_is_known_where_no_worker_is_up(place: Office) -> None:
    site = Site(place.site.temporal, refund([]), patience=3)
    async with served(app_for(site, tokens_file=place.tokens_file)) as api:
        alone = Office(api, site, [], place.tokens_file)
        async with site.worker():
            case = await alone.asking(await alone.start())
        view = await alone.view(case)
        run = f"/runs/{case.run_id}"
        for who in ("intern", "operator"):
            lacking = {*BOTH} - {*PEOPLE[who]}
            await alone.refused(who, lacking, "POST", f"{run}/steer", {"action": "skip"})
            await alone.refused(who, lacking, "POST", f"{run}/pause-and-send", {"action": "rerun"})
            edit = {"patch": LARGE, "version": 2}
            await alone.refused(who, lacking, "PATCH", f"{run}/values", edit)
            led = {"timeout": "PT1S", "on_timeout": "goto:pay"}
            await alone.refused(who, lacking, "POST", f"{run}/pause", led)
        await alone.refused("intern", (CONTROL,), "POST", f"{run}/steer", {"action": "pause"})
        async with site.worker():
            await alone.approve(await alone.asking(case))
            log = await ended(alone, case)

    assert (view["degraded"], view["guarded_by"]) == (True, [APPROVE])
    assert log == ["assessed 250", "PAID 250 to A-7"]


# Who may not read


async def test_who_may_not_read_is_told_the_id_and_the_status_of_what_they_control(
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


async def test_who_may_not_read_is_told_no_values_by_a_refusal(place: Office) -> None:
    case = await place.standing("refund", "before")
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


# Who somebody is stands in no body


NAMES = {
    "principal": {"subject": "chief", "capabilities": ["*"]},
    "sender": "chief",
    "actor": "chief",
    "capabilities": ["*"],
    "started_by": "chief",
    "guarded_by": [],
}


@pytest.mark.parametrize("name", NAMES)
async def test_a_body_does_not_say_who_sends_it(place: Office, name: str) -> None:
    case = await place.standing("refund", "open")
    run, (id_,) = f"/runs/{case.run_id}", case.interrupts
    many, told = {"run_ids": [case.run_id]}, {name: NAMES[name]}
    said, start = {"text": "hello"}, {"graph": "refund", "input": {}}
    async with place.untouched(case):
        for method, path, body in (
            ("POST", "/runs", {**start, **told}),
            ("POST", f"{run}/steer", {**said, **told}),
            ("POST", f"{run}/messages", {**said, **told}),
            ("POST", f"{run}/pause-and-send", {**said, **told}),
            ("POST", f"/conversations/{case.talk}/steer", {**said, **told}),
            ("POST", "/batch/steer", {**many, "body": {**said, **told}}),
            ("POST", "/batch/steer", {**many, "body": said, **told}),
            ("POST", f"{run}/pause", told),
            ("POST", f"{run}/resume", told),
            ("POST", f"{run}/cancel", told),
            ("POST", f"/conversations/{case.talk}/pause", told),
            ("POST", "/batch/pause", {**many, "body": told}),
            ("POST", f"{run}/respond", {"response": YES, **told}),
            ("POST", f"/interrupts/{id_}/respond", {"response": YES, **told}),
            ("POST", "/batch/respond", {**many, "body": {"response": YES, **told}}),
            ("PATCH", f"{run}/values", {"patch": LARGE, "version": 2, **told}),
            ("PATCH", f"/interrupts/{id_}", {"timeout": "P9D", **told}),
        ):
            problem(await place.call("chief", method, path, body), 422, "invalid_body")
