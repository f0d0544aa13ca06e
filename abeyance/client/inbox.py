"""The inbox: the questions of all runs that wait for somebody."""

from __future__ import annotations

from abeyance import views
from abeyance.client.records import Records
from abeyance.commands import lists
from abeyance.filters import InboxFilter
from abeyance.orders import check_page
from abeyance.records import questions
from abeyance.records.cursors import Page


class Inbox:
    """The inbox of one deployment."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def list(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[views.InterruptView], str | None]:
        """Return at most `limit` questions that wait, in the order of the filter, and the cursor of the
        next page, None after the last.

        Raises `invalid_body` for a cursor of another list, and Unavailable.
        """
        page = await self.page(filters, cursor=cursor, limit=limit)
        return page.items, page.next_cursor

    async def page(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[views.InterruptView]:
        """Return a page as `list` does, and how many questions there are in all."""
        filters = filters or InboxFilter()
        order = check_page(lists.InboxPage, filters, cursor=cursor, limit=limit)
        filters = lists.narrowed(filters, order)
        return await self._records.read(
            questions.inbox, filters, order=filters.order, cursor=cursor, limit=order.most
        )
