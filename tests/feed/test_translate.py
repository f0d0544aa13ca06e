"""Single events of a history, as Temporal writes them in cases that are rare on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import ActivityType, Payload, Payloads
from temporalio.api.enums.v1 import EventType, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import (
    ActivityFailureInfo,
    ApplicationFailureInfo,
    CanceledFailureInfo,
    Failure,
    TimeoutFailureInfo,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1 import UserMetadata

from abeyance import views
from abeyance.history.event_translation import HistoryState, released, sources, translate

RUN = HistoryState(run_id="r", execution="00000000-0000-0000-0000-000000000007")
NODE = "graph:g;node:n:2"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def event(number: int, type_: str, summary: Any = None, **attributes: Any) -> HistoryEvent:
    fields: dict[str, Any] = {f"{type_.lower()}_event_attributes": attributes}
    made = HistoryEvent(
        event_id=number,
        event_type=EventType.Value(f"EVENT_TYPE_{type_}"),
        event_time=Timestamp(seconds=int(NOON.timestamp()) + number),
        **fields,
    )
    if summary is not None:
        made.user_metadata.CopyFrom(UserMetadata(summary=payload(summary)))
    return made


def payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def payloads(value: Any) -> Payloads:
    return Payloads(payloads=[payload(value)])


def told(*events: HistoryEvent) -> list[views.Event]:
    """What a history of these events tells, up to its end."""
    found: list[views.Event] = []
    known = RUN
    for each in events:
        values: Sequence[Any] = [json.loads(source.data) for source in sources(each)]
        more, known = translate(each, values, known)
        found += more
    more, known = released(known)
    return found + more


def scheduled(number: int, address: Any = NODE, name: str = "g.n") -> HistoryEvent:
    return event(number, "ACTIVITY_TASK_SCHEDULED", address, activity_type=ActivityType(name=name))


def local(number: int, report: Any = None, **rest: Any) -> HistoryEvent:
    about = {"activity_type": "g.n", "backoff": None, **rest.pop("about", {})}
    details = {"data": payloads(about)}
    if report is not None:
        details["result"] = payloads(report)
    return event(
        number, "MARKER_RECORDED", NODE, marker_name="core_local_activity", details=details, **rest
    )


def facts(number: int, *types: str) -> HistoryEvent:
    rows: list[Any] = [
        {"type": type_, "time": NOON.isoformat(), "address": None, "actor": None, "data": {}}
        for type_ in types
    ]
    return event(
        number,
        "WORKFLOW_PROPERTIES_MODIFIED",
        upserted_memo={"fields": {"facts": payload(rows), "summary": payload({"open": 0})}},
    )


CANCELED = Failure(message="gone", canceled_failure_info=CanceledFailureInfo())
TIMED_OUT = Failure(
    message="activity ScheduleToClose timeout",
    cause=Failure(message="the last attempt's own trouble"),
    timeout_failure_info=TimeoutFailureInfo(
        timeout_type=TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE
    ),
)
BUG = Failure(message="cannot decode", application_failure_info=ApplicationFailureInfo(type="X"))


def wrapped(cause: Failure) -> Failure:
    return Failure(message="activity", cause=cause, activity_failure_info=ActivityFailureInfo())


@pytest.mark.parametrize(
    ("ending", "type_", "data"),
    [
        (
            event(6, "ACTIVITY_TASK_FAILED", scheduled_event_id=5, failure=BUG),
            "node.failed",
            {"code": "node_failed", "message": "cannot decode"},
        ),
        (
            event(6, "ACTIVITY_TASK_TIMED_OUT", scheduled_event_id=5, failure=TIMED_OUT),
            "node.failed",
            {"code": "node_failed", "message": "activity ScheduleToClose timeout"},
        ),
        (event(6, "ACTIVITY_TASK_CANCELED", scheduled_event_id=5), "node.stopped", {}),
    ],
)
def test_an_activity_that_ends_without_a_report_is_told_by_how_it_ended(
    ending: HistoryEvent, type_: str, data: Mapping[str, Any]
) -> None:
    start, end = told(scheduled(5), ending)

    assert (start.type, end.type) == ("node.started", type_)
    assert (start.address, end.address) == (NODE, NODE)
    assert end.data == data


def test_the_end_of_a_call_is_told_with_how_it_ended_where_a_worker_said_so() -> None:
    address = "graph:g;node:n;agent:clerk;tool:pay:c1"
    start = scheduled(5, address, "g.clerk.pay")
    for about, data in (({"tool_status": "denied"}, {"outcome": "denied"}), ({}, {})):
        result = payloads({"outcome": {"kind": "finished", **about}})
        _, end = told(
            start, event(6, "ACTIVITY_TASK_COMPLETED", scheduled_event_id=5, result=result)
        )
        assert (end.type, end.address, end.data) == ("tool.finished", address, data)


def test_an_outcome_that_this_reader_does_not_know_is_left_to_the_facts() -> None:
    completed = event(
        6,
        "ACTIVITY_TASK_COMPLETED",
        scheduled_event_id=5,
        result=payloads({"outcome": {"kind": "dreaming"}}),
    )

    assert [each.type for each in told(scheduled(5), completed)] == ["node.started"]


def ended(number: int, kind: str) -> HistoryEvent:
    """The end of the activity that the event before was about."""
    result = payloads({"outcome": {"kind": kind}})
    return event(number, "ACTIVITY_TASK_COMPLETED", scheduled_event_id=number - 1, result=result)


@pytest.mark.parametrize(
    "blocked",
    [[scheduled(4), ended(5, "blocked")], [local(5, {"outcome": {"kind": "blocked"}})]],
    ids=["activity", "local"],
)
def test_a_blocked_visit_that_goes_on_in_another_activity_has_one_start(
    blocked: list[HistoryEvent],
) -> None:
    stopped_and_resumed = [ended(9, "stopped"), scheduled(11), ended(12, "finished")]
    events = told(*blocked, facts(6, "node.blocked"), scheduled(8), *stopped_and_resumed)

    assert [each.type for each in events] == [
        "node.started",
        "node.blocked",
        "node.stopped",
        "node.started",
        "node.finished",
    ]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (NODE, "g.n.route"),
        (f"{NODE};tool:pay:call_1", "g.n"),
        ("pay a bill", "g.n"),
        (17, "g.n"),
        (None, "g.n"),
    ],
)
def test_an_activity_that_is_no_visit_of_a_node_makes_no_event(address: Any, name: str) -> None:
    report = {"outcome": {"kind": "failed", "code": "x", "message": "y"}}
    rest = [
        event(6, "ACTIVITY_TASK_COMPLETED", scheduled_event_id=5, result=payloads(report)),
        event(7, "ACTIVITY_TASK_FAILED", scheduled_event_id=5),
        event(8, "ACTIVITY_TASK_TIMED_OUT", scheduled_event_id=5),
        event(9, "ACTIVITY_TASK_CANCELED", scheduled_event_id=5),
    ]

    assert told(scheduled(5, address, name), *rest) == []


def test_a_visit_of_a_nested_graph_is_told_under_its_own_address() -> None:
    address = "graph:outer;node:inner;graph:nested;node:n"
    (start,) = told(scheduled(5, address, "nested.n"))

    assert start.address == address


def test_a_local_visit_is_told_when_it_is_over_with_the_time_at_which_it_began() -> None:
    report = {"outcome": {"kind": "finished"}}
    began = {"seconds": int(NOON.timestamp()) + 3, "nanos": 500_000_000}
    start, end = told(local(9, report, about={"original_schedule_time": began}))
    late = {"seconds": int(NOON.timestamp()) + 3_600, "nanos": 0}
    clamped, _ = told(local(9, report, about={"original_schedule_time": late}))

    assert (start.type, end.type) == ("node.started", "node.finished")
    assert start.time == NOON.replace(second=3, microsecond=500_000)
    assert end.time == clamped.time == NOON.replace(second=9)


def test_an_attempt_of_a_local_visit_that_is_followed_by_another_is_not_told() -> None:
    again = {"backoff": {"seconds": 60, "nanos": 0}}

    assert told(local(5, failure=BUG, about=again)) == []


def test_a_local_visit_that_broke_or_was_stopped_is_told_so() -> None:
    for failure in (BUG, wrapped(BUG)):
        _, failed = told(local(5, failure=failure))
        assert (failed.type, failed.data["message"]) == ("node.failed", "cannot decode")
    for failure in (CANCELED, wrapped(CANCELED)):
        _, stopped = told(local(5, failure=failure))
        assert stopped.type == "node.stopped"


def test_markers_of_others_make_no_event() -> None:
    assert told(event(5, "MARKER_RECORDED", marker_name="core_patch")) == []


def test_facts_are_told_before_the_visits_that_their_task_starts() -> None:
    timer = event(8, "TIMER_STARTED")
    task = [scheduled(5), scheduled(6, "graph:g;node:m", "g.m"), facts(7, "a", "b"), timer]
    alone = told(*task)
    # Whether more follows changes neither what is told of the task nor the cursors of it.
    followed = told(*task, event(9, "WORKFLOW_TASK_SCHEDULED"), facts(10, "c"))

    assert [each.type for each in alone] == ["a", "b", "node.started", "node.started"]
    assert followed[:4] == alone
    assert [each.type for each in followed[4:]] == ["c"]
    assert [each.id for each in followed] == sorted({each.id for each in followed})
    assert [each.time.second for each in alone] == [0, 0, 5, 6]


def test_what_a_local_visit_started_in_its_task_is_told_after_it() -> None:
    finished = {"outcome": {"kind": "finished"}}
    types = [
        each.type
        for each in told(
            facts(5, "a"), scheduled(6), facts(7, "b"), local(8, finished), facts(9, "c")
        )
    ]

    assert types == ["a", "b", *["node.started"] * 2, "node.finished", "c"]


def test_after_a_reset_cursors_are_larger_than_all_that_were_handed_out_before() -> None:
    begun = event(1, "WORKFLOW_EXECUTION_STARTED")
    begun.workflow_execution_started_event_attributes.input.CopyFrom(payloads({"generation": 4}))
    back = event(
        4,
        "WORKFLOW_TASK_FAILED",
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    )
    failing = event(4, "WORKFLOW_TASK_FAILED")
    before = told(begun, facts(5_000, "late"))
    after = told(begun, back, facts(6, "anew"))
    retried = told(begun, failing, facts(6, "on"))

    assert after[0] == before[0]
    assert after[1].id > before[1].id > retried[1].id > before[0].id


def test_an_end_of_which_nothing_is_known_is_told_all_the_same() -> None:
    for type_, ended, data in (
        ("WORKFLOW_EXECUTION_COMPLETED", "run.completed", {"reason": None}),
        ("WORKFLOW_EXECUTION_CANCELED", "run.cancelled", {"reason": None}),
        (
            "WORKFLOW_EXECUTION_TERMINATED",
            "run.terminated",
            {"reason": "terminated through Temporal"},
        ),
    ):
        (end,) = told(event(9, type_))
        assert (end.type, end.data) == (ended, data)
    (failed,) = told(event(9, "WORKFLOW_EXECUTION_FAILED", failure=BUG))
    assert failed.data == {"reason": None, "code": "X", "message": "cannot decode"}
    foreign = event(9, "WORKFLOW_EXECUTION_COMPLETED", result=payloads({"outcome": "lunch"}))
    assert [each.type for each in told(foreign)] == ["run.completed"]


def test_a_run_that_a_stranger_started_with_something_else_is_told_without_its_graph() -> None:
    begun = event(1, "WORKFLOW_EXECUTION_STARTED", input=payloads("hello"))
    (started,) = told(begun)

    assert (started.type, started.data["graph"], started.actor) == ("run.started", None, None)


def test_the_beginning_of_a_history_after_a_hand_over_is_not_told() -> None:
    begun = event(
        1,
        "WORKFLOW_EXECUTION_STARTED",
        continued_execution_run_id="before",
        input=payloads({"generation": 5}),
    )

    assert told(begun) == []
    assert told(begun, facts(5, "a"))[0].id.startswith(f"{5:014x}")
