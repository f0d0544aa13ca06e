"""A foreign web server that has the same page at every address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from answering import Answering, answering


class _Page(Answering):
    def get(self) -> None:
        self.answer(200, b"<title>elsewhere</title>", kind="text/html")


@contextmanager
def other_site() -> Iterator[int]:
    """Serve on loopback until the context ends, and yield the port."""
    with answering(_Page) as url:
        yield int(url.rpartition(":")[2])
