"""The event of a history to which a reset must lead, so that a question is open again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.resets import Continued, Point, beginning, explained, point
from abeyance.records.batch import Rewound

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
BEGUN = ("execution_started", "task_scheduled", "task_started", "task_completed")
"""The run asks the question in its first task, which began with three events."""
NEXT = ("task_scheduled", "task_started", "task_completed")
_NAMES = {
    "execution_started": "WORKFLOW_EXECUTION_STARTED",
    "task_scheduled": "WORKFLOW_TASK_SCHEDULED",
    "task_started": "WORKFLOW_TASK_STARTED",
    "task_completed": "WORKFLOW_TASK_COMPLETED",
    "task_failed": "WORKFLOW_TASK_FAILED",
    "activity": "ACTIVITY_TASK_SCHEDULED",
    "activity_ended": "ACTIVITY_TASK_COMPLETED",
    "signal": "WORKFLOW_EXECUTION_SIGNALED",
    "cancel": "WORKFLOW_EXECUTION_CANCEL_REQUESTED",
    "timer": "TIMER_STARTED",
    "due": "TIMER_FIRED",
    "answer": "WORKFLOW_EXECUTION_UPDATE_ACCEPTED",
    "terminated": "WORKFLOW_EXECUTION_TERMINATED",
    "completed": "WORKFLOW_EXECUTION_COMPLETED",
    "continued": "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
    "recorded": "MARKER_RECORDED",
    "announced": "MARKER_RECORDED",
    "local node": "MARKER_RECORDED",
}
_RAN = {"recorded": "record", "announced": "announce", "local node": "graph.node"}


def history(*names: str) -> list[HistoryEvent]:
    return [_event(number, name) for number, name in enumerate(names, 1)]


def _event(number: int, name: str) -> HistoryEvent:
    event = HistoryEvent(event_id=number, event_type=EventType.Value(f"EVENT_TYPE_{_NAMES[name]}"))
    if _NAMES[name] == "MARKER_RECORDED":
        ran = {"activity_type": _RAN[name]}
        data = Payloads(payloads=[Payload(data=json.dumps(ran).encode())])
        event.marker_recorded_event_attributes.details["data"].CopyFrom(data)
    if name == "continued":
        attributes = event.workflow_execution_continued_as_new_event_attributes
        attributes.new_execution_run_id = "the next"
    return event


@pytest.mark.parametrize(
    ("after", "found"),
    [
        # An answer came: the events of the first task stay, and the next task is done again.
        ((*NEXT, "answer"), Point(event=7, keeps_task=True)),
        (("timer", "recorded", *NEXT, "answer"), Point(event=9, keeps_task=True)),
        # Other code has ended, and its result stays.
        (("activity_ended", *NEXT), Point(event=8, keeps_task=True)),
        # An event that would end the question again does not stay: the first task is done again.
        (("signal", *NEXT), Point(event=4, keeps_task=False)),
        (("cancel", *NEXT), Point(event=4, keeps_task=False)),
        (("timer", "due", *NEXT), Point(event=4, keeps_task=False)),
        (("recorded", "task_scheduled", "signal", *NEXT[1:]), Point(event=4, keeps_task=False)),
        (("announced", "recorded", "cancel", *NEXT), Point(event=4, keeps_task=False)),
        # But not if the task took an answer or ran a local node: these would be lost.
        (("answer", "timer", "due", *NEXT), Point(event=10, keeps_task=True)),
        (("local node", "due", *NEXT), Point(event=9, keeps_task=True)),
        (("answer", *NEXT), Point(event=8, keeps_task=True)),
        # Temporal ended the run, while it waited or before a worker went on.
        (("terminated",), Point(event=4, keeps_task=False)),
        (("activity_ended", "task_scheduled", "terminated"), Point(event=7, keeps_task=True)),
        # Nothing has happened since.
        ((), None),
        (("activity", "recorded"), None),
        # The question waits in a later execution.
        (("recorded", "continued"), Continued(execution="the next")),
    ],
)
def test_the_point_at_which_a_question_is_open(
    after: tuple[str, ...], found: Point | Continued | None
) -> None:
    assert point(history(*BEGUN, *after), 3, "q", by_deadline=False) == found


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ((*NEXT, "answer"), Point(event=7, keeps_task=True)),
        (("timer", "due", *NEXT), Point(event=9, keeps_task=True)),
        (("recorded", "continued"), Continued(execution="the next")),
    ],
)
def test_a_task_in_which_a_deadline_passed_is_not_done_again(
    after: tuple[str, ...], found: Point | Continued
) -> None:
    assert point(history(*BEGUN, *after), 3, "q", by_deadline=True) == found


@pytest.mark.parametrize("after", [("signal", *NEXT), ("cancel", *NEXT), ("terminated",)])
def test_a_question_that_came_with_a_passed_deadline_and_was_ended_by_an_order_has_no_point(
    after: tuple[str, ...],
) -> None:
    with pytest.raises(
        Refusal, match="because of an answer, a local node, a route or a deadline"
    ) as refused:
        point(history(*BEGUN, *after), 3, "q", by_deadline=True)

    assert refused.value.code is Code.GONE


def test_the_task_is_found_although_it_was_tried_before() -> None:
    tried = ("execution_started", "task_scheduled", "task_started", "task_failed")
    told = history(*tried, *NEXT, "timer", *NEXT, "answer")

    assert point(told, 6, "q", by_deadline=False) == Point(event=11, keeps_task=True)


@pytest.mark.parametrize(
    "after",
    [("answer", "signal", *NEXT), ("answer", "terminated"), ("local node", "cancel", *NEXT)],
)
def test_a_question_that_came_with_an_answer_and_was_ended_by_an_order_has_no_point(
    after: tuple[str, ...],
) -> None:
    with pytest.raises(Refusal, match="earlier question") as refused:
        point(history(*BEGUN, *after), 3, "q", by_deadline=False)

    assert refused.value.code is Code.GONE


def test_a_task_that_no_worker_has_begun_has_to_be_done_first() -> None:
    with pytest.raises(Unavailable):
        point(
            history(*BEGUN, "answer", "activity_ended", "task_scheduled", "task_started"),
            3,
            "q",
            by_deadline=False,
        )


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (history(*BEGUN, "activity"), Point(event=4, keeps_task=False)),
        # A signal from before any worker had the run stays.
        (
            history("execution_started", "task_scheduled", "signal", "terminated"),
            Point(event=4, keeps_task=False),
        ),
        (history("execution_started", "task_scheduled"), None),
        (history("execution_started", "task_scheduled", "task_started"), None),
    ],
)
def test_the_beginning_is_before_the_first_task(
    told: list[HistoryEvent], found: Point | None
) -> None:
    assert beginning(told) == found


@pytest.mark.parametrize(
    ("reason", "actor", "data"),
    [
        ('{"by": "ada", "to": "r.1", "key": null}', "ada", {"to": "r.1"}),
        ("a bad deploy", "temporal", {"reason": "a bad deploy"}),
        ('["no", "object"]', "temporal", {"reason": '["no", "object"]'}),
    ],
)
def test_the_reason_of_a_reset_names_who_rewound_the_run(
    reason: str, actor: str, data: dict[str, Any]
) -> None:
    event = _event(5, "task_failed")
    event.event_time.FromDatetime(NOON)
    failed = event.workflow_task_failed_event_attributes
    failed.cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
    failed.failure.message = reason
    tried = history(*BEGUN, "task_failed")

    told = explained(Rewound(at=3, salt="s", execution="b"), [*tried, event])

    assert (told.actor, told.data, told.time) == (actor, data, NOON)
