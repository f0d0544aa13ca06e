"""Tell a run that Temporal has reset it: what it recorded since then is discarded.

A reset gives the workflow another seed for its random numbers, at that very point and in every replay.
From there on an answer to what people were shown before is stale, and what is asked has ids of its own.
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
    """The resets that one execution has behind it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known = 0
        self._salt = ""
        self._early: list[Callable[[], None]] | None = None
        # A reset to the beginning comes before there is a state to tell.
        self._is_new()

    @property
    def count(self) -> int:
        """How many resets the execution has behind it."""
        return self._known

    @property
    def holds_start(self) -> bool:
        """Whether the run has not started, because what is set at its start is being read."""
        return self._early is not None

    def hold_start(self) -> None:
        """Let what comes wait until `release`."""
        self._early = []

    def put_off(self, come: Callable[[], None]) -> bool:
        """Return whether the run has not started: then `come` is called once it has."""
        if self._early is None:
            return False
        self._early.append(come)
        return True

    def release(self) -> Sequence[Callable[[], None]]:
        """Let nothing wait any more, and return what has: call it in this order after the start."""
        early, self._early = self._early, None
        return early or ()

    @property
    def is_redone(self) -> bool:
        """Whether a task is done again by which the run may ask the question that it was rewound to."""
        return bool(self._salt)

    def begin(self, state: RunState) -> bool:
        """Tell a run that begins, and return whether it is one that was reset to its beginning."""
        if self._salt:
            run_retry.begin_era(state, self._salt, workflow.now())
        return bool(self._salt)

    def notice(self, state: RunState) -> None:
        """Tell the run before anything else that comes with the same workflow task."""
        if self._is_new():
            run_retry.begin_era(state, self._salt, workflow.now())

    def settle(self, state: RunState) -> None:
        """Tell the run once everything has been applied that came with the task.

        If the task is the one that asked, the question comes with it again, and keeps its id.
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
