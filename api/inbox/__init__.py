"""The inbox: a page on which approvers read open questions and answer them.

Its files are public. The page gets its data from the API, with the user's token. It loads nothing from
other hosts, and writes data as text, never as markup.
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
    """Redirect to the inbox."""
    return RedirectResponse(PATH)


@router.get(PATH)
async def page() -> Response:
    """Serve the page, which has no data and requires no capability."""
    return _file("page.html")


@router.get(f"{PATH}/inbox.css")
async def style() -> Response:
    """Serve the style sheet."""
    return _file("inbox.css")


@router.get(f"{PATH}/inbox.js")
async def script() -> Response:
    """Serve the script of the page."""
    return _file("inbox.js")


@router.get(f"{PATH}/form.js")
async def form() -> Response:
    """Serve the script for forms."""
    return _file("form.js")
