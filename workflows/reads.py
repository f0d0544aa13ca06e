"""What a run tells of itself: its queries, and the one update that waits for a status."""

from __future__ import annotations

from typing import Protocol

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, projections, views, wire
    from abeyance.core import events, items
    from abeyance.core.json import Json
    from abeyance.core.state import RunState
    from abeyance.workflows import continue_as_new
    from abeyance.workflows.continue_as_new import History
    from abeyance.workflows.recording import Recorder


class RunReads(Protocol):
    """Reading a run. A protocol, as `QuestionUpdates` is one."""

    _state: RunState
    _start: wire.StartRun
    _history: History
    _recorder: Recorder

    def _check_sealed(self, name: str, order: wire.Request | None) -> None:
        """Check the stamp of a request. Raise an ApplicationError if it is refused."""
        ...

    @workflow.update(description="Internal: whoever starts the run waits for a status of it.")
    async def wait(self, order: commands.Wait) -> views.RunView:
        await workflow.wait_condition(
            lambda: (
                self._state.status in order.until or self._state.finished or self._continues_as_new
            )
        )
        self._history.updates += 1
        return projections.run_view(self._state, self._start)

    @wait.validator
    def _check_wait(self, order: commands.Wait) -> None:
        self._check_sealed("wait", order)

    @property
    def _continues_as_new(self) -> bool:
        return continue_as_new.is_now(self._state, self._history)

    @workflow.query(description="The whole view of the run.")
    def view(self) -> views.RunView:
        return projections.run_view(self._state, self._start)

    @workflow.query(description="Open interrupts, then the remembered settled ones.")
    def interrupts(self) -> list[views.InterruptView]:
        return [
            *projections.open_interrupts(self._state),
            *projections.settled_interrupts(self._state),
        ]

    @workflow.query(description="One interrupt, with all details.")
    def interrupt(self, which: commands.WhichInterrupt) -> views.InterruptView:
        return projections.interrupt(self._state, which.interrupt_id)

    @workflow.query(description="Everything that the run is, for a retry.")
    def snapshot(self) -> views.Snapshot:
        return views.Snapshot.of(self._state, self._start)

    @workflow.query(description="How many events the run has.")
    def events_so_far(self) -> int:
        return self._recorder.facts

    @workflow.query(description="Unread messages, in reading order.")
    def messages(self) -> list[events.Message]:
        return list(self._state.mailbox.queue)

    @workflow.query(description="References of agent transcripts, by address.")
    def transcripts(self) -> dict[str, str]:
        return items.transcripts(self._state)

    @workflow.query(
        description="Results of tool calls that no model has read yet, by agent and call."
    )
    def call_results(self) -> dict[str, dict[str, Json]]:
        return items.call_results(self._state)
