"""Heartbeats of a visit, whose details carry the journal to the next attempt.

A write of the journal is stored when the call returns (`workarounds.heartbeat`). It is retried while
Temporal or the storage is unavailable: continuing without it could repeat finished work later.

While a model speaks, the details also have its text, for watchers of the run. The server keeps them with
the pending activity, and writes none of them into the history.

A visit that cannot go on is reported to the run once for each reason, while its worker keeps trying. A
report that does not get through is only logged: Temporal shows the same reason with the pending activity.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import MetricMeter, RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from abeyance import live_text, metrics, wire
from abeyance.client import Client
from abeyance.core.json import Json
from abeyance.errors import AbeyanceError, BlockedCode, SettingsError, Unavailable
from abeyance.live_text import LiveText
from abeyance.names import BLOCKED_LINE
from abeyance.storage.converter import of_run, storage_code
from abeyance.storage.encryption import is_reference
from abeyance.temporal.retry import attempts
from abeyance.temporal.workarounds.heartbeat import SEND_SECONDS, record
from abeyance.temporal.workarounds.payloads import UNREADABLE_COUNT, DecodedPayloads

_logger = logging.getLogger("abeyance.node")

ReportBlocked: TypeAlias = Callable[[BlockedCode | None, str], Awaitable[None]]
"""Report why a visit is blocked, by code and message; None says that it can go on."""


class BlockageReporter:
    """Reports of one visit. `reported` is the code that was last reported to the run, None without a
    report.
    """

    def __init__(
        self, client: Client, run_id: str, visit: str, reported: str | None = None
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._visit = visit
        self.reported = reported

    async def report(
        self,
        code: BlockedCode | None,
        message: str = "",
        *,
        journal: Mapping[str, Json] | None = None,
        unread: bool = False,
    ) -> None:
        """Tell the run why the visit is blocked, or with None that it can go on, unless the run knows.

        `journal` are the steps of the visit, if the run does not have all of them; `unread` is whether
        this worker cannot read them.
        """
        where = f"run={self._run_id} address={self._visit}"
        if code == self.reported and not journal:
            return
        if code is None:
            _logger.info("%s | the visit is no longer blocked", where)
        elif code != self.reported:
            _logger.warning("%s code=%s | %s: %s", where, code, BLOCKED_LINE, message)
        try:
            run = self._client.run(self._run_id)
            await run.report_blocked(self._visit, code, message, journal or {}, unread=unread)
        except AbeyanceError as error:
            _logger.warning("%s | this could not be reported to the run: %s", where, error)
        else:
            self.reported = code


async def encode(value: Any, report_blocked: ReportBlocked) -> Payload:
    """Encode a value for Temporal. Retry while the storage is unavailable, and report that."""
    is_blocked = False
    async for _ in attempts(0.1, 2.0):
        try:
            converter = of_run(activity.client().data_converter, activity.info().workflow_id or "")
            (payload,) = await converter.encode([value])
        except (Unavailable, SettingsError) as error:
            is_blocked = True
            await report_blocked(storage_code(error), str(error))
        else:
            if is_blocked:
                await report_blocked(None, "")
            return payload
    raise AssertionError("attempts have no end")


async def unreadable(
    before: DecodedPayloads, fault: Exception, blockage: BlockageReporter
) -> ApplicationError:
    """Count an attempt that ends because this worker cannot read its input, and return the error.

    `before` are the heartbeat details of earlier attempts. They are kept, because other workers may read
    them; the count is added in clear text.
    """
    message = f"this worker cannot read the input of the visit: {fault}"
    code = storage_code(fault)
    if not activity.info().is_local:
        others = [
            payload for payload in before.payloads if UNREADABLE_COUNT not in payload.metadata
        ]
        count = 1 + sum(
            wire.Journal.model_validate_json(payload.data).excused
            for payload in before.payloads
            if UNREADABLE_COUNT in payload.metadata
        )
        counted = wire.Journal(excused=count).model_dump_json().encode()
        mark = {"encoding": b"json/plain", UNREADABLE_COUNT: b"true"}
        await record([*others, Payload(metadata=mark, data=counted)])
        if count == 1:
            await blockage.report(code, message, unread=True)
    return ApplicationError(message, type=code, category=ApplicationErrorCategory.BENIGN)


class Checkpoints:
    """Metrics of journal writes."""

    def __init__(self, meter: MetricMeter) -> None:
        self._meter = meter

    @contextmanager
    def written(self) -> Iterator[None]:
        """Measure one write, which is an error if it raises."""
        number, latency = metrics.CHECKPOINTS, metrics.CHECKPOINT_LATENCY
        began = time.monotonic()
        status: metrics.Outcome = "error"
        kind: metrics.Checkpoint = "journal"
        try:
            yield
            status = "success"
        finally:
            took = (time.monotonic() - began) * 1000
            counter = self._meter.create_counter(number.exposed, number.says)
            counter.add(1, {"kind": kind, "status": status})
            histogram = self._meter.create_histogram_float(latency.exposed, latency.says)
            histogram.record(took, {"kind": kind})


HEARTBEAT_SECONDS: Final = 1.0
"""Interval of heartbeats, and so the delay of a cancellation; less for a short heartbeat timeout. It is
half of that while a model speaks."""


def journal_in(written: DecodedPayloads, visit: str) -> wire.Journal:
    """Return the combined journal of earlier attempts of a visit."""
    return wire.Journal.combined(map(wire.Journal.model_validate, written.values), visit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The encoded journal of a visit, and its decoded form."""

    payload: Payload
    journal: wire.Journal

    def rest_of(self, journal: wire.Journal) -> wire.Journal | None:
        """Return the counts added since, None without any."""
        rest = wire.Journal(
            excused=journal.excused - self.journal.excused,
            blocked_by=None
            if journal.blocked_by == self.journal.blocked_by
            else journal.blocked_by,
            blocked_inside=journal.blocked_inside,
        )
        return None if rest == wire.Journal() else rest


