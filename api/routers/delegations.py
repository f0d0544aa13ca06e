"""Delegations: who may answer in whose place."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body, Path

from abeyance import commands, views
from abeyance.api import examples
from abeyance.api.auth import RESPOND, RESPONDS, Caller, require
from abeyance.api.dependencies import VALID_KEY, ClientDep, Key
from abeyance.api.rights import Reads
from abeyance.api.schemas import Listed
from abeyance.core.delegations import ADMIN

router = APIRouter(prefix="/delegations", tags=["delegations"])

DelegateBody: TypeAlias = Annotated[commands.DelegateBody, Body(examples=[examples.DELEGATE])]
DelegationId: TypeAlias = Annotated[
    str, Path(description="The id of a delegation.", max_length=100)
]


@router.post("", status_code=201, dependencies=[RESPOND], response_description="The delegation.")
async def delegate(
    body: DelegateBody, caller: Caller, client: ClientDep, reads: Reads, key: Key
) -> views.DelegationView:
    """Let somebody else answer in the caller's place, until a time at most 90 days from now.

    The delegation lends capabilities that questions ask for: those that it names, or all that the caller
    has, and never `*`, `admin` and `runs:...`. A delegate cannot lend them to others. The delegation
    counts for the runs that the caller sees.
    """
    return await client.delegations.make(
        body.to,
        capabilities=body.capabilities,
        since=body.from_,
        until=body.until,
        reason=body.reason,
        principal=caller,
        reads=reads,
        key=key,
    )


@router.get("", response_description="The delegations.")
async def list_delegations(caller: Caller, client: ClientDep) -> Listed[views.DelegationView]:
    """List the delegations that the caller made or may use and that have not ended. With `admin`, all.

    This requires `runs:respond` or `admin`.
    """
    require(caller, RESPONDS, unless=ADMIN)
    found = await client.delegations.list(caller)
    return Listed(items=found)


@router.delete(
    "/{delegation_id}",
    dependencies=[VALID_KEY],
    response_description="The delegation, which counts no more.",
)
async def delete_delegation(
    delegation_id: DelegationId, caller: Caller, client: ClientDep
) -> views.DelegationView:
    """Delete a delegation that the caller made; with `admin`, anybody's.

    This requires `runs:respond` or `admin`.
    """
    require(caller, RESPONDS, unless=ADMIN)
    return await client.delegations.delete(delegation_id, principal=caller)
