"""AG-UI 1.0: user interfaces that speak the protocol talk to a graph, at `/agui`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from fastapi import FastAPI

from abeyance.api.dependencies import KNOWN_PARAMETERS
from abeyance.api.protocols import Protocol
from abeyance.contrib.talk import LARGEST_BODY


def _install(app: FastAPI) -> None:
    if find_spec("ag_ui") is None:
        return
    from abeyance.contrib.agui.routes import router  # noqa: PLC0415  (an extra)

    app.include_router(router, dependencies=[KNOWN_PARAMETERS])


PROTOCOL: Final = Protocol(
    path="/agui", install=_install, headers=("user-agent",), largest_body=LARGEST_BODY
)
