"""Replays of every stored history on today's code: a run that waits survives a deploy."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporal_site import replay, replayer
from temporalio import workflow
from temporalio.client import WorkflowHistory

from abeyance import names, views
from abeyance.core.state import RunState
from abeyance.records.batch import Batch
from abeyance.workflows import continue_as_new, visibility
from abeyance.workflows.run import AgentRun
from abeyance.workflows.worker_functions import HAND_OVER, TELL, WorkerFunctions
from tests.replay import store
from tests.replay.scenarios import SCENARIOS

EVENTS = frozenset(
    f"EVENT_TYPE_{name}"
    for name in (
        "ACTIVITY_TASK_SCHEDULED",
        "ACTIVITY_TASK_STARTED",
        "ACTIVITY_TASK_COMPLETED",
        "ACTIVITY_TASK_CANCEL_REQUESTED",
        "ACTIVITY_TASK_CANCELED",
        "MARKER_RECORDED",
        "TIMER_STARTED",
        "TIMER_FIRED",
        "TIMER_CANCELED",
        "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
        "WORKFLOW_EXECUTION_CANCELED",
        "WORKFLOW_EXECUTION_CANCEL_REQUESTED",
        "WORKFLOW_EXECUTION_COMPLETED",
        "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
        "WORKFLOW_EXECUTION_FAILED",
        "WORKFLOW_EXECUTION_SIGNALED",
        "WORKFLOW_EXECUTION_STARTED",
        "WORKFLOW_EXECUTION_UPDATE_ACCEPTED",
        "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
        "WORKFLOW_PROPERTIES_MODIFIED",
    )
)
"""The event types that our runs cause; the server writes others by itself."""


FACTS = frozenset(
    {
        "interrupt.answered",
        "interrupt.cancelled",
        "interrupt.changed",
        "interrupt.claimed",
        "interrupt.deadline_edited",
        "interrupt.escalated",
        "interrupt.expired",
        "interrupt.held",
        "interrupt.opened",
        "interrupt.reassigned",
        "interrupt.released",
        "interrupt.reminded",
        "interrupt.reopened",
        "interrupt.revised",
        "interrupt.voted",
        "node.blocked",
        "node.unblocked",
        "message.delivered",
        "message.queued",
        "message.rejected",
        "message.returned",
        "signal.refused",
        "message.undelivered",
        "messages.cleared",
        "notification.failed",
        "run.awaiting_input",
        "run.migrated",
        "run.paused",
        "run.resumed",
        "run.values_edited",
    }
)
"""The record types of a run's own decisions. `STEPS` matches the records about its code."""
STEPS = re.compile(r"(node|tool)\.(started|finished|retrying|failed|stopped)|model\.turn|user\..*")


def label(path: Path) -> str:
    return path.name.removesuffix(store.ENDING)


