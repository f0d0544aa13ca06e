"""A caller who may not approve a run's gate cannot change the course of the run.

These are the attacks of a security review, by each door and at the stages of a run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from gated_office import APPROVE, PEOPLE, YES, Case, Office, office, open_graph, refund
from stack import app_for, new_id, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.api.app import create_app
from abeyance.settings import Settings

CONTROL = "runs:control"
LARGE = {"patch": {"amount": 1_000_000, "order_id": "MALLORY"}}
DEADLINES: tuple[dict[str, Any], ...] = (
    {"timeout": "PT1S"},
    {"deadline": None},
    {"timeout": "P9D", "on_timeout": "halt"},
    {"timeout": "PT1S", "on_timeout": "goto:pay"},
)
# tests/core/test_authority.py has a table of what each operation requires at each stage, and
# tests/docs/test_security_page.py one of what each call requires. Here each stage is tried once.


@pytest_asyncio.fixture(scope="module")
async def place(
    temporal: TemporalClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Office]:
    async with office(temporal, tmp_path_factory.mktemp("gates")) as place:
        yield place


def missing(who: str) -> tuple[str, ...]:
    """Return what a caller lacks to change the course of a run that can ask for an approval."""
    return tuple({CONTROL, APPROVE} - {*PEOPLE[who]})


def led_by(door: str, case: Case, node: str) -> tuple[str, str, dict[str, Any]]:
    """Return the call that pauses a run, to lead it to a node."""
    order = {"timeout": "PT1S", "on_timeout": f"goto:{node}"}
    match door:
        case "conversation":
            return "POST", f"/conversations/{case.talk}/pause", order
        case "batch":
            return "POST", "/batch/pause", {"run_ids": [case.run_id], "body": order}
        case _:
            return "POST", f"/runs/{case.run_id}/pause", order


OUTSIDERS = ("intern", "operator", "approver")


def lacking_by(door: str, who: str) -> tuple[str, ...]:
    lacking = missing(who)
    # The API refuses a batch as a whole before it looks at any of the runs.
    return (CONTROL,) if door == "batch" and CONTROL in lacking else lacking


@pytest.mark.parametrize(
    ("door", "stage"), [("pause", "open"), ("conversation", "answered"), ("batch", "paid")]
)
async def test_a_pause_that_leads_on_takes_control_and_the_capability_of_the_gate(
    place: Office, door: str, stage: str
) -> None:
    case = await place.standing(stage)
    async with place.untouched(case):
        for who in OUTSIDERS:
            for node in ("pay", "assess", "END"):
                await place.refused(who, lacking_by(door, who), *led_by(door, case, node))


@pytest.mark.parametrize("stage", ["open", "paid"])
async def test_an_edit_takes_control_and_the_capability_of_the_gate(
    place: Office, stage: str
) -> None:
    case = await place.standing(stage)
    version = (await place.view(case))["version"]
    async with place.untouched(case):
        for who in (*OUTSIDERS, "clerk", "odd"):
            patch = {"patch": {"amount": 999_999, "order_id": "MALLORY"}, "version": version}
            await place.refused(who, missing(who), "PATCH", f"/runs/{case.run_id}/values", patch)
            for change in DEADLINES:
                for id_ in case.interrupts:
                    await place.refused(who, missing(who), "PATCH", f"/interrupts/{id_}", change)


async def test_a_starter_cannot_choose_a_way_around_a_gate(place: Office) -> None:
    run_id = new_id()
    body = {
        "graph": "refund",
        "input": {"order_id": "boom", "amount": 5000},
        "on_error": "goto:pay",
        "run_id": run_id,
    }
    found = problem(await place.call("chief", "POST", "/runs", body), 422, "invalid_body")
    assert [entry["pointer"] for entry in found["errors"]] == ["/on_error"]
    problem(await place.call("chief", "GET", f"/runs/{run_id}"), 404, "unknown_run")


async def test_no_option_of_a_start_leads_past_a_gate(place: Office) -> None:
    """Neither limits nor breakpoints nor a question about a failure lead past it."""
    wishes: dict[str, Any] = {
        "limits": {
            "max_visits": 1,
            "max_guard_turns": 0,
            "max_parallel_visits": 1,
            "max_queue_size": 1,
            "pause_timeout": "PT0.2S",
            "continue_as_new_after": 3,
            "allowed_actions": ["skip"],
        },
        "interrupt_before": ["assess", "approve", "pay"],
        "interrupt_after": ["assess", "pay"],
        "on_error": "interrupt",
    }
    case = await place.asking(await place.start(**wishes))
    answers = 0
    while not (view := await place.view(case, "awaiting-input"))["interrupts"][0][
        "requested_capability"
    ]:
        await place.done("clerk", "POST", f"/runs/{case.run_id}/respond", {"response": None})
        answers += 1
        await eventually(lambda: place.is_asking_another(case, view))
    await place.refused(
        "clerk", (APPROVE,), "POST", f"/runs/{case.run_id}/respond", {"response": YES}
    )

    assert (view["interrupts"][0]["prompt"], answers) == ("Refund 250 for A-7?", 3)
    assert case.run_id not in place.paid


# The guards of a run


async def test_a_run_shows_the_capabilities_that_guard_it(place: Office) -> None:
    for graph, guards in (("refund", [APPROVE]), ("open", [])):
        assert (await place.done("chief", "GET", f"/graphs/{graph}"))["guarded_by"] == guards
    # The guards are known long before the run asks for an approval.
    assert (await place.view(await place.standing("before")))["guarded_by"] == [APPROVE]


async def test_an_api_knows_the_guards_of_a_graph_that_it_does_not_serve(
    place: Office, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = await place.standing("before")
    tokens, queue = place.tokens_file, place.site.settings.task_queue
    for graphs in ({}, {"refund": open_graph()}):
        settings = Settings(tokens_file=tokens, task_queue=queue)
        app = create_app(settings, graphs, place.site.client)
        async with served(app) as elsewhere:
            other = Office(elsewhere, place.site, place.paid, tokens)
            version = (await place.view(case))["version"]
            async with place.untouched(case):
                for who in ("intern", "operator"):
                    lacking = missing(who)
                    led = {"timeout": "PT1S", "on_timeout": "goto:pay"}
                    run = f"/runs/{case.run_id}"
                    await other.refused(who, lacking, "POST", f"{run}/pause", led)
                    edit = {**LARGE, "version": version}
                    await other.refused(who, lacking, "PATCH", f"{run}/values", edit)


async def test_the_guards_of_a_run_hold_without_a_worker(place: Office) -> None:
    site = Site(place.site.temporal, refund([]), patience=3)
    async with served(app_for(site, tokens_file=place.tokens_file)) as api:
        alone = Office(api, site, [], place.tokens_file)
        async with site.worker():
            case = await alone.asking(await alone.start())
        view = await alone.view(case)
        run = f"/runs/{case.run_id}"
        for who in ("intern", "operator"):
            lacking = missing(who)
            edit = {**LARGE, "version": 2}
            await alone.refused(who, lacking, "PATCH", f"{run}/values", edit)
            led = {"timeout": "PT1S", "on_timeout": "goto:pay"}
            await alone.refused(who, lacking, "POST", f"{run}/pause", led)
        async with site.worker():
            await alone.approve(await alone.asking(case))
            log = (await alone.view(case, "completed"))["values"]["log"]

    assert (view["degraded"], view["guarded_by"]) == (False, [APPROVE])
    assert log == ["assessed 250", "PAID 250 to A-7"]
