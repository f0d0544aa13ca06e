"""A run in memory as callers have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel

from abeyance import commands, wire
from abeyance.authoring.graph import Graph
from abeyance.commands import as_events
from abeyance.core import idempotency, machine, replies, snapshots
from abeyance.core.delegations import Delegations, Wanted
from abeyance.core.json import Json
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.core.state import Limits, RunState
from abeyance.duration import Duration, seconds
from abeyance.errors import Code, Refusal
from abeyance.handle import Forked
from abeyance.orders import migrate_order, order_of, respond_order, retry_order
from abeyance.runtime import graph_today, retries
from abeyance.schemas import answers as limits_
from abeyance.schemas.state_model import ValuesError
from abeyance.storage.blobs import Blobs
from abeyance.testing.control import ANYBODY, InMemoryControl
from abeyance.testing.driver import Driver
from abeyance.util import as_names
from abeyance.views import Migration

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class InMemoryRun(InMemoryControl):
    """A run that a test drives (`abeyance.RunHandle`). It changes only while one of its methods runs.

    `principal` defaults to `tester`, who has every capability. While a visit is blocked, each method that
    changes the run tries it again, and raises `abeyance.errors.Blocked` after the change if it still is.
    """

    def __init__(
        self,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        *,
        run_id: str = "test",
        limits: Limits | None = None,
        now: datetime = EPOCH,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
        started_by: str = "temporal",
    ) -> None:
        start = wire.StartRun(
            run_id=run_id,
            started_by=started_by,
            graph_version=graph.build().version,
            interrupt_before=as_names(interrupt_before),
            interrupt_after=as_names(interrupt_after),
            on_error=on_error,
        )
        spec = graph.build_for(
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            on_error=on_error,
        )
        state = machine.new_run(
            run_id=run_id,
            spec=graph_today.pinned(spec),
            limits=limits_.checked_limits(limits or Limits()),
            values=graph.states.initial(input or {}),
            now=now,
            started_by=started_by,
        )
        self._set_up(graph, state, start)

    def _set_up(
        self, graph: Graph, state: RunState, start: wire.StartRun, *, blobs: Blobs | None = None
    ) -> None:
        self._sent = self._forks = 0
        self._delegations = Delegations()
        self._graph = graph
        self._start = start
        self._driver = Driver(graph, state, start, blobs=blobs)

    @property
    def reason(self) -> str | None:
        """The reason for which the run ends or ended; None while it runs."""
        ending = self.state.ending
        return None if ending is None else ending.reason

    @property
    def values(self) -> Mapping[str, Json]:
        """The values of the run's graph, as JSON."""
        return self.state.root.values

    async def start(self) -> None:
        """Start the run, and continue until it needs an answer or the passing of time."""
        await self._driver.start()

    async def advance(self, by: Duration) -> None:
        """Move the clock, firing each deadline on the way. Raise Blocked if a visit is blocked then."""
        until = self.now + timedelta(seconds=seconds(by))
        while await self._driver.reach_deadline(until):
            pass
        self._driver.raise_blocked()

    async def respond(
        self,
        answers: Mapping[str, Any] | str | None = None,
        response: Any = ...,
        *,
        principal: Principal | None = None,
        note: str | None = None,
        digests: Mapping[str, str] | None = None,
        on_behalf_of: str | None = None,
        key: str | None = None,
    ) -> list[Receipt]:
        """Answer several interrupts (all or none), one, or the only open one, by id or name.

        `digests` bind an answer to the content that was shown. Raise the Refusal if an answer is refused.
        """
        if isinstance(answers, str):
            answers = self._id_of(answers)
        elif answers is not None:
            answers = {self._id_of(name): answer for name, answer in answers.items()}
        digests = {self._id_of(name): digest for name, digest in (digests or {}).items()}
        order = respond_order(
            answers,
            response,
            principal=principal or ANYBODY,
            note=note,
            digests=digests,
            on_behalf_of=on_behalf_of,
            key=key,
        )
        lent = self._delegations.of(order.principal.subject, self.now)
        order = order.model_copy(update={"delegations": lent})
        event = as_events.responded(order, self.state.ledger, self.now, keys=self.state.keys)
        if (called := idempotency.earlier(self.state.keys, event)) is not None:
            return idempotency.receipts_again(called)
        replies.refuse_strays(event)
        machine.check(self.state, event)
        kept = order.model_dump(mode="json", exclude={"delegations"})
        self._driver.orders.add("respond", kept)
        receipts = idempotency.receipts(self.state.ledger, event)
        if not all(receipt.replayed for receipt in receipts):
            await self._driver.feed(event)
        return receipts

    async def edit_values(
        self,
        patch: Mapping[str, Any],
        *,
        version: int | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Patch the values of a run that is paused or waits for input.

        Raise the Refusal if they are no longer at `version` (None: the current one) or do not fit.
        """
        try:
            checked = self._graph.states.patch(patch)
        except ValuesError as error:
            raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error
        read = self.state.root.version if version is None else version
        about = {"patch": checked, "version": read, "principal": principal or ANYBODY}
        order = order_of(commands.EditValues, {**about, "key": key})
        self._driver.orders.add("edit_values", order.model_dump(mode="json"))
        await self.edit(order)

    async def edit(self, order: commands.Edit) -> None:
        """Edit values, or a question by its id or name, by a command. Raise the Refusal of the run."""
        if not isinstance(order, commands.EditValues):
            order = order.model_copy(update={"interrupt_id": self._id_of(order.interrupt_id)})
        if isinstance(order, commands.Claim):
            lent = self._delegations.of(order.principal.subject, self.now)
            order = order.model_copy(update={"delegations": lent})
        await self._driver.feed(as_events.edited(order, self.now))

    def delegate(
        self,
        by: Principal,
        to: str,
        *,
        capabilities: Sequence[str] | None = None,
        until: Duration = "30d",
    ) -> None:
        """Let `to` answer in the place of `by`, for so long by the clock of the run.

        Raise the Refusal if `by` cannot lend that.
        """
        self._delegations = self._delegations.made(
            Wanted(
                id=f"d{len(self._delegations.all) + 1}",
                maker=by,
                to=to,
                capabilities=None if capabilities is None else tuple(capabilities),
                until=self.now + timedelta(seconds=seconds(until)),
            ),
            self.now,
        )

    def deploy(self, graph: Graph) -> None:
        """Run the code of another version of the graph from now on, as after a deploy.

        The run keeps the graph that it was started with, until it is migrated or retried with today's.
        """
        self._graph = graph
        self._driver.deploy(graph)

    async def migrate(
        self,
        *,
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        dry_run: bool = False,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> Migration:
        """Move the open run to the graph that was deployed last, and return what that does.

        Raise the Refusal if the run cannot be migrated.
        """
        order = migrate_order(
            patch=patch, renames=renames, dry_run=dry_run, principal=principal or ANYBODY, key=key
        )
        today = self._today(self.state, patch=order.patch, renames=order.map)
        versions = (self._start.graph_version, today.version)
        event = as_events.migrated(
            order, self.now, spec=today.spec, patch=today.patch, versions=versions
        )
        if not dry_run and idempotency.earlier(self.state.keys, event) is not None:
            version = self._start.graph_version
            return Migration(run_id=self.run_id, before=version, after=version)
        self._refuse_ended()
        outcome = graph_today.migration(self.state, self._start, today, event, dry_run=dry_run)
        if not dry_run:
            self._begin({"graph_version": today.version})
            await self._driver.feed(event)
        return outcome

    async def retry(
        self,
        *,
        graph: Literal["pinned", "today"] = "pinned",
        patch: Mapping[str, Any] | None = None,
        renames: Mapping[str, str] | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Let the run go on from where it ended; today's graph is the one that was deployed last.

        Raise the Refusal if it completed, is open, or cannot be moved to today's graph.
        """
        order = retry_order(graph=graph, patch=patch, renames=renames)
        caller = principal or ANYBODY
        mark = retries.mark(order, caller, key)
        if retries.was_retried(self._start.retry_keys, mark, key):
            return
        state, version = retries.retried(
            self.state, self._start, order, self._graph, principal=caller, now=self.now
        )
        marks = retries.marked(self._start.retry_keys, mark)
        self._begin({"graph_version": version, "retry_keys": marks})
        await self._driver.go_on(state)

    async def fork(
        self, *, back: int = 0, run_id: str | None = None, principal: Principal | None = None
    ) -> Forked:
        """Start a new run with the past of this one, which stays as it is, with a clock of its own.

        Raise the Refusal if it cannot go back so far.
        """
        order = order_of(commands.ForkBody, {"back": back, "run_id": run_id})
        self._forks += 1
        new_id = order.run_id or f"{self.run_id}-fork{self._forks}"
        state = snapshots.forked(
            self.state,
            run_id=new_id,
            salt=new_id,
            back=order.back,
            now=self.now,
            principal=principal or ANYBODY,
        )
        changes = {"run_id": new_id, "forked_from": self.run_id, "retry_keys": ()}
        copy = InMemoryRun.__new__(InMemoryRun)
        await copy._go_on(  # noqa: SLF001 it is made here
            self, state, self._start.model_copy(update=changes)
        )
        return Forked(run=copy, interrupts=await copy.interrupts())

    async def _go_on(self, origin: InMemoryRun, state: RunState, start: wire.StartRun) -> None:
        self._set_up(origin._graph, state, start, blobs=origin._driver.blobs)
        await self._driver.go_on(state, is_new=True)

    def _today(
        self, state: RunState, *, patch: Mapping[str, Json], renames: Mapping[str, str]
    ) -> wire.GraphToday:
        order = graph_today.order_of(state, self._start, patch=patch, renames=renames)
        return graph_today.read_graph(self._graph, order)

    def _begin(self, changes: Mapping[str, Any]) -> None:
        self._start = self._start.model_copy(update=changes)
        self._driver.begin(self._start)
