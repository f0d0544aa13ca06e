"""The runs of a deployment: starting, listing and evicting them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from abeyance import views, wire
from abeyance.authoring.graph import Graph
from abeyance.client.eviction import Evictions, Policy, Room
from abeyance.client.rpc import DELETED
from abeyance.client.run import TemporalRun
from abeyance.client.start import StartPlan
from abeyance.commands import lists
from abeyance.core.policy import Principal
from abeyance.core.state import Limits
from abeyance.errors import AbeyanceError, Code, RecordsUnavailable, Refusal
from abeyance.filters import RunFilter
from abeyance.handle import Started
from abeyance.history.description import RunDescription
from abeyance.orders import awaited, check_page
from abeyance.records import runs
from abeyance.records.cursors import Page
from abeyance.records.runs import ActiveRun
from abeyance.util import require_in_order

if TYPE_CHECKING:
    from abeyance.client.client import Client

_LOCAL: Final = Principal(subject="local")
_GONE: Final = DELETED | {Code.NOT_RUNNING}
_REASON_CHARS: Final = 500


class Runs:
    """The runs of one deployment."""

    def __init__(self, client: Client, evictions: Evictions) -> None:
        self._erasures = client.erasures
        self._client = client
        self._line = client.line
        self._executions = client.executions
        self._evictions = evictions

    async def start(
        self,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        session_type: str = "agent",
        labels: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        started_by: str = "local",
        on_behalf_of: str | None = None,
        reuse: bool = False,
        request: str | None = None,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
        allow_concurrent: bool = False,
        max_active_runs: int = 0,
        max_active_runs_policy: Policy = "evict-lru",
        wait: float = 0.0,
        until: frozenset[str] = frozenset(),
    ) -> Started:
        """Start a run of `graph`. Starting the same again under the same id changes nothing.

        `on_behalf_of` is the person who started the run, if `started_by` only sends the start.
        `run_id` defaults to a generated one. `reuse` allows the id of a run that has ended. `request` is
        a hash of a call with a key, by which a repeat finds its run, also an ended one; if the caller
        sets the id too, a hash of the key and a dot come before it. `interrupt_before` and
        `interrupt_after` name nodes (`"*"`: all) with static interrupts, in addition to the graph's own;
        `on_error` is this run's default for nodes without one. `allow_concurrent` lets an agent's run
        start in a conversation that has an active one. If about `max_active_runs` are active (0: no
        limit), the policy applies.

        With `wait` it returns the view once the run has a status of `until` or has ended, after so many
        seconds at the latest, as `RunHandle.wait` does. Raises the refusals `invalid_run_id`,
        `invalid_input`, `unknown_node`, `invalid_body`, `payload_too_large`, `run_exists`, `erased`,
        `idempotency_conflict`, `conversation_busy` and `too_many_runs`.
        """
        until, wait = awaited(until, wait)
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait
        plan = StartPlan.of(
            graph,
            input or {},
            run_id=run_id,
            conversation_id=conversation_id,
            session_type=session_type,
            labels=labels or {},
            limits=limits or Limits(),
            started_by=started_by,
            on_behalf_of=on_behalf_of,
            allow_concurrent=allow_concurrent,
            request=request,
            # A repeated answer to an earlier run of this id must not answer this one.
            salt=uuid.uuid4().hex if reuse else "",
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            on_error=on_error,
        )
        # This comes first: it refuses here what the worker would refuse, before anything starts.
        view = plan.view(datetime.now(UTC))
        room = Room(bound=max_active_runs, policy=max_active_runs_policy)
        started = await self._begin(plan, room, is_named=run_id is not None, reuse=reuse)
        if wait:
            # Even if the records are away, the run has started.
            with suppress(RecordsUnavailable):
                run = TemporalRun(self._client, started.run_id)
                view = await run.wait(
                    until=until, timeout=deadline - clock(), is_new=started.created
                )
        return replace(started, view=view if wait or started.created else None)

    async def _begin(
        self,
        plan: StartPlan,
        room: Room,
        *,
        is_named: bool,
        reuse: bool,
    ) -> Started:
        """Start a run, unless it was started before."""
        run_id = plan.start.run_id
        if reuse and plan.start.request is not None:
            described = await self._found(run_id)
            if described is not None and plan.repeats(described):
                return Started(run_id=run_id, created=False)
        is_new = reuse or not is_named
        if is_named:
            await self._line.refuse_erased(run_id)
        try:
            plan = await self._executions.claim(plan)
        except Refusal:
            # The conversation may be full because this very run was started before.
            if is_new or await self._found(run_id) is None:
                raise
            return await self._executions.already_started(plan)
        try:
            if room.bound and (is_new or await self._found(run_id) is None):
                await self._executions.capacity.make_room(run_id, room)
        except AbeyanceError:
            await self._executions.give_back(plan)
            raise
        try:
            async with self._erasures.none_of(run_id) if reuse else nullcontext():
                await self._send(plan, reuse=reuse)
        except (WorkflowAlreadyStartedError, Refusal) as error:
            # If the outcome of the start is unknown, the claim stays, and expires if there is no run.
            await self._executions.give_back(plan)
            if isinstance(error, Refusal):
                raise
            return await self._executions.already_started(plan)
        return Started(run_id=run_id, created=True)

    async def _send(self, plan: StartPlan, *, reuse: bool) -> None:
        try:
            await self._executions.send(plan, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            # Only an ended run of this deployment may be replaced.
            described = await self._found(plan.start.run_id) if reuse else None
            if described is None or described.is_running:
                raise
        else:
            return
        await self._executions.send(plan, WorkflowIDReusePolicy.ALLOW_DUPLICATE)

    async def _found(self, run_id: str) -> RunDescription | None:
        """Describe the run of this deployment that has the id, None if there is none."""
        try:
            return await self._line.described(run_id)
        except Refusal:
            return None

    async def active(self) -> list[ActiveRun]:
        """Return the open runs that are not ending, the most recently active first."""
        return [*reversed(await self._client.records.read(runs.by_activity))]

    async def unregister(self, run_id: str, *, reason: str | None = None) -> bool:
        """Cancel a run, if it is running, and return whether it was."""
        try:
            await TemporalRun(self._client, run_id).cancel(reason, principal=_LOCAL)
        except Refusal as refusal:
            if refusal.code not in _GONE:
                raise
            return False
        return True

    async def erase(self, run_id: str) -> wire.ErasureState:
        """Erase a run that has ended: its records, its histories, and its stored data.

        Return `erased`, or `erasing` while data is left, which the next call or a worker deletes. A
        signed tombstone remains, without data of the run. Later calls about the run are refused with
        `erased`, and no run can have its id. Raises `not_finished` for an open run, `unknown_run`,
        `invalid_run_id`, and Unavailable.
        """
        return await self._erasures.erase(run_id)

    @asynccontextmanager
    async def session(
        self,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        **options: Any,
    ) -> AsyncIterator[Started]:
        """Start a run for the body of an `async with`, and cancel it on exit if it has not ended.

        `options` are those of `start`. An exception of the body is raised, with a note if the run could
        not be cancelled.
        """
        started = await self.start(graph, input, **options)
        try:
            yield started
        except BaseException as error:
            reason = f"its session failed: {error!r}"[:_REASON_CHARS]
            try:
                await self.unregister(started.run_id, reason=reason)
            except AbeyanceError as left:
                error.add_note(f"the run {started.run_id!r} was not cancelled: {left}")
            raise
        await self.unregister(started.run_id, reason="its session is over")

    async def evict(
        self,
        *,
        inactive_for: float | None = None,
        keep: int | None = None,
        most: int | None = None,
        actor: str = "local",
    ) -> list[str]:
        """Halt runs, with the reason `evicted`, and return their ids.

        `inactive_for` selects runs that were inactive for so many seconds, except those that wait for an
        answer with a deadline of its own; `keep` all but so many of the most recently active. With both,
        the runs that either selects; the least recently active first, and no more than `most`. A run that
        cannot be reached is left for the next call.
        """
        evicted: list[str] = []
        if inactive_for is not None:
            evicted += await self._evictions.inactive(inactive_for, actor, most=most)
        if keep is not None:
            most = None if most is None else most - len(evicted)
            gone = frozenset(evicted)
            evicted += await self._evictions.beyond(keep, actor, gone=gone, most=most)
        return evicted

    async def list(
        self, filters: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[views.RunView], str | None]:
        """Return at most `limit` runs, newest first and without their values, and the cursor of the next
        page, None after the last.

        Raises `invalid_body` for a cursor of another list, and Unavailable.
        """
        page = await self.page(filters, cursor=cursor, limit=limit)
        return page.items, page.next_cursor

    async def page(
        self, filters: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[views.RunView]:
        """Return a page as `list` does, and how many runs there are in all."""
        filters = filters or RunFilter()
        order = check_page(lists.RunsPage, filters, cursor=cursor, limit=limit)
        require_in_order(order.since, order.until)
        return await self._client.records.read(
            runs.page, lists.narrowed(filters, order), cursor=cursor, limit=order.most
        )

    async def count_of_others(self) -> int:
        """Return how many runs of other deployments the client's credentials can see in the namespace."""
        return await self._client.listing.count_of_others()
