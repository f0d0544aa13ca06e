"""`DelegationsWorkflow`: the delegations of a deployment.

The first one starts it, and it ends when the last has ended; the next one starts it again. Its handlers
never await, so they cannot interleave.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names
    from abeyance.core.delegations import Delegation, Delegations, Wanted
    from abeyance.workflows.requests import refusals_as_application_errors

_IDLE: Final = timedelta(minutes=1)
_MOST_EVENTS: Final = 1_000


@workflow.defn(name=names.DELEGATIONS_WORKFLOW)
class DelegationsWorkflow:
    """The book of delegations. `carried` is its state: empty, or from the previous history."""

    @workflow.init
    def __init__(self, carried: Delegations) -> None:
        self._book = carried
        self._is_changed = False

    @workflow.run
    async def run(self, carried: Delegations) -> None:
        """Wait until the last delegation has ended, or continue as new."""
        del carried
        while (left := self._left(workflow.now())) > timedelta(0) or self._is_changed:
            self._is_changed = False
            try:
                await workflow.wait_condition(
                    lambda: self._is_changed,
                    timeout=left,
                    timeout_summary="the last delegation ends",
                )
            except TimeoutError:
                continue
            if workflow.info().get_current_history_length() >= _MOST_EVENTS:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._book)
        await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.update(description="Internal: make a delegation.")
    async def delegate(self, wanted: Wanted) -> Delegation:
        with refusals_as_application_errors():
            self._set(self._book.made(wanted, workflow.now()))
        return next(each for each in self._book.all if each.id == wanted.id)

    @delegate.validator
    def _check_delegate(self, wanted: Wanted) -> None:
        with refusals_as_application_errors():
            self._book.made(wanted, workflow.now())

    @workflow.update(description="Internal: delete a delegation.")
    async def undelegate(self, order: commands.Undelegate) -> None:
        with refusals_as_application_errors():
            self._set(self._book.withdrawn(order.id, order.principal, order.key))

    @undelegate.validator
    def _check_undelegate(self, order: commands.Undelegate) -> None:
        with refusals_as_application_errors():
            self._book.withdrawn(order.id, order.principal, order.key)

    @workflow.query(description="All delegations that may count.")
    def delegations(self) -> Delegations:
        return self._book

    def _left(self, now: datetime) -> timedelta:
        """Return how long the book has to be kept. The start and its first request come together."""
        ends_at = self._book.ends_at
        begun = workflow.info().start_time + _IDLE
        return max(begun, begun if ends_at is None else ends_at) - now

    def _set(self, book: Delegations) -> None:
        self._book = book
        self._is_changed = True
