"""Starting the workflow of a new run, or of a retry.

Its arguments, memo and search attributes are checked before anything is sent (`StartPlan`). A start
claims its place in its conversation and room among the active runs first, and gives both back if it fails
(`Executions`). A claim whose start has an unknown outcome is not given back: it expires if there is no
run.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from abeyance import commands, names, views, wire
from abeyance.authoring.graph import Graph
from abeyance.client.claims import Claims
from abeyance.client.eviction import Capacity, Room
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.core import machine, policy
from abeyance.core.json import Json, rfc3339, sha256, size, why_not_json
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Limits, RunState, Status, parted
from abeyance.errors import AbeyanceError, Code, RecordsUnavailable, Refusal
from abeyance.handle import Started
from abeyance.history.description import RPC, RunDescription
from abeyance.orders import order_of
from abeyance.projections import LARGEST_IN_MEMO, guards_for_memo, run_view
from abeyance.records.claims import EXCLUSIVE, Claim
from abeyance.runtime import retries
from abeyance.runtime.graph_today import pinned as pinned_graph
from abeyance.runtime.graph_today import spec_of_run
from abeyance.schemas.requests import checked_limits
from abeyance.schemas.state_model import to_mapping
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.retry import refusals, retry_until
from abeyance.util import as_names, checked_run_id, generated_run_id, run_exists

_LARGEST: Final = 1_900_000
"""In bytes: Temporal's server takes 2 MB, for all arguments of a start together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """A run that is about to start. `carried` is the state of a retry, None for a new run."""

    start: wire.StartRun
    spec: GraphSpec
    values: Mapping[str, Json]
    carried: RunState | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel,  # noqa: A002
        *,
        run_id: str | None,
        conversation_id: str | None,
        session_type: str,
        labels: Mapping[str, str],
        limits: Limits,
        started_by: str,
        on_behalf_of: str | None = None,
        allow_concurrent: bool = False,
        request: str | None = None,
        salt: str = "",
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
    ) -> StartPlan:
        """Plan a run of `graph`.

        Raises `invalid_run_id`, `invalid_input`, `unknown_node`, `invalid_body` for a conversation, a
        session type or labels that HTTP refuses too, for limits that no run can keep and for an unknown
        `on_error`, and `payload_too_large`.
        """
        found_by = {"conversation_id": conversation_id, "session_type": session_type}
        order_of(commands.StartFields, {**found_by, "labels": labels, "on_behalf_of": on_behalf_of})
        person = started_by if on_behalf_of is None else on_behalf_of
        sent_by = started_by if person != started_by else None
        run_id = generated_run_id(graph.name) if run_id is None else checked_run_id(run_id)
        limits = checked_limits(limits)
        pinned = graph.build()
        spec = spec_of_run(graph, interrupt_before, interrupt_after, on_error)
        values = graph.states.initial(input)
        _check_size("The graph and its input", size(values) + spec.size, _LARGEST)
        _check_size("The name of who starts it", size(started_by), LARGEST_IN_MEMO)
        # A start on behalf of another person is a different start.
        arguments = [spec.version, _as_json(to_mapping(input), values)]
        version = pinned.version
        return cls(
            spec=spec,
            values=values,
            start=wire.StartRun(
                run_id=run_id,
                limits=limits,
                conversation_id=conversation_id,
                session_type=session_type,
                labels=dict(labels),
                started_by=person,
                sent_by=sent_by,
                digest=sha256(arguments if sent_by is None else [*arguments, person]),
                graph_version=version,
                request=request,
                allow_concurrent=allow_concurrent,
                salt=salt,
                interrupt_before=as_names(interrupt_before),
                interrupt_after=as_names(interrupt_after),
                on_error=on_error,
            ),
        )

    @classmethod
    def going_on(cls, state: RunState, start: wire.StartRun) -> StartPlan:
        """Plan a retry. Raises `payload_too_large`."""
        plan = cls(spec=state.spec, values=state.root.values, start=start, carried=state)
        carried, _, values = parted(state)
        _check_size(
            "The state of the run",
            size(to_jsonable_python(carried)) + size(values) + state.spec.size,
            state.limits.visit_bytes,
        )
        return plan

    def repeats(self, run: RunDescription) -> bool:
        """Return whether the run of this id was started by the same call.

        Raises `idempotency_conflict` if the same key started it with another body.
        """
        before = run.start
        request = self.start.request
        if request is not None and before.get("request") == request:
            return True
        key, _, _ = (request or "").rpartition(".")
        if request is None or (key and not str(before.get("request")).startswith(f"{key}.")):
            return run.is_running and before.get("digest") == self.start.digest
        raise Refusal(
            Code.IDEMPOTENCY_CONFLICT,
            f"This key has started the run {run.run_id!r} already, with another body. Send the "
            "same body, or another key.",
            run_id=run.run_id,
        )

    def claimed(self, token: str | None) -> StartPlan:
        """Return the plan with the token of a claim on the conversation."""
        return replace(self, start=self.start.model_copy(update={"claim": token}))

    def announcing(self, events: Sequence[str]) -> StartPlan:
        """Return the plan of a run that announces events of these types, which may be patterns."""
        return replace(self, start=self.start.model_copy(update={"notify": tuple(events)}))

    def stamped(self) -> StartPlan:
        """Return the plan of a run that accepts only sealed commands."""
        return replace(self, start=self.start.stamped(wire.Stamp(order=names.START_ORDER)))

    def view(self, now: datetime) -> views.RunView:
        """Return the new run as its worker begins it."""
        start = self.start
        state = machine.new_run(
            run_id=start.run_id,
            spec=self.spec,
            limits=start.limits,
            values=self.values,
            now=now,
            salt=start.salt,
            started_by=start.started_by,
        )
        return run_view(state, start)

    @property
    def arguments(self) -> list[Any]:
        """The arguments of the workflow; the last is the snapshot of a continued run."""
        if self.carried is not None:
            carried, spec, values = parted(self.carried)
            return [self.start, spec, values, carried]
        spec = pinned_graph(self.spec)
        return [self.start, spec, {f"graph:{spec.name}": self.values}, None]

    @property
    def memo_of_start(self) -> dict[str, Json]:
        """The part of the memo that never changes."""
        about = self.start.model_dump(
            mode="json",
            exclude_defaults=True,
            exclude={
                *("run_id", "limits", "claim", "generation", "used", "salt", "retry_of"),
                *("interrupt_before", "interrupt_after", "on_error", "notify"),
            },
        )
        state = self.carried
        guards = self.spec.guarded_by if state is None else policy.guarded_by(state)
        return {
            **about,
            **({} if state is None else {"created_at": state.created_at.isoformat()}),
            "graph": self.spec.name,
            "guarded_by": guards_for_memo(guards),
            "max_queue_size": self.start.limits.max_queue_size,
        }

    @property
    def memo(self) -> dict[str, Json]:
        """The memo, which lists show and by which a repeated start is recognised."""
        return {names.MEMO_START: self.memo_of_start}

    @property
    def summary(self) -> str:
        """One line for Temporal's UI."""
        return f"graph {self.spec.name}, version {self.start.graph_version}"

    @property
    def search_attributes(self) -> TypedSearchAttributes:
        """The search attributes of the run at its start."""
        values = {names.STATUS: str(Status.RUNNING), names.GRAPH: self.spec.name}
        return TypedSearchAttributes(
            [
                SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
                for name, value in values.items()
            ]
        )


