"""What the failure of an update says."""

from __future__ import annotations

from typing import Final

from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from abeyance import names
from abeyance.errors import Code, Refusal

_CODES: Final = frozenset(Code)
_LOST: Final = frozenset({"UnprocessedUpdate", "AcceptedUpdateCompletedWorkflow"})
"""The server's errors for an update that was lost with its workflow task or with its history, because the
worker was busy or the run was continued as new at that moment.
"""


def is_lost(error: WorkflowUpdateFailedError) -> bool:
    """Return whether the server lost an update, which may be sent again under the same id."""
    return isinstance(error.cause, ApplicationError) and error.cause.type in _LOST


def is_rejected(error: WorkflowUpdateFailedError) -> bool:
    """Return whether a validator rejected an update, so that no history has it."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return False
    return cause.type == names.REPLAYED or names.REJECTED in cause.details[1:]


def refusal_of(error: WorkflowUpdateFailedError) -> Refusal | None:
    """Return the refusal of an update; None if it failed otherwise."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in _CODES:
        return None
    details = cause.details[0] if cause.details else {}
    return Refusal(Code(cause.type), cause.message, **details)
