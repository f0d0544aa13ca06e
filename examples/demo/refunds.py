"""The act of the demo in which an approver changes a call, has a yes remembered, and reads the report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from abeyance.http import HttpClient
from abeyance.records.report import Approval
from abeyance.views import InterruptView, RunView
from examples.demo.acts import MODEL, as_caller, ask_which, is_complete, quote, run_until, say

_GRAPH: Final = "support_desk"
_LETTER: Final = "A-7: 120 euros, late. A-8: 30 euros, late. A-9: 40 euros, late."
_LESS: Final = {"amount": 90}
_REMEMBERED: Final = {"for": "1h", "where": "run"}
_MAY: Final = "runs:respond, refunds:approve"
_AMOUNT: Final = "reason.arguments.amount"
_MOST_QUESTIONS: Final = 5


class Refunding:
    """The third act: ada pays back less than was asked for, and agrees to further refunds at once."""

    def __init__(self, client: HttpClient, api_url: str) -> None:
        self._client = client
        self._api_url = api_url
        self.run_id = ""

    async def play(self, answer: str | None) -> bool:
        """Play the act. Return True if what was paid back is what the answers say."""
        say("agent", "third act: an agent pays money back; ada may change what it asks for")
        say("", f"a customer writes: {_LETTER}")
        self.run_id = (await self._client.runs.start(_GRAPH, {"letter": _LETTER})).run_id
        say("run", f"{self.run_id} started; its questions are at {self._api_url}/inbox", gap=True)
        approved = (answer or await ask_which("approve", "reject", whose="Ada's")) == "approve"
        view = await self._until_asked()
        for number in range(_MOST_QUESTIONS):
            if view.status != "awaiting-input":
                break
            await self._answer(view.interrupts[0], approved=approved, is_first=number == 0)
            view = await self._until_asked()
        if not is_complete(view):
            return False
        say("end", view.values["reply"], gap=True)
        await self._report()
        return self._is_right(view, approved=approved)

    async def _until_asked(self) -> RunView:
        return await run_until(self._client.run(self.run_id), "awaiting-input", "completed")

    async def _answer(self, question: InterruptView, *, approved: bool, is_first: bool) -> None:
        say("asks", question.prompt)
        answer: dict[str, Any] = {"approved": approved}
        asked = question.reason["arguments"]
        if not approved:
            say("ada", "rejects it")
        elif is_first:
            answer["arguments"] = {**asked, **_LESS}
            say(
                "ada", f"approves {_LESS['amount']} instead of {asked['amount']}; that is what runs"
            )
        else:
            answer["remember"] = _REMEMBERED
            say(
                "ada",
                "approves it, and for an hour each refund below 100 for the same reason in this run",
            )
        await self._as_ada(f"/interrupts/{question.id}/respond", {"response": answer})

    async def _report(self) -> None:
        for grant in await self._client.grants.list(status="all"):
            say("remembered", f"a yes by {grant.by}; calls that ran unasked: {len(grant.used)}")
            say("", f"it can be revoked at {self._api_url}/inbox/grants")
        report = await self._client.approvals(fields=[_AMOUNT], sums=[_AMOUNT])
        say("report", f"who agreed to what, the newest first: {self._api_url}/inbox/approvals")
        quote("\n".join(map(_line, report.items)))
        say("", f"asked for in all: {report.sums[_AMOUNT].sum} euros", gap=True)

    def _is_right(self, view: RunView, *, approved: bool) -> bool:
        if os.environ.get(MODEL):
            # Nobody knows how a real model words it.
            return True
        paid = "90 euros for A-7, 30 euros for A-8, 40 euros for A-9" if approved else "nothing"
        if view.values["reply"] != f"We are sorry. We pay back {paid}.":
            say("error", f"the reply does not match the answers: {paid} should have been paid back")
            return False
        return True

    async def _as_ada(self, path: str, body: Mapping[str, Any]) -> None:
        # What somebody may by `*` is not remembered, so she says what she may.
        await as_caller("ada", self._api_url, path, body, Capabilities=_MAY)


def _line(row: Approval) -> str:
    by = "under what is remembered of" if row.outcome == "granted" else "by"
    return f"{row.fields.get(_AMOUNT) or '':>5}  {row.outcome:9} {by} {row.by}"