def events_of(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(store.text(path))["events"]
    return events


def decoded(payload: dict[str, Any]) -> bytes:
    return base64.b64decode(payload["data"])


def all_events() -> Iterator[dict[str, Any]]:
    for path in store.stored():
        yield from events_of(path)


async def test_todays_code_replays_every_stored_history_and_ends_each_run_as_it_ended_with_all_facts(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    # A replay compares commands, so it does not notice a wrong result.
    results: list[dict[str, Any]] = []
    result_of = visibility.result_of

    def remember(state: RunState, left: Batch | None) -> dict[str, Any]:
        results.append(result_of(state, left))
        return results[-1]

    monkeypatch.setattr(visibility, "result_of", remember)
    recorded: set[str] = set()

    def note(batch: Batch) -> None:
        recorded.update(fact.type for fact in batch.facts)

    todays = replayer(WorkerFunctions({HAND_OVER: lambda _, batch: note(batch), TELL: note}))
    ended = 0
    for path in store.stored():
        with subtests.test(label(path)):
            results.clear()
            await todays.replay_workflow(store.unpacked(path))
            last = events_of(path)[-1]
            if last["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED":
                result = last["workflowExecutionCompletedEventAttributes"]["result"]
                (payload,) = result["payloads"]
                (today,) = results
                stored = json.loads(decoded(payload))
                # People rely on these two; the result may get more fields.
                assert (today["outcome"], today["values"]) == (stored["outcome"], stored["values"])
                ended += 1

    assert ended > 20, "too few of the stored runs have ended for this test to say anything"
    about_runs = {"run.started", *views.TERMINAL_EVENTS}
    assert {type_ for type_ in recorded - about_runs if not STEPS.fullmatch(type_)} == FACTS


def test_every_scenario_is_recorded_and_nothing_else_is() -> None:
    recorded = {store.scenario_of(path) for path in store.stored()}

    assert recorded == SCENARIOS.keys(), "python tests/replay/record.py records what is missing"


def test_every_kind_of_event_occurs() -> None:
    seen = {event["eventType"] for event in all_events()}

    assert not EVENTS - seen


def test_every_signal_and_every_update_of_a_run_occurs() -> None:
    definition = workflow._Definition.must_from_class(AgentRun)
    signals: set[str] = set()
    updates: set[str] = set()
    for path in store.stored():
        found = store.handled(path)
        signals |= found.signals
        updates |= found.updates

    assert signals == {name for name in definition.signals if name is not None}
    assert updates == {name for name in definition.updates if name is not None}


def test_the_status_is_the_one_search_attribute_that_a_run_sets() -> None:
    updated = {
        name
        for event in all_events()
        for name in event.get("upsertWorkflowSearchAttributesEventAttributes", {})
        .get("searchAttributes", {})
        .get("indexedFields", {})
    }

    assert updated == {names.STATUS}


def test_a_history_does_not_tell_who_recorded_it_and_where() -> None:
    for path in store.stored():
        text = store.text(path)

        assert "stackTrace" not in text, path.name
        # Payloads are base64, so an "@" can only be in the name of a process at a machine.
        assert "@" not in text, path.name
        assert set(_identities(json.loads(text))) == {store.RECORDER}, path.name


def test_all_histories_together_stay_small() -> None:
    assert sum(path.stat().st_size for path in store.stored()) < 500_000


def _another_answer(events: list[dict[str, Any]]) -> None:
    for event in events:
        if "workflowExecutionUpdateAcceptedEventAttributes" in event:
            request = event["workflowExecutionUpdateAcceptedEventAttributes"]["acceptedRequest"]
            (payload,) = request["input"]["args"]["payloads"]
            order = json.loads(decoded(payload))
            order["responses"] = {id_: {"approved": True} for id_ in order["responses"]}
            payload["data"] = base64.b64encode(json.dumps(order).encode()).decode()


async def test_a_history_in_which_the_run_did_otherwise_is_not_replayed() -> None:
    path = store.HISTORIES / f"answered-before-the-deadline{store.ENDING}"
    events = events_of(path)
    await replay(WorkflowHistory.from_json("as-it-was", json.dumps({"events": events})))
    _another_answer(events)

    with pytest.raises(workflow.NondeterminismError):
        await replay(WorkflowHistory.from_json("otherwise", json.dumps({"events": events})))


async def test_a_run_whose_last_local_result_came_beside_a_tick_is_replayed() -> None:
    # A query had held the result back (ADR 13): a random run's history that nobody can record at will.
    await replay(store.unpacked(store.FOUND / f"an-end-beside-a-tick{store.ENDING}"))


async def test_code_that_hands_over_at_another_moment_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(continue_as_new, "due", lambda *_, **__: None)
    name = "handed-over-between-nodes-while-its-start-waits"

    with pytest.raises(workflow.NondeterminismError):
        await replay(store.unpacked(store.HISTORIES / f"{name}.1{store.ENDING}"))


def _identities(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, each in value.items():
                if name == "identity":
                    yield each
                else:
                    yield from _identities(each)
        case list():
            for each in value:
                yield from _identities(each)
        case _:
            pass
