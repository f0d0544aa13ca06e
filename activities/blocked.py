"""Reports of a blocked visit: its worker tells the run why the visit cannot go on.

The worker keeps trying by itself. It tells the run once for each reason, so that everybody who looks at
the run sees it. A report that does not get through is only logged: Temporal shows the same reason with
the pending activity.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from abeyance.client import Client
from abeyance.core.json import Json
from abeyance.errors import AbeyanceError, BlockedCode
from abeyance.names import BLOCKED_LINE

_logger = logging.getLogger("abeyance.node")

ReportBlocked: TypeAlias = Callable[[BlockedCode | None, str], Awaitable[None]]
"""Report why a visit is blocked, by code and message; None says that it can go on."""


class BlockageReporter:
    """Reports of one visit. `reported` is the code that the run was told last, None if it was not."""

    def __init__(
        self, client: Client, run_id: str, visit: str, reported: str | None = None
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._visit = visit
        self.reported = reported

    async def report(
        self,
        code: BlockedCode | None,
        message: str = "",
        *,
        journal: Mapping[str, Json] | None = None,
        unread: bool = False,
    ) -> None:
        """Tell the run why the visit is blocked, or by None that it can go on, unless it knows.

        `journal` are the steps of the visit, if the run does not have all of them; `unread` is whether
        this worker cannot read them.
        """
        where = f"run={self._run_id} address={self._visit}"
        if code == self.reported and not journal:
            return
        if code is None:
            _logger.info("%s | the visit is no longer blocked", where)
        elif code != self.reported:
            _logger.warning("%s code=%s | %s: %s", where, code, BLOCKED_LINE, message)
        try:
            run = self._client.run(self._run_id)
            await run.report_blocked(self._visit, code, message, journal or {}, unread=unread)
        except AbeyanceError as error:
            _logger.warning("%s | this could not be reported to the run: %s", where, error)
        else:
            self.reported = code
