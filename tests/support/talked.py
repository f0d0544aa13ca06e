"""Requests of user interfaces to a graph, and the streams that come back."""

from __future__ import annotations

import json
from typing import Any

import httpx
from stack import Api


def events_in(text: str) -> list[dict[str, Any]]:
    """Return the data of a stream, in order."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def user(text: str, id_: str = "m1") -> dict[str, Any]:
    """Return a user's message of AG-UI."""
    return {"id": id_, "role": "user", "content": text}


async def agui(
    api: Api,
    thread: str,
    *messages: dict[str, Any],
    graph: str = "payments",
    resume: list[dict[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> httpx.Response:
    """Post a request of AG-UI, and return the response when the segment is over."""
    body = {"threadId": thread, "runId": "1", "messages": list(messages), **more}
    if resume is not None:
        body["resume"] = resume
    return await api.http.post(f"/agui/{graph}", json=body, headers=headers)


async def chat(api: Api, id_: str, *messages: dict[str, Any], graph: str = "payments") -> Any:
    """Post a request of the AI SDK, and return the response when the segment is over."""
    body = {"id": id_, "messages": [*messages], "trigger": "submit-message"}
    return await api.http.post(f"/chat/{graph}", json=body)


def wrote(text: str, id_: str = "m1") -> dict[str, Any]:
    """Return a user's message of the AI SDK."""
    return {"id": id_, "role": "user", "parts": [{"type": "text", "text": text}]}
