"""Notifications that did not reach everybody, as Temporal's visibility lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names
from abeyance.errors import Unavailable
from abeyance.history.description import RPC
from abeyance.util import notification_queue

_UNDELIVERED: Final = (
    f"WorkflowType = '{names.NOTIFICATION_WORKFLOW}' "
    f"AND (ExecutionStatus IN ('Failed', 'Terminated') OR {names.STATUS} = 'failed')"
)
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNotification:
    """A notification about an event of a run, and why some receivers did not get it."""

    event: str
    run_id: str
    reasons: tuple[str, ...]


async def undelivered(
    temporal: TemporalClient, task_queue: str, *, limit: int
) -> list[LostNotification]:
    """Return the latest of them that Temporal still knows, newest first. Raises Unavailable."""
    queue = notification_queue(task_queue).replace("'", "''")
    found = []
    try:
        async for row in temporal.list_workflows(
            f"{_UNDELIVERED} AND TaskQueue = '{queue}'", limit=limit, rpc_timeout=RPC
        ):
            memo = await row.memo()
            found.append(_lost_notification(memo))
    except RPCError as error:
        raise Unavailable(f"Temporal does not list notifications: {error.message}") from error
    return found


def _lost_notification(memo: Any) -> LostNotification:
    moment = memo.get(names.MEMO_MOMENT) or {}
    rows = memo.get(names.MEMO_UNDELIVERED) or []
    return LostNotification(
        event=str(moment.get("event")),
        run_id=str(moment.get("run_id")),
        reasons=tuple(f"{row['receiver']}: {row['reason']}" for row in rows[:_SHOWN]),
    )
