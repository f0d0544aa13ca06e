"""Runs that Temporal has deleted: what the records know of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from abeyance.errors import Code, RecordsUnavailable, Refusal
from abeyance.records.removing import Standing

DELETED: Final = frozenset({Code.UNKNOWN_RUN, Code.GONE, Code.ERASED})
"""The codes of the refusals of a run that Temporal does not have."""


class DeletedRuns:
    """The deleted runs of a deployment. `standing` is what the records know of an id."""

    def __init__(self, standing: Callable[[str], Awaitable[Standing]]) -> None:
        self._standing = standing

    async def refuse_erased(self, run_id: str) -> None:
        """Raise `erased` if the run of this id was or is being erased, and no later run has the id."""
        try:
            standing = await self._standing(run_id)
        except RecordsUnavailable:
            # Calls that work without the database must not wait for it.
            return
        if standing == "erased":
            raise erased(run_id)

    async def refusal(self, run_id: str) -> Refusal:
        """Return the refusal of a call to a run that Temporal does not have: `gone` if the records have
        it, `erased`, or `unknown_run`. Raises Unavailable.
        """
        match await self._standing(run_id):
            case "kept":
                return Refusal(
                    Code.GONE,
                    f"Temporal has deleted the run {run_id!r}. Its view, its result, its interrupts, its "
                    "events and its audit can be read; it takes no more calls.",
                    run_id=run_id,
                )
            case "erased":
                return erased(run_id)
            case "unknown":
                return unknown_run(run_id)


def unknown_run(run_id: str) -> Refusal:
    """Return the refusal of a run that does not exist."""
    return Refusal(
        Code.UNKNOWN_RUN,
        f"There is no run {run_id!r}, or its history is no longer kept.",
        run_id=run_id,
    )


def erased(run_id: str) -> Refusal:
    """Return the refusal of a run that was erased."""
    return Refusal(
        Code.ERASED,
        f"The run {run_id!r} was erased, or is being erased: nothing of it can be read.",
        run_id=run_id,
    )
