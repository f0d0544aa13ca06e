"""The AI SDK: its `useChat` talks to a graph, at `/chat`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from fastapi import FastAPI

from abeyance.api.dependencies import KNOWN_PARAMETERS
from abeyance.api.protocols import Protocol
from abeyance.contrib.talk import LARGEST_BODY


def _install(app: FastAPI) -> None:
    # Without this package, no graph can have an agent.
    if find_spec("pydantic_ai") is None:
        return
    from abeyance.contrib.ai_sdk.routes import router  # noqa: PLC0415  (an extra)

    app.include_router(router, dependencies=[KNOWN_PARAMETERS])


PROTOCOL: Final = Protocol(
    path="/chat", install=_install, headers=("user-agent",), largest_body=LARGEST_BODY
)
