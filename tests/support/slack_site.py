"""A Slack on 127.0.0.1: the Web API methods that Abeyance uses, and a socket for people's actions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs

import pytest
from slack_sdk.signature import SignatureVerifier
from temporal_site import Site, eventually
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from abeyance.contrib.slack import process
from abeyance.settings import Settings

ALL_SCOPES = frozenset(
    {
        *("chat:write", "channels:read", "channels:history", "im:write", "im:history"),
        *("users:read", "users:read.email"),
    }
)
BOT = "B0BOT"
TEAM = "T0TEAM"

Reply: TypeAlias = Mapping[str, Any] | int | Literal["own", "cut", "held", "page"]
"""The response of a method: a body; 429 or 503; the `page` of a proxy; its `own` response; or none,
because the connection is `cut` or `held` after the method has done its work.
"""


@dataclass
class Message:
    """A message of a channel."""

    channel: str
    ts: str
    said: dict[str, Any]
    thread_ts: str | None = None
    revisions: list[dict[str, Any]] = field(default_factory=list)
    posted_at: float = field(default_factory=time.time)

    @property
    def text(self) -> str:
        """The text that people see now, without the buttons."""
        blocks = [each for each in self.said.get("blocks", []) if each["type"] != "actions"]
        return f"{self.said.get('text', '')} {json.dumps(blocks, ensure_ascii=False)}"

    @property
    def buttons(self) -> dict[str, dict[str, Any]]:
        """The buttons by their labels."""
        return {
            each["text"]["text"]: each
            for block in self.said.get("blocks", [])
            if block["type"] == "actions"
            for each in block["elements"]
        }


class FakeSlack:
    """The posted `messages`, and the ephemeral ones (`told`). `replies` come before own responses."""

    def __init__(self) -> None:
        self.channels = {"refunds": "C0REFUNDS", "late": "C0LATE"}
        self.not_in: set[str] = set()
        self.members = {"U0ADA": "ada@example.com", "U0BOB": "bob@example.com"}
        self.strangers = {"U0EVE": "ada@example.com"}
        self.scopes = set(ALL_SCOPES)
        self.messages: list[Message] = []
        self.told: list[tuple[str, str]] = []
        self.modals: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.replies: dict[str, list[Reply]] = {}
        self.url = ""
        self._numbers = itertools.count(1)
        self._socket = ""
        self._links: list[ServerConnection] = []
        self._acknowledged: dict[str, asyncio.Future[Any]] = {}

    @property
    def posted(self) -> list[Message]:
        """The messages outside threads."""
        return [each for each in self.messages if each.thread_ts is None]

    def thread(self, message: Message) -> list[str]:
        return [each.said["text"] for each in self.messages if each.thread_ts == message.ts]

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    def press(self, message: Message, label: str, *, by: str = "U0ADA") -> dict[str, Any]:
        """Return Slack's payload for the press of a button."""
        button = message.buttons[label]
        return {
            "type": "block_actions",
            "user": {"id": by},
            "channel": {"id": message.channel},
            "container": {"channel_id": message.channel, "message_ts": message.ts},
            "trigger_id": uuid.uuid4().hex,
            "actions": [{**button, "action_ts": f"{next(self._numbers)}.0"}],
        }

    def submission(
        self, view: Mapping[str, Any], values: Mapping[str, str], *, by: str = "U0ADA"
    ) -> dict[str, Any]:
        """Return Slack's payload for the submission of a form."""
        state: dict[str, Any] = {}
        for block in view["blocks"]:
            if block["type"] != "input":
                continue
            kind = block["element"]["type"]
            text = values.get(block["block_id"])
            match kind:
                case "static_select":
                    chosen = next(
                        (o for o in block["element"]["options"] if o["text"]["text"] == text),
                        block["element"].get("initial_option") if text is None else None,
                    )
                    entry: dict[str, Any] = {"selected_option": chosen}
                case "datepicker":
                    entry = {"selected_date": text or block["element"].get("initial_date")}
                case _:
                    entry = {
                        "value": block["element"].get("initial_value") if text is None else text
                    }
            state[block["block_id"]] = {"value": {"type": kind, **entry}}
        shown = {**view, "id": f"V{next(self._numbers)}", "state": {"values": state}}
        return {"type": "view_submission", "user": {"id": by}, "view": shown}

    async def tell(self, payload: Mapping[str, Any]) -> Any:
        """Send a person's action over the socket, and return the payload of its acknowledgement."""
        envelope = uuid.uuid4().hex
        self._acknowledged[envelope] = asyncio.get_running_loop().create_future()
        link = await eventually(lambda: self._links and self._links[-1])
        told = {"type": "interactive", "envelope_id": envelope, "payload": payload}
        await link.send(json.dumps({**told, "accepts_response_payload": True}))
        async with asyncio.timeout(20):
            return await self._acknowledged[envelope]

    async def only_message(self) -> Message:
        posted: list[Message] = await eventually(lambda: self.posted)
        (message,) = posted
        return message

    async def until_told(self, number: int = 1) -> tuple[str, str]:
        """Wait for the ephemeral message with this number, and return it."""
        told: list[tuple[str, str]] = await eventually(
            lambda: len(self.told) >= number and self.told, seconds=60
        )
        return told[number - 1]

    async def linked(self, link: ServerConnection) -> None:
        self._links.append(link)
        await link.send(json.dumps({"type": "hello"}))
        with contextlib.suppress(ConnectionClosed):
            async for text in link:
                said = json.loads(text)
                if (waiting := self._acknowledged.get(said.get("envelope_id"))) is not None:
                    waiting.set_result(said.get("payload"))
        self._links.remove(link)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
            method = head[0].split()[1].rpartition("/")[2]
            if "json" in headers.get("content-type", ""):
                arguments = json.loads(body or "{}")
            else:
                arguments = {name: values[0] for name, values in parse_qs(body).items()}
            self.calls.append((method, arguments))
            replies = self.replies.get(method)
            reply: Any = replies.pop(0) if replies else "own"
            status, more = 200, f"x-oauth-scopes: {','.join(sorted(self.scopes))}\r\n"
            if reply == "page":
                status, reply = 200, None
            elif reply == 429:
                status, reply = 429, {"ok": False, "error": "ratelimited"}
                more += "Retry-After: 1\r\n"
            elif isinstance(reply, int):
                status, reply = reply, {"ok": False, "error": "service_unavailable"}
            elif reply in ("cut", "held"):
                self.done(method, arguments)
                if reply == "held":
                    await reader.read()
                return
            elif reply == "own":
                reply = self.done(method, arguments)
            content = "<html>Back soon</html>" if reply is None else json.dumps(reply)
            line = f"HTTP/1.1 {status} Said\r\n{more}Content-Type: application/json\r\n"
            line += f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n{content}"
            writer.write(line.encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def done(self, method: str, said: dict[str, Any]) -> dict[str, Any]:
        """Carry out a method, and return its response."""
        people = self.members | self.strangers
        match method:
            case "auth.test":
                return {"ok": True, "bot_id": BOT, "team_id": TEAM}
            case "apps.connections.open":
                return {"ok": True, "url": self._socket}
            case "conversations.list":
                listed = [
                    {"name": name, "id": id_, "is_member": name not in self.not_in}
                    for name, id_ in self.channels.items()
                ]
                return {"ok": True, "channels": listed}
            case "conversations.open":
                return {"ok": True, "channel": {"id": f"D{said['users']}"}}
            case "users.info" if said["user"] in people:
                team = TEAM if said["user"] in self.members else "T0OTHER"
                profile = {"email": people[said["user"]]}
                return {"ok": True, "user": {"team_id": team, "profile": profile}}
            case "users.lookupByEmail":
                found = next(id_ for id_, mail in self.members.items() if mail == said["email"])
                return {"ok": True, "user": {"id": found}}
            case "chat.postMessage":
                ts = f"1700000000.{next(self._numbers):06}"
                made = Message(said["channel"], ts, said, said.get("thread_ts"), [said])
                self.messages.append(made)
                return {"ok": True, "channel": said["channel"], "ts": ts}
            case "chat.update":
                message = next(each for each in self.messages if each.ts == said["ts"])
                assert message.channel == said["channel"]
                message.said = said
                message.revisions.append(said)
                return {"ok": True, "ts": said["ts"]}
            case "chat.postEphemeral":
                self.told.append((said["user"], said["text"]))
                return {"ok": True}
            case "views.open":
                self.modals.append(said["view"])
                return {"ok": True}
            case "conversations.history" if "channels:history" in self.scopes:
                listed = [
                    {"ts": each.ts, "bot_id": BOT, "metadata": each.said.get("metadata")}
                    for each in reversed(self.posted)
                    if each.channel == said["channel"]
                ]
                return {"ok": True, "messages": listed}
            case "conversations.history":
                return {"ok": False, "error": "missing_scope", "needed": "channels:history"}
            case _:
                return {"ok": False, "error": "unknown_method"}

    @contextmanager
    def environment(
        self, site: Site, file: Mapping[str, Any], folder: Path, **variables: str
    ) -> Iterator[dict[str, str]]:
        """Set and yield the variables of an `abeyance slack` for a site and this Slack."""
        path = folder / "notifications.yaml"
        path.write_text(json.dumps(file), encoding="utf-8")
        found = {
            "TEMPORAL_ADDRESS": site.temporal.service_client.config.target_host,
            "ABEYANCE_TASK_QUEUE": site.settings.task_queue,
            "ABEYANCE_NOTIFICATIONS": str(path),
            "ABEYANCE_SLACK_API": self.url,
            "ABEYANCE_SLACK_BOT_TOKEN": "xoxb-test",
            "ABEYANCE_SLACK_APP_TOKEN": "xapp-test",
            "ABEYANCE_URL": "https://abeyance.example.com",
            **variables,
        }
        with pytest.MonkeyPatch.context() as patch:
            for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
                patch.delenv(name, raising=False)
            for name, value in found.items():
                patch.setenv(name, value)
            yield found

    @asynccontextmanager
    async def desk(
        self,
        site: Site,
        file: Mapping[str, Any],
        folder: Path,
        *,
        socket: bool = True,
        **variables: str,
    ) -> AsyncIterator[list[str]]:
        """Run `abeyance slack` in this process, and yield the lines that it prints."""
        announced: list[str] = []
        with self.environment(site, file, folder, **variables):
            settings = Settings()
            if not socket:
                settings = settings.model_copy(update={"slack_app_token": None})
            working = asyncio.create_task(process.run(settings, "127.0.0.1", 0, announced.append))
            try:
                await eventually(
                    lambda: working.done() or any("is up" in each for each in announced)
                )
                if working.done():
                    working.result()
                yield announced
            finally:
                working.cancel()
                await asyncio.wait({working})


@asynccontextmanager
async def fake_slack() -> AsyncIterator[FakeSlack]:
    """Start a Slack, and yield it."""
    made = FakeSlack()
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/"
    async with serve(made.linked, "127.0.0.1", 0) as sockets:
        port = next(iter(sockets.sockets)).getsockname()[1]
        made._socket = f"ws://127.0.0.1:{port}/link"
        try:
            yield made
        finally:
            server.close()


ADA = {"slack": "U0ADA", "capabilities": ["refunds:approve"], "groups": ["finance"]}


def in_slack(*targets: str, event: object = "interrupt.opened", **parts: Any) -> dict[str, Any]:
    """Return a notifications file with rules for Slack."""
    to = [{"slack": each} for each in targets or ("#refunds",)]
    rules = [{"when": {"event": event}, "to": to}]
    return {"people": {"ada": ADA}, "rules": rules, **parts}


def signature(secret: str, body: str, *, at: float | None = None) -> dict[str, str]:
    """Return the headers with which Slack signs a request."""
    now = str(int(at or time.time()))
    signed = SignatureVerifier(secret).generate_signature(timestamp=now, body=body)
    return {"x-slack-request-timestamp": now, "x-slack-signature": str(signed)}
