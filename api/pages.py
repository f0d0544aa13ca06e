"""The parts that all pages of this service share: their headers, and the serving of their files.

A page loads nothing from other hosts. Its files are public, and have no data.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    # The address may be a personal link, whose holder can answer.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
KINDS: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
"""The media types of files, by file extension."""


def with_common_style(sheet: Path) -> str:
    """Return the style sheet that sign-in and personal links share, followed by this one."""
    common = Path(__file__).with_name("page.css")
    return "\n".join(path.read_text(encoding="utf-8") for path in (common, sheet))


def sent(content: str, kind: str, status: int = 200) -> Response:
    """Return the response with a page, or with a file of a page, of a kind such as `css`."""
    return Response(content, status_code=status, media_type=KINDS[kind], headers=HEADERS)


def serve(router: APIRouter, path: str, content: str) -> None:
    """Serve a text at a path: as a page, unless the path ends with a known file extension."""
    kind = path.rpartition(".")[2]
    served = partial(sent, content, kind if kind in KINDS else "html", 200)
    router.add_api_route(path, served, include_in_schema=False)
