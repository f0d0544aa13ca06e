"""Which orders a run takes: one that was sealed takes no other, and each of them once.

Whoever may write to the namespace can send what somebody else has sent before: to another run, to this
one a second time, or by another name. What is sealed for another run is refused before it comes here
(`abeyance.storage.encryption`). The rest is what stamps are for: each names the order and the execution
that it is good for, and a number that is used once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core.outcome import Failed
    from abeyance.errors import Code, FailureCode, Refusal

_REMEMBERED: Final = 200


class Orders:
    """The orders of one run, in all its histories."""

    def __init__(self, start: wire.StartRun) -> None:
        self.used = start.used
        # A run keeps to what it began with, or a replay would judge otherwise than the run itself did.
        self._takes_sealed_only = start.stamp is not None
        self._execution = workflow.info().first_execution_run_id

    def check(self, name: str, stamp: wire.Stamp | None) -> None:
        """Raise the Refusal of an order that is not taken."""
        self.check_sealed(name, stamp)
        if stamp is None:
            return
        is_older = len(self.used) == _REMEMBERED and stamp.nonce < self.used[0]
        if is_older or stamp.nonce in self.used:
            raise Refusal(
                Code.NOT_SEALED,
                f"This {name!r} has come before, or is older than {_REMEMBERED} others that have, and "
                "counts once. Whoever means it again sends a new one.",
            )

    def check_sealed(self, name: str, stamp: wire.Stamp | None) -> None:
        """The same, except that a repeat passes: for where it is told what came of the first."""
        if stamp is None:
            if self._takes_sealed_only:
                raise Refusal(
                    Code.NOT_SEALED,
                    f"The run takes only what is sealed for it, and this {name!r} was not: send it by a "
                    "client or an API with the same ABEYANCE_ENCRYPTION_KEYS and "
                    "ABEYANCE_ENCRYPTION_REQUIRED.",
                )
        elif (stamp.order, stamp.execution) != (name, self._execution):
            raise Refusal(
                Code.NOT_SEALED,
                f"This was sealed as {stamp.order!r} for the execution {stamp.execution!r}, and came as "
                f"{name!r} to {self._execution!r}: it is a copy of what was sent before.",
            )

    def own(self, visit: str, report: wire.VisitReport) -> wire.VisitReport:
        """How a visit ended, as it was reported: by a copy of what another one has returned it fails."""
        stamp = report.stamp
        whose = None if stamp is None else (stamp.order, stamp.execution)
        if whose == (visit, self._execution) or (stamp is None and not self._takes_sealed_only):
            return report
        message = (
            f"what was handed in as the result of {visit!r} was not sealed for this visit; set "
            "ABEYANCE_ENCRYPTION_REQUIRED for all workers, and look who else completes activities"
        )
        failed = Failed(code=FailureCode.NODE_FAILED, message=message)
        return wire.VisitReport(outcome=failed, took=report.took)

    def use(self, name: str, stamp: wire.Stamp | None) -> None:
        """Take an order, and no copy of it from now on. Raises as `check` does."""
        self.check(name, stamp)
        if stamp is not None:
            # They grow with time: what is forgotten is older than all that is remembered.
            self.used = tuple(sorted((*self.used, stamp.nonce))[-_REMEMBERED:])


def check_shown(
    stamp: wire.Stamp | None, answered: Collection[str], asked: Mapping[str, str]
) -> None:
    """Raise `stale` if an answer was sealed for other questions than those that it would answer.

    `asked` are the digests of the open ones by their ids.
    """
    for id_ in answered:
        if stamp is not None and id_ in asked and stamp.shown.get(id_) != asked[id_]:
            raise Refusal(
                Code.STALE,
                f"The answer was sealed for something else than what {id_!r} asks now. Read the "
                "interrupt again.",
                interrupt_id=id_,
                digest=asked[id_],
            )
