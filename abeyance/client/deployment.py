"""The dependencies that the parts of one client share."""

from __future__ import annotations

from dataclasses import dataclass

from abeyance.client.claims import Claims
from abeyance.client.delegations import Delegations
from abeyance.client.erasures import Erasures
from abeyance.client.feed import Feed
from abeyance.client.grants import Grants
from abeyance.client.janitor import Janitor
from abeyance.client.listing import Listing
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.client.start import Executions
from abeyance.keyring import SigningKey
from abeyance.storage.blobs import Blobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The dependencies that the parts of one client share, for the runs of one task queue.

    `blobs` is where workers store transcripts; `signing_key` signs audits.
    """

    line: WorkflowRpc
    listing: Listing
    records: Records
    blobs: Blobs
    feed: Feed
    janitor: Janitor
    claims: Claims
    delegations: Delegations
    grants: Grants
    signing_key: SigningKey | None
    executions: Executions
    erasures: Erasures
