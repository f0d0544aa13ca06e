"""Tell a run that Temporal has reset it: the events recorded after that point are discarded.

A reset gives the workflow another seed for its random numbers, at that very point and in every replay.
From there on, answers to questions that people saw before are stale, and new questions have new ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance import names
    from abeyance.core import run_retry
    from abeyance.core.state import RunState
    from abeyance.workflows.recording import Recorder


class Rewinds:
    """The resets that one execution has had so far."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known = 0
        self._salt = ""
        self._early: list[Callable[[], None]] | None = None
        # A reset to the beginning comes before there is a state to tell it to.
        self._is_new()

    @property
    def count(self) -> int:
        """The number of resets so far."""
        return self._known

    @property
    def holds_start(self) -> bool:
        """Whether the run has not started yet, because the patch of its start is still being read."""
        return self._early is not None

    def hold_start(self) -> None:
        """Put off all calls of `put_off` until `release`."""
        self._early = []

    def put_off(self, call: Callable[[], None]) -> bool:
        """Return whether the start is held; if so, keep `call`, to be made after the start."""
        if self._early is None:
            return False
        self._early.append(call)
        return True

    def release(self) -> Sequence[Callable[[], None]]:
        """Hold the start no more. Return the calls put off, to be made in this order after the start."""
        early, self._early = self._early, None
        return early or ()

    @property
    def is_redone(self) -> bool:
        """Whether the run repeats a task, which may ask the question that the run was rewound to."""
        return bool(self._salt)

    def begin(self, state: RunState) -> bool:
        """Tell a run that begins of a reset to its beginning. Return whether there was one."""
        if self._salt:
            run_retry.begin_era(state, self._salt, workflow.now())
        return bool(self._salt)

    def notice(self, state: RunState) -> None:
        """Tell the run of a new reset, before the other events of the same workflow task."""
        if self._is_new():
            run_retry.begin_era(state, self._salt, workflow.now())

    def settle(self, state: RunState) -> None:
        """Give the run the salt of new ids, after all events of the task are applied.

        If this is the task that asked the question, it asks again, and the question keeps its id.
        """
        if self._salt:
            run_retry.take_salt(state, self._salt)
            self._salt = ""

    def _is_new(self) -> bool:
        seeds = workflow.extern_functions().get(names.SEEDS, tuple)()
        if len(seeds) == self._known:
            return False
        self._known, self._salt = len(seeds), f"{seeds[-1]:x}"
        self._recorder.rewound(self._salt, len(seeds))
        return True
