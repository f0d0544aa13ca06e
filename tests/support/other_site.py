"""A web server that is not ours: every address of it is the same page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>elsewhere</title>")

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def other_site() -> Iterator[int]:
    """The port of such a server on loopback, until the context ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()
