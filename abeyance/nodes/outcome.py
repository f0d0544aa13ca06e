"""How a visit's code ended, as the event that the core is told."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from abeyance import wire
from abeyance.core import events


def visit_ended(
    visit: str, outcome: wire.VisitOutcome, now: datetime
) -> events.NodeFinished | events.NodeInterrupted | events.NodeStopped | events.NodeFailed:
    """The event that an outcome means."""
    match outcome:
        case wire.Finished():
            return events.NodeFinished(
                now=now,
                visit=visit,
                patch=outcome.patch,
                goto=outcome.goto,
                routed=outcome.routed,
                sends=outcome.sends,
                fired=outcome.fired,
                read=outcome.read,
                result=outcome.result,
                unread=outcome.unread,
                uncounted=outcome.uncounted,
            )
        case wire.Interrupted():
            return events.NodeInterrupted(
                now=now,
                visit=visit,
                asked=outcome.asked,
                journal=outcome.journal,
                saved=outcome.saved,
                composite=outcome.composite,
                reason=outcome.reason,
                read=outcome.read,
                patch=outcome.patch,
            )
        case wire.Stopped():
            return events.NodeStopped(
                now=now,
                visit=visit,
                journal=outcome.journal,
                patch=outcome.patch,
                begun=outcome.begun,
            )
        case wire.Failed():
            return events.NodeFailed(
                now=now,
                visit=visit,
                code=outcome.code,
                message=outcome.message,
                journal=outcome.journal,
                fatal=outcome.fatal,
                patch=outcome.patch,
            )
        case _:
            assert_never(outcome)
