"""The worker withholds jobs that the SDK would pass to a run before their workflow task."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.activity_result import ActivityResolution, Cancellation, Success
from temporalio.bridge.proto.workflow_activation import (
    CancelWorkflow,
    DoUpdate,
    FireTimer,
    InitializeWorkflow,
    NotifyHasPatch,
    QueryWorkflow,
    RemoveFromCache,
    ResolveActivity,
    SignalWorkflow,
    UpdateRandomSeed,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext
from temporalio.worker import WorkflowInstance
from temporalio.workflow import Info

from abeyance.core.lifecycle import CANNOT_REPLAY_REMEDY
from abeyance.keyring import WrongKey
from abeyance.names import MOST_IN_A_TASK
from abeyance.settings import Settings
from abeyance.temporal.connection import data_converter
from abeyance.temporal.workarounds.in_order_runner import LOOKED_AHEAD, InOrderWorkflowInstance

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
BEGIN = WorkflowActivationJob(initialize_workflow=InitializeWorkflow(workflow_id="r"))
SIGNAL = WorkflowActivationJob(signal_workflow=SignalWorkflow(signal_name="steer"))
UPDATE = WorkflowActivationJob(do_update=DoUpdate(id="u"))
TIMER = WorkflowActivationJob(fire_timer=FireTimer(seq=1))
CANCEL = WorkflowActivationJob(cancel_workflow=CancelWorkflow())
RESULT = WorkflowActivationJob(
    resolve_activity=ResolveActivity(seq=1, result=ActivityResolution(completed=Success()))
)
STOPPED = WorkflowActivationJob(
    resolve_activity=ResolveActivity(seq=1, result=ActivityResolution(cancelled=Cancellation()))
)
LOCAL_RESULT = WorkflowActivationJob(resolve_activity=ResolveActivity(seq=1, is_local=True))
QUERY = WorkflowActivationJob(query_workflow=QueryWorkflow(query_id="q"))
PATCH = WorkflowActivationJob(notify_has_patch=NotifyHasPatch(patch_id="p"))
SEED = WorkflowActivationJob(update_random_seed=UpdateRandomSeed(randomness_seed=1))
EVICT = WorkflowActivationJob(remove_from_cache=RemoveFromCache())


class Recording(WorkflowInstance):
    """An instance of the SDK that only notes the jobs it is given."""

    def __init__(self, *, writes: int = 0, fails: Failure | None = None) -> None:
        self.told: list[str | None] = []
        self.writes = writes
        self.fails = fails
        self.info = Info.__new__(Info)
        object.__setattr__(self.info, "workflow_id", "r")

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        self.told.extend(job.WhichOneof("variant") for job in act.jobs)
        completion = WorkflowActivationCompletion()
        completion.successful.SetInParent()
        for _ in range(self.writes):
            completion.successful.commands.add().modify_workflow_properties.SetInParent()
        if self.fails is not None:
            completion.failed.failure.CopyFrom(self.fails)
        return completion

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return None

    def get_external_store_context(self, command_info: Any) -> Any:
        return None

    def get_info(self) -> Info:
        return self.info


def activation(
    *jobs: WorkflowActivationJob,
    length: int,
    seconds: float = 0,
    size: int = 3000,
    replaying: bool = False,
) -> WorkflowActivation:
    """Return an activation so many seconds after noon, with a history of that many events and bytes."""
    made = WorkflowActivation(
        jobs=jobs, history_length=length, history_size_bytes=size, is_replaying=replaying
    )
    made.timestamp.FromDatetime(NOON + timedelta(seconds=seconds))
    return made


def told(*activations: WorkflowActivation, writes: int = 0) -> tuple[list[str | None], str]:
    """Return the jobs that a run gets of these activations, in order, and the failure of the last one.

    The run writes to its memo `writes` times at each activation.
    """
    inner = Recording(writes=writes)
    run = InOrderWorkflowInstance(inner)
    completions = [run.activate(each) for each in activations]
    return inner.told, completions[-1].failed.failure.message


def test_a_run_gets_a_bounded_number_of_signals_of_each_kind() -> None:
    other = WorkflowActivationJob(signal_workflow=SignalWorkflow(signal_name="pause"))
    flood = [*[SIGNAL] * 4_000, other, TIMER, *[SIGNAL] * 10]

    heard, failed = told(activation(BEGIN, *flood, length=3))

    most = MOST_IN_A_TASK + 1
    assert heard == ["initialize_workflow", *["signal_workflow"] * (most + 1), "fire_timer"]
    assert failed == ""


@pytest.mark.parametrize(
    "job", [SIGNAL, TIMER, CANCEL, RESULT, UPDATE], ids=lambda job: job.WhichOneof("variant")
)
def test_jobs_beyond_the_last_task_are_kept_from_the_run(
    job: WorkflowActivationJob,
) -> None:
    first = activation(BEGIN, length=3, replaying=True)

    known, failure = told(first, activation(job, length=8))

    assert known == ["initialize_workflow"]
    assert failure == LOOKED_AHEAD


def test_a_run_with_withheld_jobs_can_be_evicted() -> None:
    known, failure = told(
        activation(BEGIN, length=3, replaying=True),
        activation(SIGNAL, length=8),
        activation(EVICT, length=8),
    )

    assert (known, failure) == (["initialize_workflow", "remove_from_cache"], "")


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (activation(SIGNAL, UPDATE, length=9, seconds=0.1, size=5000), "the next task"),
        (activation(SIGNAL, length=9, seconds=0.1), "a task of a server that knows no sizes"),
        (activation(SIGNAL, length=9, size=5000), "a task of a server whose clock went back"),
        (activation(SIGNAL, length=9, replaying=True), "a replay of such a task"),
        (activation(LOCAL_RESULT, length=3), "a result within the task"),
        (activation(RESULT, length=3), "a visit that is stopped within the task"),
        (activation(QUERY, length=8), "a question"),
        (activation(PATCH, length=8), "a mark of the code's version"),
        (activation(SEED, length=8), "a seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_other_jobs_reach_the_run(second: WorkflowActivation, what: str) -> None:
    known, failure = told(activation(BEGIN, length=3), second)

    assert known == [BEGIN.WhichOneof("variant"), *(j.WhichOneof("variant") for j in second.jobs)]
    assert failure == "", what


def test_a_later_activation_of_a_task_is_not_a_lookahead() -> None:
    known, failure = told(
        activation(BEGIN, length=3, replaying=True),
        activation(LOCAL_RESULT, length=3),
        activation(QUERY, length=8),
        activation(SIGNAL, length=9, seconds=0.1, size=5000),
    )

    assert known[-1] == "signal_workflow"
    assert failure == ""


def test_a_look_ahead_is_known_behind_results_and_questions() -> None:
    known, failure = told(
        activation(BEGIN, length=3, replaying=True),
        activation(LOCAL_RESULT, length=3, replaying=True),
        activation(QUERY, length=5, replaying=True),
        activation(TIMER, length=8),
    )

    assert "fire_timer" not in known
    assert failure == LOOKED_AHEAD


@pytest.mark.parametrize(
    ("jobs", "came"),
    [((SIGNAL,), 1), ((SIGNAL, TIMER), 2), ((RESULT,), 2), ((STOPPED,), 1), ((UPDATE,), 0)],
    ids=["a signal", "a signal and a timer", "a result", "a visit that is stopped", "an update"],
)
@pytest.mark.parametrize("writes", [1, 2])
def test_a_task_is_done_anew_if_the_history_has_no_room_for_what_was_done_before_it(
    jobs: tuple[WorkflowActivationJob, ...], came: int, writes: int
) -> None:
    begun = activation(SIGNAL, length=9, seconds=1, size=5000)
    # Three more events: the previous task ended, and the next was scheduled and began.
    length = 9 + 3 + came
    lost = activation(*jobs, length=length, seconds=2, size=6000)
    kept = activation(*jobs, length=length + writes, seconds=2, size=6000)

    known, failure = told(begun, lost, writes=writes)
    known_if_kept, failure_if_kept = told(begun, kept, writes=writes)

    assert known == ["signal_workflow"]
    assert "is retried from the history" in failure
    assert known_if_kept == ["signal_workflow", *(job.WhichOneof("variant") for job in jobs)]
    assert failure_if_kept == ""


def test_activations_of_one_task_are_counted_together() -> None:
    _, failure = told(
        activation(SIGNAL, length=9, seconds=1, size=5000),
        activation(LOCAL_RESULT, length=9, seconds=1.5, size=5000),
        activation(QUERY, length=9, seconds=1.5, size=5000, replaying=True),
        activation(SIGNAL, length=14, seconds=2, size=6000),
        writes=1,
    )

    assert "is retried from the history" in failure


def test_earlier_tasks_are_not_counted_again() -> None:
    tasks = [
        activation(SIGNAL, length=9 + number * 5, seconds=number, size=5000 + number)
        for number in range(20)
    ]

    known, failure = told(*tasks, writes=1)

    assert (len(known), failure) == (20, "")


def test_a_replay_is_never_done_anew() -> None:
    _, failure = told(
        activation(SIGNAL, length=9, seconds=1, replaying=True),
        activation(SIGNAL, length=10, seconds=2, replaying=True),
        writes=1,
    )

    assert failure == ""


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (
            WrongKey("this is encrypted with the key 'other'"),
            (
                "code=key_missing | its workflow task failed (this is encrypted with the key 'other'), "
                "and is tried again: this worker cannot read the run"
            ),
        ),
        (
            KeyError("a bug"),
            (
                "code=cannot_replay | its workflow task failed (Failed decoding arguments), and is tried "
                f"again: {CANNOT_REPLAY_REMEDY}"
            ),
        ),
    ],
)
def test_the_worker_logs_why_a_task_failed_although_the_failure_is_to_be_encrypted(
    caplog: pytest.LogCaptureFixture, cause: Exception, line: str
) -> None:
    caplog.set_level(logging.WARNING, "abeyance.worker")
    keys = f"first:{base64.b64encode(bytes(32)).decode()}"
    converter = data_converter(Settings(encryption_keys=keys))
    error, failure = RuntimeError("Failed decoding arguments"), Failure()
    error.__cause__ = cause
    converter.failure_converter.to_failure(error, converter.payload_converter, failure)
    written = Failure.FromString(failure.SerializeToString())

    completion = InOrderWorkflowInstance(Recording(fails=failure)).activate(
        WorkflowActivation(history_length=3, jobs=[BEGIN])
    )

    assert caplog.messages == [f"run=r {line}"]
    # The failure for Temporal stays as it was, so that it is still encrypted.
    assert completion.failed.failure == written
