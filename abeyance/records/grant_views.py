"""The views of grants that callers get from the records."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field

from abeyance.wire import Record

GrantStatus: TypeAlias = Literal["standing", "used-up", "expired", "revoked"]
"""The status of a grant: only a standing grant lets calls run."""


class GrantUse(Record):
    """A call that ran under a grant: its run, its address, and when."""

    run_id: str
    call: str
    at: datetime


class GrantView(Record):
    """A grant as callers see it: which calls of a `tool` run unasked, who decided that, and until when.
    `run_id` null means every run of the graph, `uses` null any number. `used` lists the calls that ran
    under it, oldest first. Only a `standing` grant lets calls run. A revoked one says when and by whom;
    null means unknown.
    """

    id: str
    status: GrantStatus
    tool: str
    graph: str
    run_id: str | None
    same: dict[str, Any]
    below: dict[str, float]
    by: str
    capability: str | None
    made_at: datetime
    until: datetime
    uses: int | None
    used: list[GrantUse] = Field(default_factory=list)
    revoked_at: datetime | None = None
    revoked_by: str | None = None