def kept_in(written: DecodedPayloads, visit: str) -> Kept | None:
    """Return the encoded journal among heartbeat details, None without one."""
    for payload, value in zip(written.payloads, written.values, strict=True):
        journal = wire.Journal.model_validate(value)
        if journal.steps and journal.is_of(visit):
            return Kept(payload=payload, journal=journal)
    return None


_SPOKEN_BYTES: Final = 32_000
"""The most bytes of the tail of one text."""
_SPOKEN_BYTES_OF_A_RUN: Final = 256_000
"""The most bytes of the tails of all models of a run that speak at the same time in this worker. Temporal
ends a run whose state, with the heartbeats of its pending activities, takes 8 MB."""
_PARTS_OF_A_PAYLOAD: Final = 8
"""A part has this many times fewer characters than the smallest stored payload has bytes, so that a
heartbeat neither waits for the storage nor leaves texts there."""


class Speech:
    """The text of a model in one attempt. `speaking` counts this worker's speaking models, by run."""

    def __init__(self, run_id: str, speaking: Counter[str], converter: DataConverter) -> None:
        self._run_id = run_id
        self._speaking = speaking
        self._turn = 0
        self._said: Callable[[], str] | None = None
        self._sent: LiveText | None = None
        storage = converter.external_storage
        threshold = None if storage is None else storage.payload_size_threshold
        self._part = (
            _SPOKEN_BYTES if threshold is None else max(1, threshold // _PARTS_OF_A_PAYLOAD)
        )

    def begin(self, turn: int, said: Callable[[], str]) -> None:
        """Send the text of a turn from now on. `said()` returns the whole text of the turn so far."""
        if self._said is None:
            self._speaking[self._run_id] += 1
        self._turn, self._said = turn, said

    def end(self) -> None:
        """Stop sending text."""
        if self._said is not None:
            self._said = None
            self._speaking[self._run_id] -= 1
            # Removes the run if it was the last.
            self._speaking += Counter()

    @property
    def has_more(self) -> bool:
        """Whether the model has said more than was sent."""
        return self._now() != self._sent

    def parts(self) -> list[wire.Journal]:
        """Return the parts to send now, each as heartbeat details of its own."""
        self._sent = self._now()
        whole = [] if self._sent is None else live_text.parts(self._sent, self._part)
        return [wire.Journal(live=part) for part in whole]

    def _now(self) -> LiveText | None:
        if self._said is None:
            return None
        limit = min(_SPOKEN_BYTES, _SPOKEN_BYTES_OF_A_RUN // self._speaking[self._run_id])
        return live_text.tail(self._turn, self._said(), limit)


class Heartbeater:
    """The heartbeats of one attempt. `journal` is the content of the next one, and `has_begun` is whether
    the code of the node runs or has run.
    """

    def __init__(
        self,
        before: DecodedPayloads,
        info: activity.Info,
        checkpoints: Checkpoints,
        visit: str,
        blockage: BlockageReporter,
        *,
        speech: Speech,
    ) -> None:
        self.speech = speech
        self.journal = journal_in(before, visit)
        if self.journal.blocked_by is not None:
            blockage.reported = self.journal.blocked_by or None
        self._blockage = blockage
        self.has_begun = False
        if info.is_local:
            # A local activity has no heartbeat, and no attempt of it can be lost.
            self.journal = wire.Journal(visit=visit, excused=info.attempt - 1)
        self._kept = kept_in(before, visit)
        self._info = info
        self._checkpoints = checkpoints
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Send heartbeats in the background."""
        silence = self._info.heartbeat_timeout
        pause = (
            min(HEARTBEAT_SECONDS, silence.total_seconds() / 4) if silence else HEARTBEAT_SECONDS
        )

        # A pause that a short heartbeat timeout shortens is short enough for the text of a model.
        half = pause / 2 if pause == HEARTBEAT_SECONDS else pause
        beating: list[asyncio.Task[None]] = []

        async def beat() -> None:
            while True:
                if not self.speech.has_more:
                    await asyncio.sleep(pause - half)
                await self.beat()
                await asyncio.sleep(half)

        if self._info.is_local:
            yield
            return
        loop = asyncio.get_running_loop()
        # Most visits are over before their first heartbeat, and a timer costs less than a task.
        timer = loop.call_later(half, lambda: beating.append(loop.create_task(beat())))
        try:
            yield
        finally:
            timer.cancel()
            self.speech.end()
            for task in beating:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def report_blocked(
        self,
        code: BlockedCode | None,
        message: str,
        journal: Mapping[str, Json] | None = None,
    ) -> None:
        """Report why the visit is blocked, or with None that it can go on, also to the next attempt."""
        await self._blockage.report(code, message, journal=journal)
        told = self._blockage.reported or ""
        self.journal = self.journal.model_copy(update={"blocked_by": told})

    async def begin(self) -> None:
        """Report that a blocked visit can go on, right before its code runs. Otherwise the start of
        another worker, after which the run tries blocked visits again, would stop the code.

        If the code itself was blocked, only its end is reported, so that not each attempt is.
        """
        if self._blockage.reported is not None and not self.journal.blocked_inside:
            await self.report_blocked(None, "")
        self.has_begun = True

    async def beat(self) -> None:
        """Send a heartbeat."""
        async with self._lock:
            self._say()
            await asyncio.sleep(SEND_SECONDS)

    async def write(self, journal: wire.Journal) -> bool:
        """Write a journal for the next attempt; it is stored when this returns.

        Return True if the run has cancelled the visit. Retry while the server or the storage is
        unavailable. Raises Superseded if the server no longer waits for this attempt.
        """
        with self._checkpoints.written():
            stored = self._kept
            if stored is None or stored.journal.steps != journal.steps:
                payload = await encode(journal.model_dump(mode="json"), self.report_blocked)
                stored = Kept(payload=payload, journal=journal)
            beside = self._beside(stored, journal)
            details = [
                stored.payload,
                *[await encode(each, self.report_blocked) for each in beside],
            ]
            async with self._lock:
                is_to_stop = await record(details)
                self.journal, self._kept = journal, stored
        return is_to_stop

    async def write_last(self, journal: wire.Journal) -> bool:
        """Write a journal before the attempt fails.

        The SDK sends the last details that it has with a failure, so it gets this journal, too.
        """
        is_to_stop = await self.write(journal)
        self._say()
        return is_to_stop

    def _say(self) -> None:
        stored = self._kept or Kept(payload=Payload(), journal=self.journal)
        # Send a stored journal as its reference, so that a heartbeat never waits for the storage.
        details: Any = RawValue(stored.payload)
        if not is_reference(stored.payload):
            details = stored.journal.model_dump(mode="json")
        activity.heartbeat(details, *self._beside(stored, self.journal))

    def _beside(self, stored: Kept, journal: wire.Journal) -> list[dict[str, Any]]:
        """Return the details after the stored journal: the counts added since, then a model's text."""
        rest = stored.rest_of(journal)
        beside = [*([] if rest is None else [rest]), *self.speech.parts()]
        return [each.model_dump(mode="json", exclude_defaults=True) for each in beside]
