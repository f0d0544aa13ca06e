"""The activity of a visit: its input, its attempt, its report, and its channel to the run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from temporalio import activity
from temporalio.common import MetricMeter, RawValue

from abeyance import commands, wire
from abeyance.activities.attempt import Attempt, is_stopped_by_run
from abeyance.activities.heartbeat import (
    BlockageReporter,
    Checkpoints,
    Heartbeater,
    ReportBlocked,
    Speech,
    encode,
    unreadable,
)
from abeyance.authoring.context import FindGrant, nothing_is_granted
from abeyance.authoring.graph import Graph
from abeyance.client import Client
from abeyance.core.effects import VisitInput
from abeyance.core.events import Message
from abeyance.core.state import Status
from abeyance.errors import BlockedCode, Refusal, StillPaused
from abeyance.history.description import ENDINGS, Standing
from abeyance.notifications.config import Notifications
from abeyance.storage.blobs import Blobs
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.retry import attempts
from abeyance.temporal.workarounds.payloads import UNREADABLE_COUNT, DecodedPayloads


class NodeActivities:
    """One dynamic activity for all nodes of the graphs; the activity type is the node's name.

    `leaving` is set right before the process ends. `find_grant` finds grants that let calls run unasked.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        client: Client,
        blobs: Blobs,
        *,
        default_timeout: float = 300.0,
        enable_metrics: bool = True,
        notifications: Notifications | None = None,
        links_base: str = "",
        leaving: asyncio.Event | None = None,
        find_grant: FindGrant = nothing_is_granted,
    ) -> None:
        self._find_grant = find_grant
        self._leaving = leaving or asyncio.Event()
        self._notifications = notifications
        self._links_base = links_base
        self._graphs = graphs
        self._client = client
        self._blobs = blobs
        self._default_timeout = default_timeout
        self._enable_metrics = enable_metrics
        self._speaking: Counter[str] = Counter()

    @activity.defn(dynamic=True)
    async def run(self, arguments: Sequence[RawValue]) -> wire.VisitReport:
        """Run one attempt at a visit. Return its outcome, or raise to make Temporal retry."""
        decoded, before = cast("DecodedPayloads", arguments[0]), _written_before(activity.info())
        fault = decoded.fault or before.fault
        if fault is not None:
            info = activity.info()
            # The id of the activity is the address of the visit.
            blockage = BlockageReporter(self._client, info.workflow_id or "", info.activity_id)
            raise await unreadable(before, fault, blockage)
        visit_input: VisitInput = activity.payload_converter().from_payload(
            decoded.values[0].payload, VisitInput
        )
        meter = activity.metric_meter() if self._enable_metrics else MetricMeter.noop
        visit = wire.Journal.owner(visit_input.execution, visit_input.address)
        blockage = BlockageReporter(
            self._client, visit_input.run_id, visit_input.address, visit_input.blocked_by
        )
        converter = activity.client().data_converter
        speech = Speech(visit_input.run_id, self._speaking, converter)
        heartbeater = Heartbeater(
            before, activity.info(), Checkpoints(meter), visit, blockage, speech=speech
        )
        attempt = Attempt(
            visit_input,
            self._graphs,
            RunChannel(self._client, visit_input, self._default_timeout),
            heartbeater,
            self._blobs,
            links_base=self._links_base,
            leaving=self._leaving,
            find_grant=self._find_grant,
        )
        async with heartbeater.beating():
            if any(UNREADABLE_COUNT in payload.metadata for payload in before.payloads):
                # An earlier worker could not read the input, and reported that.
                blockage.reported = BlockedCode.PAYLOAD_UNREADABLE
                await heartbeater.report_blocked(None, "")
            began = time.monotonic()
            outcome = await attempt.run()
            worked = time.monotonic() - began
            file = self._notifications
            report = wire.VisitReport(
                outcome=outcome,
                took=_took(activity.info()),
                notify=None if file is None else file.events_of(visit_input.root),
                worked=worked if visit_input.metered else None,
            )
            if is_all_sealed(converter):
                report = report.stamped(
                    wire.Stamp(order=visit_input.address, execution=visit_input.execution)
                )
            await _kept(report, heartbeater.report_blocked)
        return report


def _written_before(info: activity.Info) -> DecodedPayloads:
    return info.heartbeat_details[0] if info.heartbeat_details else DecodedPayloads()


async def _kept(report: wire.VisitReport, report_blocked: ReportBlocked) -> None:
    """Store a large report now, while the visit can still wait for the storage."""
    converter = activity.client().data_converter
    storage = converter.external_storage
    if storage is None:
        return
    (payload,) = converter.payload_converter.to_payloads([report])
    # Doubled, because encryption makes the report a little larger.
    is_large = 2 * payload.ByteSize() >= storage.payload_size_threshold
    while is_large:
        try:
            await encode(report, report_blocked)
        except asyncio.CancelledError:
            # The outcome of the code must not be lost because the run stops the visit meanwhile.
            if activity.is_worker_shutdown() or not is_stopped_by_run():
                raise
        else:
            break


def _took(info: activity.Info) -> float | None:
    # Both times come from this worker's clock, so its offset does not matter.
    if not info.is_local:
        return None
    return max(0.0, (datetime.now(UTC) - info.scheduled_time).total_seconds())


class RunChannel:
    """The channel from a visit to its run. `default_timeout` is in seconds."""

    def __init__(self, client: Client, visit: VisitInput, default_timeout: float) -> None:
        self._client = client
        self._visit = visit
        self._default_timeout = default_timeout
        # An earlier attempt or activation may have taken messages.
        self._has_all = visit.activation == 1 and activity.info().attempt == 1

    async def take(self, number: int) -> Message | None:
        """Return the visit's n-th message, counted from 0; None if there is none yet."""
        # Nodes may poll often; each poll would cost a workflow task and block queries and updates.
        run_id, has_all = self._visit.run_id, self._has_all
        order = commands.TakeMessages(visit=self._visit.address, start=number, upto=number + 1)
        try:
            if has_all and not (await self._client.run(run_id).standing()).queue_depth:
                return None
            # Messages whose response was lost are taken, so ask again until a response arrives.
            self._has_all = False
            messages = await self._client.run(run_id).take_messages(order)
        except Refusal:
            # The run is over, and lists the message as undelivered.
            return None
        self._has_all = has_all or not messages
        return messages[0] if messages else None

    async def wait_if_paused(self, timeout: float | None) -> bool:
        """Wait until the run is not paused. Raises StillPaused."""
        seconds = self._default_timeout if timeout is None else timeout
        run, end = self._client.run(self._visit.run_id), time.monotonic() + seconds
        # Ask Temporal: the records may be away, and code must not go on because of that.
        async for pause in attempts():
            standing = await run.standing(caught_up=True)
            if standing.status != Status.PAUSED:
                break
            if time.monotonic() > end:
                raise StillPaused(still_paused(self._visit.run_id, standing, seconds))
            await asyncio.sleep(pause)
        # A run that is ending does not resume either.
        return not (activity.is_cancelled() or standing.status in {Status.ENDING, *ENDINGS})


def still_paused(run_id: str, standing: Standing, seconds: float) -> str:
    """Return the error text for a run that is still paused."""
    return (
        f"The run {run_id!r} is still paused after {seconds:g} s, and waits for a person: resume it "
        "(POST /runs/{id}/resume, `abeyance resume`, or the signal `resume`) or cancel it. "
        f"paused=True, cancelled=False, queue_depth={standing.queue_depth} of {standing.max_queue_size}."
    )
