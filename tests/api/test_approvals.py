"""The report of approvals over HTTP: its rows, pages, sums and CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from stack import Api, problem
from temporal_site import Site, eventually

from abeyance import ApprovalsFilter
from abeyance.http import HttpClient
from abeyance.records import approvals

FIELDS = {"fields": "answer.approved,answer.amount", "sum": "answer.amount"}


async def answered(api: Api, answer: dict[str, Any], **fields: Any) -> str:
    """Start a run, answer what it asks, and wait until the report has it."""
    _, (gate,) = await api.waiting("guarded", {"amount": 31337}, **fields)
    response = await api.http.post(f"/interrupts/{gate}/respond", json={"response": answer})
    assert response.status_code == 200, response.text

    async def is_there() -> bool:
        page = (await api.http.get("/approvals?graph=guarded&limit=1000")).json()
        return any(row["id"] == gate for row in page["items"])

    await eventually(is_there)
    return gate


async def test_an_answer_is_a_row_of_the_report_with_what_was_shown(api: Api) -> None:
    gate = await answered(api, {"approved": True, "amount": 12})
    since = (await api.interrupt(gate))["created_at"]
    query = {"from": since, "graph": "guarded", **FIELDS}

    page = (await api.http.get("/approvals", params=query)).json()

    (row,) = page["items"]
    assert (row["id"], row["outcome"], row["prompt"]) == (gate, "approved", "Pay 31337?")
    assert row["requested_capability"] == "payments:approve"
    assert row["digest"].startswith("sha256:")
    assert row["answer"] == {"approved": True, "amount": 12}
    assert row["fields"] == {"answer.approved": True, "answer.amount": 12}
    assert page["sums"] == {"answer.amount": {"sum": "12", "rows": 1}}
    assert (page["total"], page["partial"], page["from"]) == (1, False, since)
    answers = {"X-Abeyance-Capabilities": "runs:read"}
    hidden = (await api.http.get("/approvals", params=query, headers=answers)).json()
    assert (hidden["items"][0]["answer"], hidden["items"][0]["redacted"]) == (None, True)
    assert (hidden["sums"]["answer.amount"]["rows"], hidden["partial"]) == (0, True)


async def test_the_clients_read_the_same_report(site: Site, api: Api) -> None:
    for amount in (1, 2, 3):
        await answered(api, {"approved": True, "amount": amount})
    filters = ApprovalsFilter(graph="guarded", outcomes=frozenset({"approved", "granted"}))
    sums = ["answer.amount"]
    async with HttpClient(api.url) as http:
        for client in (site.client, http):
            first = await client.approvals(filters, fields=["answer"], sums=sums, limit=2)
            rest = await client.approvals(filters, fields=["answer"], cursor=first.next_cursor)
            assert [row.answer["amount"] for row in first.items] == [3, 2]
            assert rest.items[0].fields["answer"]["amount"] == 1
            # Other tests have answered without an amount.
            assert 3 <= first.sums["answer.amount"].rows <= first.total
    same = (await api.http.get("/approvals?graph=guarded&page_size=1")).json()
    assert [row["answer"]["amount"] for row in same["items"]] == [3]


async def test_the_whole_report_is_csv(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = await answered(api, {"approved": False})
    since = (await api.interrupt(gate))["created_at"]
    query = {"from": since, "graph": "guarded", "format": "csv", "fields": "answer.approved"}
    monkeypatch.setattr("abeyance.api.routers.approvals._AT_ONCE", 1)
    await answered(api, {"approved": True, "amount": 7})

    response = await api.http.get("/approvals", params={**query, "sum": "answer.amount"})

    assert response.headers["content-type"].startswith("text/csv")
    assert json.loads(response.headers["abeyance-sums"]) == {
        "answer.amount": {"sum": "7", "rows": 1}
    }
    assert response.headers["abeyance-partial"] == "false"
    head, second, first = csv.reader(io.StringIO(response.text, newline=""))
    assert [line[head.index("outcome")] for line in (second, first)] == ["approved", "rejected"]
    assert (first[head.index("id")], first[-1], head[-1]) == (gate, "false", "answer.approved")
    monkeypatch.setattr(approvals, "MOST_ADDED", 1)
    found = problem(await api.http.get("/approvals", params=query), 422, "invalid_body")
    assert "at most 1 rows, and this has 2" in found["detail"]
