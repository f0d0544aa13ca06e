"""The views of grants that callers get from the records."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field

from abeyance import views
from abeyance.wire import Record

GrantStatus: TypeAlias = Literal["standing", "used-up", "expired", "revoked", "void"]
"""The status of a grant: only a standing grant lets calls run. Who made a void one may not approve such
calls any more.
"""


class GrantUse(Record):
    """A call that ran under a grant: its run, its address, and when."""

    run_id: views.RunId
    call: str = Field(examples=["graph:refund;node:desk#1;node:send_refund#2"])
    at: datetime


class GrantView(Record):
    """A grant as callers see it: which calls of a `tool` run unasked, who decided that, and until when.
    `run_id` null means every run of the graph, `uses` null any number. `used` lists the calls that ran
    under it, oldest first. Only a `standing` grant lets calls run. A revoked one says when and by whom;
    null means unknown.
    """

    id: str = Field(examples=["3f79bb7b435b0532"])
    status: GrantStatus
    tool: str = Field(examples=["send_refund"])
    graph: views.GraphName
    run_id: str | None = Field(examples=[None])
    same: dict[str, Any] = Field(examples=[{"customer_id": "c-17"}])
    below: dict[str, float] = Field(examples=[{"amount": 200.0}])
    by: views.Person
    capability: str | None = Field(examples=["refunds:approve"])
    made_at: datetime
    until: datetime = Field(examples=["2026-01-31T18:00:00Z"])
    uses: int | None = Field(examples=[20])
    used: list[GrantUse] = Field(default_factory=list)
    revoked_at: datetime | None = None
    revoked_by: str | None = None
