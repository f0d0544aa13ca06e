"""A server on loopback that answers as a test says, in a thread of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answering(BaseHTTPRequestHandler):
    """Answers by its methods `get` and `post`."""

    def get(self) -> None:
        self.answer(404)

    def post(self) -> None:
        self.answer(404)

    def answer(
        self, status: int, content: Any = b"", *, kind: str = "application/json", **headers: str
    ) -> None:
        """Answer with bytes as they are, or with anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        """What was sent."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    do_PATCH = do_POST  # noqa: N815 the name is the library's

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what matters is asserted."""


@contextmanager
def answering(handler: type[Answering]) -> Iterator[str]:
    """The address of such a server, which is there until the context ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # Its end waits for as long as it looks whether it is to end: half a second, unless set otherwise.
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()
