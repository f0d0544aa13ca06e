"""The report of approvals: the questions that were settled in a time, by whom, and their sums."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Final, Literal

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
_EXAMPLE: Final[dict[str, Any]] = {
    "items": [
        {
            "at": "2026-03-02T09:04:10Z",
            "outcome": "approved",
            "by": "ada",
            "requested_capability": "refunds:approve",
            "graph": "refund",
            "run_id": "refund-4711",
            "id": "refund-4711.b276f6238dab3ba5",
            "name": "approve",
            "prompt": "Refund 250 for order A-7?",
            "answer": True,
            "asked_at": "2026-03-02T09:00:00Z",
            "fields": {"reason.amount": 250},
        }
    ],
    "next_cursor": None,
    "total": 1,
    "from": "2026-02-01T00:00:00Z",
    "to": "2026-03-03T00:00:00Z",
    "sums": {"reason.amount": {"sum": "250", "rows": 1}},
}


class ApprovalsQuery(lists.ApprovalsPage):
    """The query of the report."""

    format: Literal["json", "csv"] = Field(
        default="json",
        description=f"`csv`: all rows from the `cursor` on, at most {approvals.MOST_ADDED:,}, as RFC "
        "4180 has them.",
    )


def _report() -> openapi.Responses:
    responses = openapi.answer("A page of the report.", _EXAMPLE)
    responses[200]["content"] |= openapi.content("at,outcome,by\r\n", "text/csv")
    return responses


@router.get(
    "/approvals",
    dependencies=[READ],
    response_model=Approvals,
    responses=_report(),
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
