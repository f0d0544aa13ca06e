"""The same run on DBOS, with SQLite: a workflow, a step for each node, a message for the answer.

All in one process, as it is used. It looks for news in the database once a second unless it is told
otherwise: here a hundred times.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from approval.workload import AFTER, BEFORE, GATE_STAYS_OPEN, Claim, Decision, Trace, visit
from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowHandleAsync
from stage import Processes

_LOOKS_EVERY: Final = 0.01
_GATE: Final = "approve"


def _node(name: str) -> Callable[[Claim], Coroutine[Any, Any, dict[str, Any]]]:
    @DBOS.step(name=name)
    async def node(claim: Claim) -> dict[str, Any]:
        return visit(name, claim.claim_id)

    return node


_NODES: Final = {name: _node(name) for name in (*BEFORE, *AFTER)}


@DBOS.workflow(name="claim")
async def _claim_approval(claim: Claim) -> Claim:
    for name in BEFORE:
        claim = await _visited(name, claim)
    await DBOS.set_event_async(_GATE, f"Pay {claim.amount} for the claim {claim.claim_id}?")
    given = await DBOS.recv_async(_GATE, timeout_seconds=GATE_STAYS_OPEN.total_seconds())
    claim = claim.model_copy(update={"decision": Decision.model_validate(given)})
    for name in AFTER:
        claim = await _visited(name, claim)
    return claim


async def _visited(name: str, claim: Claim) -> Claim:
    patch = await _NODES[name](claim)
    return claim.model_copy(update={**patch, "log": [*claim.log, *patch["log"]]})


class OnDbos:
    """What the driver asks of DBOS."""

    def __init__(self) -> None:
        self.processes = Processes()
        self._handles: dict[str, WorkflowHandleAsync[Claim]] = {}

    async def until_gate(self, run: str, claim: Claim) -> None:
        with SetWorkflowID(run):
            self._handles[run] = await DBOS.start_workflow_async(_claim_approval, claim)
        if await DBOS.get_event_async(run, _GATE) is None:
            message = f"the run {run!r} does not wait at its gate"
            raise ValueError(message)

    async def answer(self, run: str, decision: Decision) -> Claim:
        await DBOS.send_async(run, decision.model_dump(), _GATE)
        return await self._handles.pop(run).get_result()

    async def trace(self, run: str) -> Trace | None:
        return None


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnDbos]:
    """DBOS on a database that is as safe as Temporal's here."""
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", _tuned)
    config: DBOSConfig = {
        "name": "approval",
        "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
        "notification_listener_polling_interval_sec": _LOOKS_EVERY,
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    try:
        yield OnDbos()
    finally:
        DBOS.destroy()


def _tuned(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
