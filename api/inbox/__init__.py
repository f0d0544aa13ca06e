"""The inbox: a page on which people see what is asked, and answer.

Its files have no secret in them, so they are handed to everybody; what the page shows it asks
the API for, as whoever holds the token. Nothing is loaded from elsewhere and nothing is written into the
page as markup: what a run says arrives as JSON and is set as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

router = APIRouter(include_in_schema=False)

PATH: Final = "/inbox"

_FOLDER: Final = Path(__file__).parent
_KINDS: Final = {"css": "text/css", "html": "text/html", "js": "text/javascript"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FILES: Final = {
    path.name: path.read_text(encoding="utf-8")
    for path in _FOLDER.iterdir()
    if path.suffix.removeprefix(".") in _KINDS
}


def _file(name: str) -> Response:
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(_FILES[name], media_type=kind, headers=_HEADERS)


@router.get("/")
async def home() -> Response:
    """Lead to the inbox."""
    return RedirectResponse(PATH)


@router.get(PATH)
async def page() -> Response:
    """The page. Needs no capability, for nothing of a run is in it."""
    return _file("page.html")


@router.get(f"{PATH}/inbox.css")
async def style() -> Response:
    """How the page looks."""
    return _file("inbox.css")


@router.get(f"{PATH}/inbox.js")
async def program() -> Response:
    """What the page does."""
    return _file("inbox.js")


@router.get(f"{PATH}/form.js")
async def form() -> Response:
    """How the page makes a form of a schema."""
    return _file("form.js")
