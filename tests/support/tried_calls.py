"""Calls to one run of which nobody knows beforehand whether they are taken, and what became of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from temporal_site import Site
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import Refusal, names
from abeyance.core.json import Json
from abeyance.errors import Code, Unavailable
from abeyance.history.description import describe
from abeyance.temporal.workarounds.calls import PAUSED_NATIVELY

PATIENCE: Final = 4.0
_UNSERVED: Final = 0.3
_REFUSALS: Final = frozenset({*map(str, Code), names.REPLAYED, names.EMPTY, names.STILL_ACTIVE})
_LOST: Final = frozenset({"UnprocessedUpdate", "AcceptedUpdateCompletedWorkflow"})
"""What the server says of an update that went under with its task, or with its history."""
_PASSING: Final = frozenset(
    {
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.INVALID_ARGUMENT,
        # "Something went wrong, please retry", says the server, if a native pause races.
        RPCStatusCode.INTERNAL,
    }
)

Became: TypeAlias = Literal["done", "refused", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What became of a call; `unknown` is what nobody answered in time. `what` was sent.

    `is_sent`: it is in the history, whatever became of it.
    """

    became: Became
    code: str = ""
    value: Any = None
    what: str = ""
    is_sent: bool = False

    def __str__(self) -> str:
        return f"{self.became} {self.code} {self.what}".strip()


class Caller:
    """Somebody who calls one run. `is_served`: somebody is there who can answer."""

    def __init__(self, site: Site, run_id: str) -> None:
        self.site = site
        self.run_id = run_id
        self.is_served = False

    @property
    def handle(self) -> Any:
        """The run in Temporal itself."""
        return self.site.temporal.get_workflow_handle(self.run_id)

    async def is_natively_paused(self) -> bool:
        described = await describe(self.site.temporal, self.site.settings.task_queue, self.run_id)
        return described.status == PAUSED_NATIVELY

    async def signal(self, name: str, *arguments: Json) -> Said:
        """Send a signal as Temporal's own tools send it."""
        call = self.handle.signal(name, args=[raw(each) for each in arguments])
        return await self.tried(call, what=f"signal {name} {arguments}", is_sent=True)

    async def update(self, name: str, *arguments: Json, malformed: bool = False) -> Said:
        """Send an update as Temporal's own tools send it."""
        call = self.handle.execute_update(name, args=[raw(each) for each in arguments])
        return await self.tried(call, what=f"update {name} {arguments}", malformed=malformed)

    async def tried(
        self,
        call: Awaitable[Any],
        *,
        what: str = "",
        is_sent: bool = False,
        malformed: bool = False,
    ) -> Said:
        """What becomes of a call. Raises what it should never say.

        `malformed` may be refused in any words.
        """
        became: Became = "unknown"
        try:
            # Where nobody can answer, what is sent is only left there.
            async with asyncio.timeout(PATIENCE + 2 if self.is_served else _UNSERVED):
                return Said(became="done", value=await call, what=what, is_sent=is_sent)
        except Refusal as refusal:
            became, code = "refused", str(refusal.code)
        except (Unavailable, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            code = type(error).__name__
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            code = str(error)
        except WorkflowUpdateFailedError as error:
            code = _type_of(error)
            if code not in _LOST:
                became = "refused"
                assert malformed or code in _REFUSALS, f"{what}: {error.cause!r}"
        except RPCError as error:
            if error.status not in _PASSING:
                raise
            code = error.status.name
        return Said(became=became, code=code, what=what, is_sent=is_sent)


def raw(value: Json) -> RawValue:
    """A value as a stranger's program writes it, be it no JSON that we would write."""
    payload = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())
    return RawValue(payload)


def _type_of(error: WorkflowUpdateFailedError) -> str:
    cause = error.cause
    return str(cause.type) if isinstance(cause, ApplicationError) else repr(cause)
