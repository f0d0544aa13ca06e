"""A deployment with a key that signs audits, whose runs a test can delete from Temporal."""

from __future__ import annotations

import base64
import json
from typing import Any

from temporal_site import Site, eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus

from abeyance import Graph
from abeyance.client import Client
from abeyance.client.rpc import DELETED
from abeyance.errors import Refusal
from abeyance.keyring import VerifyingKey
from abeyance.records.audit_chain import verify
from abeyance.settings import Settings
from abeyance.storage.blobs import Blobs

SIGNING_KEY = base64.b64encode(bytes(range(32))).decode()


def verified(audit: bytes, key: str | None = None) -> list[dict[str, Any]]:
    """Verify an audit, and return its lines."""
    found = verify(audit, None if key is None else VerifyingKey.parse(key))
    assert found.faults == ()
    return [json.loads(line) for line in audit.splitlines()]


class AuditedSite(Site):
    """A site with a key that signs audits."""

    def __init__(
        self,
        temporal: TemporalClient,
        *graphs: Graph,
        blobs: Blobs | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(temporal, *graphs, blobs=blobs)
        self.settings = Settings(
            **{
                "task_queue": self.settings.task_queue,
                "shutdown_grace": 0.2,
                "audit_key": SIGNING_KEY,
                **settings,
            }
        )
        key = self.settings.signing_key
        self.public = None if key is None else key.public
        self.client = Client(
            temporal,
            task_queue=self.settings.task_queue,
            patience=30,
            blobs=self.blobs,
            signing_key=key,
        )

    async def audit(self, run_id: str) -> list[dict[str, Any]]:
        """Return the lines of a run's audit, verified with the public key."""
        return verified(await self.client.run(run_id).audit(), self.public)

    async def _delete(self, run_id: str, execution: str) -> None:
        await self.temporal.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=self.temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
            )
        )

    async def forgotten(self, run_id: str) -> None:
        """Delete an ended run from Temporal, as Temporal does after its retention period."""
        query = f"WorkflowId = '{run_id}'"

        async def listed() -> bool:
            states = {found.status async for found in self.temporal.list_workflows(query)}
            return bool(states) and WorkflowExecutionStatus.RUNNING not in states

        # Temporal's list lags some moments behind the histories.
        await eventually(listed)
        async for found in self.temporal.list_workflows(query):
            await self._delete(run_id, found.run_id or "")

        async def is_gone() -> bool:
            try:
                await self.client.line.described(run_id)
            except Refusal as refusal:
                return refusal.code in DELETED
            return False

        await eventually(is_gone)