def _as_json(arguments: Mapping[str, Any], values: Mapping[str, Json]) -> Json:
    # Two starts with the same arguments are the same: defaults may differ each time.
    plain = to_jsonable_python(dict(arguments), serialize_unknown=True)
    return plain if why_not_json(plain) is None else values


def _check_size(label: str, actual: int, most: int) -> None:
    if actual > most:
        raise Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"{label}: {actual} bytes, and a start may take {most}. Pass a reference to large data.",
            limit=most,
            actual=actual,
        )


class Executions:
    """The executions of the runs of one deployment. `notify` returns, for the name of a graph, patterns
    of the events that people are notified of.
    """

    def __init__(
        self,
        line: WorkflowRpc,
        claims: Claims,
        capacity: Capacity,
        records: Records,
        notify: Callable[[str], Sequence[str]],
    ) -> None:
        self._notify = notify
        self._line = line
        self._claims = claims
        self.capacity = capacity
        self._records = records

    async def claim(self, plan: StartPlan) -> StartPlan:
        """Claim the place of a run in its conversation, if it has one. Return the plan with the claim.

        Raises `conversation_busy` and `too_many_runs`; and RecordsUnavailable for the session type
        `agent`, of which a conversation may have only one active run.
        """
        if plan.start.conversation_id is None:
            return plan
        claim = Claim(
            run_id=plan.start.run_id,
            session_type=plan.start.session_type,
            token=uuid.uuid4().hex,
            allow_concurrent=plan.start.allow_concurrent,
            claimed_at=datetime.now(UTC),
        )
        try:
            await self._claims.claim(plan.start.conversation_id, claim)
        except RecordsUnavailable:
            if claim.session_type == EXCLUSIVE:
                # Even a run with `allow_concurrent` keeps out runs without it.
                raise
            return plan
        return plan.claimed(claim.token)

    async def give_back(self, plan: StartPlan) -> None:
        """Give back the room and the place of a run that did not start."""
        start = plan.start
        self.capacity.forget(start.run_id)
        if start.conversation_id is not None and start.claim is not None:
            await self._claims.release([start.claim])

    async def send(
        self,
        plan: StartPlan,
        policy: WorkflowIDReusePolicy,
        *,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start the workflow. `check` is called before each attempt. Raises
        WorkflowAlreadyStartedError, and Unavailable.
        """
        # An invalid database URL raises here, before there is a run.
        self._records.database  # noqa: B018
        plan = plan.announcing(self._notify(plan.spec.name))
        if is_all_sealed(self._line.temporal.data_converter):
            plan = plan.stamped()
        run_id = plan.start.run_id
        options: dict[str, Any] = {
            "args": plan.arguments,
            "id": run_id,
            "task_queue": self._line.task_queue,
            "memo": plan.memo,
            "search_attributes": plan.search_attributes,
            "static_summary": plan.summary,
            "id_reuse_policy": policy,
            "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
        }

        async def send() -> None:
            if check is not None:
                await check()
            started = await self._line.temporal.start_workflow(
                plan.spec.name, **options, rpc_timeout=RPC
            )
            first = started.first_execution_run_id or ""
            self._line.learn(run_id, first, execution=first, start=plan.memo_of_start)

        with refusals(f"the start of the run {run_id!r}"):
            await retry_until(f"the run {run_id!r}", send, seconds=self._line.patience)
        if plan.carried is None:
            first = (await self._line.cached_run(run_id)).first
            await self._records.started(plan.view(datetime.now(UTC)), first)

    async def again(self, plan: StartPlan, ended: RunDescription, mark: str, room: Room) -> None:
        """Start the next execution of an ended run. `mark` identifies this call in it.

        Raises `not_finished` if another call has started one meanwhile, and what `claim` and `make_room`
        raise.
        """

        async def check() -> None:
            # Two retries must not both go on from the same end.
            if (await self._line.described(ended.run_id)).execution != ended.execution:
                raise WorkflowAlreadyStartedError(ended.run_id, plan.spec.name)

        plan = await self.claim(plan)
        try:
            await self.capacity.make_room(ended.run_id, room)
        except AbeyanceError:
            await self.give_back(plan)
            raise
        try:
            await self.send(plan, WorkflowIDReusePolicy.ALLOW_DUPLICATE, check=check)
        except WorkflowAlreadyStartedError:
            now = await self._line.described(ended.run_id)
            # If the response was lost, this call may have started the execution.
            if mark not in retry_marks(now):
                await self.give_back(plan)
                raise retries.not_finished(now.run_id, now.shown_status) from None
        except Refusal:
            await self.give_back(plan)
            raise

    async def already_started(self, plan: StartPlan) -> Started:
        """Return the run that has the id already, if the same call started it. Raises `run_exists`, and
        `erased` while the id is that of a run that is being erased.
        """
        run_id = plan.start.run_id
        try:
            described = await self._line.described(run_id)
        except Refusal as refusal:
            if refusal.code is Code.ERASED:
                raise
            raise Refusal(
                Code.RUN_EXISTS,
                f"The id {run_id!r} belongs to a workflow in Temporal that is not a run. Choose another "
                "id.",
                run_id=run_id,
            ) from None
        if plan.repeats(described):
            return Started(run_id=run_id, created=False)
        if not described.is_running:
            status = described.shown_status
            raise Refusal(
                Code.RUN_EXISTS,
                f"A run {run_id!r} has ended ({status}). Choose another id, or say reuse: true.",
                run_id=run_id,
                run_status=status,
                ended_at=described.ended_at and rfc3339(described.ended_at),
            )
        raise run_exists(run_id, described.shown_status)


def retry_marks(described: RunDescription) -> list[str]:
    """Return the marks of the latest retries of a run, oldest first."""
    return [str(mark) for mark in described.start.get("retry_keys") or []]
