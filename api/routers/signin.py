"""Who the caller is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import CredentialsDep
from abeyance.api.dependencies import KNOWN_PARAMETERS, BackendDep

router = APIRouter(tags=["sign-in"])


class Me(BaseModel):
    """The caller, as the service knows them."""

    subject: str
    capabilities: list[str] = Field(description="`*` includes every capability.")
    groups: list[str]
    reads: dict[str, list[str]] = Field(
        description="The caller sees only runs that have, of each label, one of these values. Without "
        "labels: all runs."
    )
    authenticated_by: Literal["nothing", "token"] = Field(
        description="`nothing`: the service requires no authentication."
    )
    expires_at: datetime | None = Field(
        description="When the token expires; null if it does not, or if only its issuer knows."
    )


@router.get(
    "/me",
    dependencies=[KNOWN_PARAMETERS],
    responses=openapi.read("The caller.", openapi_examples.ME),
)
async def read_me(credentials: CredentialsDep, backend: BackendDep) -> Me:
    """Retrieve who the caller is: the subject, its capabilities, its groups, and the runs that it may
    see. Any valid token is enough.
    """
    principal, until = credentials.principal, credentials.expires_at
    return Me(
        subject=principal.subject,
        capabilities=[*principal.capabilities],
        groups=[*principal.groups],
        reads={name: [*values] for name, values in credentials.reads.labels},
        authenticated_by="token" if backend.tokens.are_required else "nothing",
        expires_at=None if until is None else datetime.fromtimestamp(until, UTC),
    )
