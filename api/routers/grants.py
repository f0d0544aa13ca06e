"""Grants: remembered approvals, which let later calls run unasked."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Path, Query

from abeyance.api.auth import RESPONDS, Caller, require
from abeyance.api.dependencies import VALID_KEY, ClientDep
from abeyance.api.rights import Reads
from abeyance.api.schemas import Listed
from abeyance.core.approvals import unknown
from abeyance.core.delegations import ADMIN
from abeyance.core.policy import CONTROL, Principal, ReadRights
from abeyance.errors import Code, Refusal
from abeyance.records.grant_views import GrantView

router = APIRouter(prefix="/grants", tags=["grants"])

GrantId: TypeAlias = Annotated[str, Path(description="The id of a grant.", max_length=100)]
Status: TypeAlias = Annotated[
    Literal["standing", "all"],
    Query(description="`standing`: those that let calls run; `all`: also those that are over."),
]


@router.get("", response_description="The grants.")
async def list_grants(
    caller: Caller, client: ClientDep, reads: Reads, status: Status = "standing"
) -> Listed[GrantView]:
    """List the remembered approvals that the caller made and that are standing, oldest first, with the
    calls that ran under them. With `runs:control` or `admin`, those of everybody.

    The status `all` includes the grants that let no call run any more: the newest 500. This
    requires `runs:respond`, `runs:control` or `admin`. A caller who is bound to labels sees only their
    own.
    """
    _require(caller)
    principal = _own_if_bound(caller, reads)
    return Listed(items=await client.grants.list(principal, status=status))


@router.delete(
    "/{grant_id}",
    dependencies=[VALID_KEY],
    response_description="The grant, which counts no more.",
)
async def revoke_grant(
    grant_id: GrantId, caller: Caller, client: ClientDep, reads: Reads
) -> GrantView:
    """Revoke a remembered approval that the caller made; with `runs:control`, anybody's.

    Repeating the call changes nothing. This requires `runs:respond`, `runs:control` or `admin`. A caller
    who is bound to labels can revoke only their own.
    """
    _require(caller)
    try:
        return await client.grants.revoke(grant_id, principal=_own_if_bound(caller, reads))
    except Refusal as refusal:
        if reads.is_bound and refusal.code is Code.CAPABILITY_REQUIRED:
            raise unknown(grant_id) from refusal
        raise


def _require(caller: Principal) -> None:
    if not caller.may(CONTROL):
        require(caller, RESPONDS, unless=ADMIN)


def _own_if_bound(caller: Principal, reads: ReadRights) -> Principal:
    """Return the caller; if bound, without rights over others' grants, which may be of hidden runs."""
    return Principal(subject=caller.subject) if reads.is_bound else caller
