"""One attempt at a visit: timeouts, cancellations and failures of the author's code.

An attempt whose code raised, or took too long, returns `AttemptFailed` while retries are left: the run
waits, and starts the visit again. So finished steps and the count are in the run's state, where a pause
or a hand-over between two attempts cannot lose them: if an activity that waits for its next attempt is
cancelled, Temporal drops its heartbeat details.

Temporal itself retries an attempt that was *lost* with its worker, which counts, and one that is
*excused*: on a worker without the code, or ended by a shutdown. How many were excused travels with the
journal (`heartbeat`).

Code in a thread cannot be stopped, and dies with its process. A worker that is about to exit sets
`leaving`: attempts that still run are then excused, and the next ones begin when the process is gone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from abeyance import wire
from abeyance.activities.heartbeat import Heartbeater
from abeyance.authoring.context import Context, FindGrant, RunChannel, VisitRuntime
from abeyance.authoring.graph import Graph
from abeyance.authoring.journal import Journal
from abeyance.core import outcome as outcomes
from abeyance.core.bounds import Attempts
from abeyance.core.effects import VisitInput
from abeyance.core.json import Json, size
from abeyance.core.outcome import AttemptFailed, Failed, Stopped, VisitOutcome
from abeyance.errors import Blocked, BlockedCode, FailureCode
from abeyance.runtime.node_runner import TimedOut, failed_attempt, graph_for, run_visit
from abeyance.storage.blobs import Blobs
from abeyance.temporal.workarounds.heartbeat import Superseded

LEAVES_WITHIN: Final = 5.0
"""The most seconds from the moment at which a worker is `leaving` to its exit."""
_GONE_AFTER: Final = LEAVES_WITHIN + 1.0
"""Seconds after which another worker may begin a visit that a leaving worker still ran."""
_MAX_DETAILS: Final = 1_000
"""Maximum bytes. Temporal truncates a failure larger than a few thousand."""

_logger = logging.getLogger("abeyance.node")


class VisitLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the run and the address to each line, and as fields for structured logs."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = dict(self.extra or {})
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return f"run={fields['run_id']} address={fields['address']} | {msg}", kwargs


class _Left(BaseException):
    """The process ends, and with it the code that still runs."""


class Attempt:
    """One attempt at a visit. `leaving` is set right before the process ends."""

    def __init__(
        self,
        visit_input: VisitInput,
        graphs: Mapping[str, Graph],
        channel: RunChannel,
        heartbeater: Heartbeater,
        blobs: Blobs,
        *,
        links_base: str,
        leaving: asyncio.Event,
        find_grant: FindGrant,
    ) -> None:
        self._find_grant = find_grant
        self._leaving = leaving
        self._input = visit_input
        self._links_base = links_base
        self._blobs = blobs
        self._channel = channel
        self._graphs = graphs
        self._info = activity.info()
        self._heartbeater = heartbeater
        kept = {**(visit_input.journal or {}), **self._heartbeater.journal.steps}
        self._known_steps = kept.keys()
        self._journal = Journal(
            kept, None if self._info.is_local else self._keep, lambda: datetime.now(UTC)
        )
        # Attempts that ended without a report, for example because their worker was killed.
        self._lost = self._info.attempt - 1 - heartbeater.journal.excused
        counted = visit_input.attempts
        is_first = not counted.count and not self._lost
        self._before = counted.with_lost(self._lost, 0.0 if is_first else _waited(self._info))
        self._began = time.monotonic()
        self._is_late = threading.Event()

    async def run(self) -> VisitOutcome:
        """Make the attempt. Raises ApplicationError if Temporal has to try again."""
        try:
            return await self._made()
        except asyncio.CancelledError:
            # The cancellation came after the code had ended, while the attempt dealt with its end.
            if not is_stopped_by_run():
                raise
            return self._stopped()

    async def _made(self) -> VisitOutcome:
        visit_input, journal = self._input, self._journal.steps or None
        failed = outcomes.lost_for_good(
            visit_input.node, self._lost, visit_input.retry, self._before, journal=journal
        )
        if failed is not None:
            return failed
        try:
            graph = graph_for(visit_input, self._graphs)
            return await self._run_in_time(graph, self._context())
        except Blocked as error:
            return await self._blocked(error)
        except Superseded as error:
            raise _taken_over(visit_input) from error
        except _Left:
            text = "run=%s address=%s | this worker ends, and another one runs the visit again"
            _logger.warning(text, visit_input.run_id, visit_input.address)
            if await self._remember(excused=self._heartbeater.journal.excused + 1):
                return self._stopped()
            raise self._again(_cancel_reason(), FailureCode.NODE_FAILED, _GONE_AFTER) from None
        except asyncio.CancelledError:
            # The worker shuts down, or an operator paused or reset the activity: not the node's fault,
            # and the visit continues in another attempt.
            text = "run=%s address=%s | %s: the visit continues in another attempt"
            _logger.info(text, visit_input.run_id, visit_input.address, _cancel_reason())
            return await self._excused(_cancel_reason(), FailureCode.NODE_FAILED)

    async def _blocked(self, error: Blocked) -> VisitOutcome:
        visit_input = self._input
        is_bounded = visit_input.outcome is not None and visit_input.blocked_by is None
        if self._info.is_local or is_bounded:
            # So that the run starts an activity that can wait: retries of a local activity keep a
            # workflow task open, and the timeout of a finally node bounds its retries.
            return outcomes.Blocked(
                code=error.code,
                message=str(error),
                journal=self._journal.steps or None,
                patch=self._journal.partial_patch,
            )
        # Tell the run the steps: if it stops the visit between two attempts, the heartbeats are lost.
        steps, is_new = self._journal.steps, error.code != self._heartbeater.journal.blocked_by
        journal = steps if is_new or steps.keys() != self._known_steps else None
        await self._heartbeater.report_blocked(error.code, str(error), journal)
        kept = self._heartbeater.journal
        self._heartbeater.journal = kept.model_copy(
            update={"blocked_inside": self._heartbeater.has_begun}
        )
        return await self._excused(str(error), error.code, error.retry_after)

    async def _run_in_time(self, graph: Graph, context: Context) -> VisitOutcome:
        """Run the code. A thread cannot be stopped, so it may outlive its timeout: unless the visit has
        failed, its outcome is then held back until the thread ends, for another timeout at most.
        """
        visit_input = self._input
        code = asyncio.create_task(_caught(graph, context))
        if await self._ends(code, self._after(visit_input.timeout)):
            ended = code.result()
            return self._ended(graph, context, ended) if isinstance(ended, BaseException) else ended
        self._is_late.set()
        code.cancel()
        outcome = self._ended(graph, context, TimedOut(visit_input))
        if isinstance(outcome, Failed):
            return outcome
        await self._ends(code, self._after(visit_input.timeout, times=2))
        return replace(outcome, journal=self._journal.steps or outcome.journal)

    async def _ends(self, code: asyncio.Task[Any], until: float | None) -> bool:
        """Wait for the code, at most until a time of the monotonic clock. Return whether it has ended.

        This passes a cancellation on to the code, and still waits for it: if the code were left behind,
        the same visit could run twice at once. Raise _Left if the process ends meanwhile.
        """
        leaving: set[asyncio.Task[Any]] = set()
        try:
            while not code.done():
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                try:
                    await asyncio.wait(
                        {code, *leaving}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                except asyncio.CancelledError:
                    code.cancel()
                    # A worker that leaves has cancelled all its activities before.
                    leaving = leaving or {asyncio.create_task(self._leaving.wait())}
                if self._leaving.is_set() and not code.done():
                    raise _Left
        finally:
            for task in leaving:
                task.cancel()
        return True

    def _after(self, timeout: float | None, times: int = 1) -> float | None:
        return None if timeout is None else self._began + times * timeout

    def _ended(
        self, graph: Graph, context: Context, error: BaseException
    ) -> Stopped | AttemptFailed | Failed:
        """Return the outcome of code that raised. Raise errors that are not the code's fault."""
        if isinstance(error, Blocked | Superseded):
            raise error
        if is_stopped_by_run():
            # Even if a library converts the cancellation to another error.
            return self._stopped()
        if isinstance(error, asyncio.CancelledError):
            if activity.is_cancelled() or activity.is_worker_shutdown():
                raise error
            error = RuntimeError("the node cancelled its own task")
        return self._failed(graph, context, error)

    def _stopped(self) -> Stopped:
        return Stopped(
            journal=self._journal.steps or self._input.journal,
            patch=self._journal.partial_patch,
            attempts=self._before,
        )

    def _failed(
        self, graph: Graph, context: Context, error: BaseException
    ) -> AttemptFailed | Failed:
        outcome = failed_attempt(graph, context, error, self._attempts())
        where = (self._input.run_id, self._input.address)
        match outcome:
            case AttemptFailed(pause=pause):
                text = "run=%s address=%s | the attempt failed, and the next begins in %g s"
                _logger.warning(text, *where, pause, exc_info=error)
            case Failed():
                _logger.error("run=%s address=%s | the visit failed", *where, exc_info=error)
        return outcome

    def _attempts(self) -> Attempts:
        """Return the attempts that count if this one fails now."""
        return self._before.with_failed(time.monotonic() - self._began)

    async def _excused(
        self, message: str, code: FailureCode | BlockedCode, retry_after: float | None = None
    ) -> VisitOutcome:
        if await self._remember(excused=self._heartbeater.journal.excused + 1):
            return self._stopped()
        # Without its cause, because Temporal truncates large failures, and then the code is lost.
        raise self._again(message, code, retry_after) from None

    def _again(
        self, message: str, code: FailureCode | BlockedCode, retry_after: float | None = None
    ) -> ApplicationError:
        """Return the error that makes Temporal retry. If the run cancels the visit at this moment, it
        reads the journal from the error instead.
        """
        whose = self._heartbeater.journal.visit
        journal = wire.Journal(visit=whose, steps=dict(self._journal.steps)).model_dump(mode="json")
        details = [journal] if size(journal) <= _MAX_DETAILS else []
        delay = None if retry_after is None else timedelta(seconds=retry_after)
        return ApplicationError(
            message,
            *details,
            type=code,
            next_retry_delay=delay,
            # The log has a line about it. The node is not at fault, so there is no traceback.
            category=ApplicationErrorCategory.BENIGN,
        )

    async def _remember(self, **changes: int) -> bool:
        """Write changed counts. Return True if the run has cancelled the visit."""
        if self._info.is_local:
            return False
        # With the steps: the write of a finished one may have been interrupted.
        changed = {**changes, "steps": dict(self._journal.steps)}
        try:
            return await self._heartbeater.write_last(
                self._heartbeater.journal.model_copy(update=changed)
            )
        except Superseded:
            # The visit is over, so its attempts no longer count.
            return False

    async def _keep(self, steps: Mapping[str, Json]) -> None:
        await self._heartbeater.write(
            self._heartbeater.journal.model_copy(update={"steps": dict(steps)})
        )

    def _context(self) -> Context:
        visit_input = self._input
        loop = asyncio.get_running_loop()
        signs: set[asyncio.Task[None]] = set()

        def beat() -> None:
            sign = loop.create_task(self._heartbeater.beat())
            signs.add(sign)
            sign.add_done_callback(signs.discard)

        def say() -> None:
            if not self._info.is_local:
                loop.call_soon_threadsafe(beat)

        return Context(
            input=visit_input,
            attempt=self._before.count + 1,
            logger=VisitLog(
                _logger, {"run_id": visit_input.run_id, "address": visit_input.address}
            ),
            is_cancelled=lambda: self._is_late.is_set() or activity.is_cancelled(),
            runtime=VisitRuntime(
                journal=self._journal,
                channel=self._channel,
                send_heartbeat=say,
                blobs=self._blobs,
                attempts=self._attempts,
                begin=self._heartbeater.begin,
                speak=self._heartbeater.speech.begin,
                links_base=self._links_base,
                find_grant=self._find_grant,
            ),
        )


async def _caught(graph: Graph, context: Context) -> VisitOutcome | BaseException:
    """Run the code of a visit, and return what it raises.

    A KeyboardInterrupt that leaves a task ends the process.
    """
    try:
        return await run_visit(graph, context)
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 any exception of an author's code is a failed attempt
        return error


def _waited(info: activity.Info) -> float:
    """Return the seconds from the scheduling of a visit to this attempt, by the server's clock."""
    return max(0.0, (info.started_time - info.scheduled_time).total_seconds())


def _taken_over(visit: VisitInput) -> ApplicationError:
    """Log, and return as an error, that the server no longer waits for an attempt. Nobody reads it."""
    message = "the visit was taken over by another worker"
    _logger.warning("run=%s address=%s | %s", visit.run_id, visit.address, message)
    return ApplicationError(
        message, type=FailureCode.NODE_FAILED, category=ApplicationErrorCategory.BENIGN
    )


def is_stopped_by_run() -> bool:
    """Return whether the run has cancelled the activity."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


def _cancel_reason() -> str:
    details = activity.cancellation_details()
    if details is not None and (details.paused or details.reset):
        return f"an operator {'paused' if details.paused else 'reset'} the activity"
    return "the worker is shutting down"
