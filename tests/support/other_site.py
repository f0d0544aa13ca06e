"""A web server that is not ours: every address of it is the same page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from answering import Answering, answering


class _Page(Answering):
    def get(self) -> None:
        self.answer(200, b"<title>elsewhere</title>", kind="text/html")


@contextmanager
def other_site() -> Iterator[int]:
    """The port of such a server on loopback, until the context ends."""
    with answering(_Page) as url:
        yield int(url.rpartition(":")[2])
