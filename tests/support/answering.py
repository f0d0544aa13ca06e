"""An HTTP server on loopback, in a separate thread, whose responses the test defines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answering(BaseHTTPRequestHandler):
    """A handler whose methods `get` and `post` a test overrides; both respond 404."""

    def get(self) -> None:
        self.answer(404)

    def post(self) -> None:
        self.answer(404)

    def answer(
        self, status: int, content: Any = b"", *, kind: str = "application/json", **headers: str
    ) -> None:
        """Respond with bytes as they are, or with any other value as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    do_PATCH = do_POST  # noqa: N815 the name is the library's

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: tests assert what matters."""


@contextmanager
def answering(handler: type[Answering]) -> Iterator[str]:
    """Serve with this handler until the context ends, and yield the server's URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # A shutdown takes as long as the poll interval, which is half a second by default.
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()
