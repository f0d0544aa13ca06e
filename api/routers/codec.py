"""What Temporal's UI and command line ask in order to show what is encrypted, or kept in storage.

The protocol is Temporal's own, that of its codec servers. Pages of the UI are of another origin: the
guard lets in those that are configured, to these two calls alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body

from abeyance.api.auth import ADMIN
from abeyance.api.dependencies import ClientDep
from abeyance.api.problems import invalid
from abeyance.storage import converter

router = APIRouter(prefix="/codec", dependencies=[ADMIN], include_in_schema=False)

Document = Annotated[Mapping[str, Any], Body()]


@router.post("/decode")
async def decode(client: ClientDep, document: Document) -> dict[str, Any]:
    """Make payloads readable."""
    try:
        return await converter.decoded(client.temporal.data_converter, document)
    except ValueError as error:
        raise invalid([{"pointer": "/payloads", "message": str(error)}]) from error


@router.post("/encode")
async def encode(client: ClientDep, document: Document) -> dict[str, Any]:
    """Make payloads as we send them."""
    try:
        return await converter.encoded(client.temporal.data_converter, document)
    except ValueError as error:
        raise invalid([{"pointer": "/payloads", "message": str(error)}]) from error
