"""The report of approvals: the questions that were settled in a time, by whom, and their sums."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from abeyance.api import openapi
from abeyance.api.auth import READ, CredentialsDep
from abeyance.api.dependencies import ClientDep
from abeyance.commands import lists
from abeyance.filters import ApprovalsFilter
from abeyance.records import approvals
from abeyance.records.report import Approvals, csv_head, csv_lines
from abeyance.util import invalid

router = APIRouter(tags=["approvals"])

_CSV: Final = "text/csv; charset=utf-8; header=present"
_AT_ONCE: Final = 1_000
_PARTIAL: Final = "Abeyance-Partial"
_SUMS: Final = "Abeyance-Sums"


class ApprovalsQuery(lists.ApprovalsPage):
    """The query of the report."""

    format: Literal["json", "csv"] = Field(
        default="json",
        description=f"`csv`: all rows from the `cursor` on, at most {approvals.MOST_ADDED:,}, as RFC "
        "4180 has them.",
    )


@router.get(
    "/approvals",
    dependencies=[READ],
    response_model=Approvals,
    response_description="A page of the report.",
    responses=openapi.shown("at,outcome,by\r\n", "text/csv"),
)
async def read_approvals(
    query: Annotated[ApprovalsQuery, Query()], client: ClientDep, credentials: CredentialsDep
) -> Approvals | Response:
    """List the questions that were settled in a time, newest first, each once, with who settled it and
    what they were shown; and each call that an earlier approval covers.

    The answer to a question with a capability is only there for callers who have that capability, or
    `admin`. `partial` is true if the caller's labels hide rows, or if a part of a row or of a sum cannot
    be read. For CSV, the header `Abeyance-Partial` tells this for the first thousand rows, and
    `Abeyance-Sums` has the sums, as JSON.
    """
    filters = lists.narrowed(ApprovalsFilter(reads=credentials.reads), query)
    read = partial(
        client.records.read,
        approvals.page,
        filters,
        fields=query.fields,
        reader=credentials.principal,
    )
    if query.format == "json":
        return await read(sums=query.sums, cursor=query.cursor, limit=query.most)
    first = await read(sums=query.sums, cursor=query.cursor, limit=_AT_ONCE)
    if first.total > approvals.MOST_ADDED:
        message = (
            f"a report as CSV has at most {approvals.MOST_ADDED} rows, and this has {first.total}: "
            "choose a shorter time, or more filters"
        )
        raise invalid([{"pointer": "/format", "message": message, "in": "query"}])

    async def written() -> AsyncIterator[str]:
        page = first
        yield csv_head(query.fields)
        while True:
            rows = [row.model_dump(mode="json") for row in page.items]
            yield csv_lines(rows, query.fields)
            if page.next_cursor is None:
                return
            page = await read(cursor=page.next_cursor, limit=_AT_ONCE)

    headers = {
        "Content-Disposition": 'attachment; filename="approvals.csv"',
        "Cache-Control": "no-store",
        _PARTIAL: str(first.partial).lower(),
    }
    if first.sums:
        sums = {name: added.model_dump(mode="json") for name, added in first.sums.items()}
        headers[_SUMS] = json.dumps(sums)
    return StreamingResponse(written(), media_type=_CSV, headers=headers)
