"""A webhook receiver on 127.0.0.1 with responses that tests set, and notification rules that name it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from abeyance.notifications.config import Notifications

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECRET_ENV = "HOOK_SECRET"


@dataclass
class Received:
    """One post that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """A receiver and its posts. `statuses` are its next responses, and then 204; None never responds."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    statuses: list[int | None] = field(default_factory=list)
    headers: Sequence[str] = ()

    def posts(self, path: str = "/hook") -> list[Received]:
        return [each for each in self.received if each.path == path]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.received.append(Received(head[0].split()[1], headers, body))
            status = self.statuses.pop(0) if self.statuses else 204
            if status is None:
                await asyncio.sleep(60)
            location = "Location: /elsewhere\r\n" if status in range(300, 400) else ""
            location += "".join(f"{header}\r\n" for header in self.headers)
            line = f"HTTP/1.1 {status} Said\r\n{location}Content-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(line.encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(
    statuses: Iterable[int | None] = (), *, headers: Sequence[str] = ()
) -> AsyncIterator[Receiver]:
    """Start a receiver, and yield it."""
    made = Receiver(statuses=[*statuses], headers=headers)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


def hook(url: str, **options: Any) -> dict[str, Any]:
    """Return a target that posts to a receiver."""
    return {"webhook": url, "secret_env": SECRET_ENV, "allow_private": True, **options}


def rules(*rules: tuple[dict[str, Any], list[dict[str, Any]]], **file: Any) -> Notifications:
    """Return notifications with these rules; each has a condition and its targets."""
    written = [{"when": when, "to": to} for when, to in rules]
    return Notifications.model_validate({**file, "rules": written})
